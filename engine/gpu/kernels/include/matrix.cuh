// The tensor cores' product of small tiles in bf16 with sums in f32 (PTX `mma.sync.m16n8k16`, every architecture since
// 8.0).
//
// Lane `l` is in group `g = l / 4` and has place `t = l % 4` in it. It holds, of the left tile `[16, 16]`, rows g and
// g + 8 at columns 2t, 2t + 1, 2t + 8, 2t + 9; of the right tile `[16, 8]`, column g at those rows; of the sums
// `[16, 8]`, rows g and g + 8 at columns 2t and 2t + 1. Which element of the summed dimension is which column is ours to
// choose as long as left and right agree: a lane that loads 16 bytes in one access takes eight neighbours, which serve
// two products. No data moves between lanes.
#pragma once

#include "base.cuh"

struct LeftTile {
    // (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each a pair of neighbours.
    u32 pairs[4];
};

struct Sums {
    // (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
    float values[4];
};

__device__ __forceinline__ void multiply_add(Sums& sums, const LeftTile& left, u32 right_low, u32 right_high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
        : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]), "r"(right_low),
          "r"(right_high));
}
