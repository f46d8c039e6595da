// Products whose weights the copy engine brings and whose activations, rows of up to 4096 columns, stay in the registers of
// one block per multiprocessor: several rows of them cost no traffic beside the weights'. Columns are a multiple of 64.
#include "streamed.cuh"

#if ARCHWAY_HAS_TMA

DEFINE(held_8, 1, 16, 1024, 6, 4, true, 1, 1)
DEFINE(held_16, 2, 16, 1024, 6, 4, true, 1, 1)

#endif
