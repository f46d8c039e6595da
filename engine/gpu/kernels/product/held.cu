// Products whose weights the copy engine brings and whose activations stay where they are: several rows of them cost no traffic
// beside the weights'. One block per multiprocessor for rows of up to 4096 columns; two for those of up to 2048, where a
// matrix ends sooner than one block's stages would have come round. Columns are a multiple of a warp's share.
//
// One row is kept in shared memory where that leaves registers for a block beside it: of attention, or of the next product.
#include "streamed.cuh"

#if ARCHWAY_HAS_TMA

DEFINE(light_1, 1, 8, 1024, 6, 4, Keeps::SHARED, 1, 1)
DEFINE(held_1, 1, 8, 1024, 6, 4, Keeps::REGISTERS, 1, 1)
DEFINE(held_8, 8, 8, 1024, 6, 4, Keeps::REGISTERS, 1, 1)
DEFINE(held_16, 16, 16, 1024, 6, 4, Keeps::REGISTERS, 1, 1)
DEFINE(short_1, 1, 8, 1024, 2, 2, Keeps::SHARED, 1, 3)
DEFINE(short_8, 8, 8, 1024, 3, 2, Keeps::REGISTERS, 1, 2)

#endif
