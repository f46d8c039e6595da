// Products whose weights the copy engine brings and whose activations stay in registers: several rows of them cost no traffic
// beside the weights'. One block per multiprocessor for rows of up to 4096 columns; two for those of up to 2048, where a
// matrix ends sooner than one block's stages would have come round. Columns are a multiple of a warp's share.
#include "streamed.cuh"

#if ARCHWAY_HAS_TMA

DEFINE(held_1, 1, 8, 1024, 6, 4, true, 1, 1)
DEFINE(held_8, 8, 8, 1024, 6, 4, true, 1, 1)
DEFINE(held_16, 16, 16, 1024, 6, 4, true, 1, 1)
DEFINE(short_1, 1, 8, 1024, 3, 2, true, 1, 2)
DEFINE(short_8, 8, 8, 1024, 3, 2, true, 1, 2)

#endif
