// Products of long rows, whose weights the copy engine brings, one block per multiprocessor. Tiles of 32 rows read activations
// half as often; where there are too few of them, tiles are of 16 rows. Columns are a multiple of 128, in forms of sixteen warps of 64.
#include "streamed.cuh"

#if ARCHWAY_HAS_TMA

DEFINE(wide_1, 1, 8, 1024, 6, 2, Keeps::CHUNKS, 2, 1)
DEFINE(wide_8, 8, 8, 1024, 6, 2, Keeps::CHUNKS, 2, 1)
DEFINE(wide_16, 16, 8, 1024, 5, 1, Keeps::CHUNKS, 2, 1)
// Four stages leave room for a block of the next product.
DEFINE(deep_1, 1, 8, 1024, 4, 1, Keeps::CHUNKS, 1, 1)
DEFINE(deep_8, 8, 8, 1024, 4, 1, Keeps::CHUNKS, 1, 1)
DEFINE(deep_16, 16, 16, 1024, 5, 2, Keeps::CHUNKS, 1, 1)

#endif
