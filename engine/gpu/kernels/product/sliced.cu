// Products of up to 16 and of up to 32 rows of activations, one block per multiprocessor: of matrices whose rows two blocks of a
// cluster can share, as many as their registers hold the sums of, and of larger ones.
#include "sliced.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

// Of 16 rows a held form takes gates: only those read whole rows of the weight in one go.
DEFINE_PLAIN(16_2_8, 16, 2, 4, 2, 256, 5, 4)
DEFINE(32_2_8, 32, 2, 4, 2, 256, 4, 4)
DEFINE(32_2_15, 32, 2, 4, 4, 256, 4, 4)
DEFINE(32_1_15, 32, 1, 4, 4, 256, 4, 4)

#endif
