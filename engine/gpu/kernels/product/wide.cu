// Products of long rows, whose weights the copy engine brings, one block per multiprocessor. Tiles of 32 rows read activations
// half as often; where there are too few of them, tiles are of 16 rows. Columns are a multiple of 64.
#include "streamed.cuh"

#if ARCHWAY_HAS_TMA

DEFINE(wide_8, 1, 16, 1024, 6, 3, false, 2, 1)
DEFINE(wide_16, 2, 16, 1024, 5, 1, false, 2, 1)
DEFINE(deep_8, 1, 16, 1024, 6, 4, false, 1, 1)
DEFINE(deep_16, 2, 16, 1024, 5, 2, false, 1, 1)

#endif
