// Products whose weights the copy engine brings, two blocks per multiprocessor: for matrices too small for held.cu and
// wide.cu. Two blocks have memory on a multiprocessor; registers of few rows are for three, so that a block of attention stands
// beside them.
#include "streamed.cuh"

#if ARCHWAY_HAS_TMA

DEFINE(8, 8, 8, 512, 6, 1, Keeps::CHUNKS, 1, 3)
DEFINE(16, 16, 8, 512, 5, 1, Keeps::CHUNKS, 1, 2)

#endif
