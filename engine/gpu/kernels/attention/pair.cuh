// The two pairs of (row, query head) of a lane in a tile of the tensor cores, and what they see.
#pragma once

#include "tile.cuh"

// Where the lane's pair `which` of a tile of `rows` rows comes from and goes to.
struct Pair {
    bool valid;
    u32 row;
    u32 head;

    Pair() = default;

    __device__ __forceinline__ Pair(const Bundle& bundle, u32 first_row, u32 rows, u32 index) {
        valid = bundle.count > 0 && index < rows * bundle.count;
        row = valid ? first_row + index / bundle.count : 0;
        head = valid ? bundle.first + index % bundle.count : 0;
    }
};

__device__ __forceinline__ Sight sight_of(
    const AttentionArguments& a, const StepSegment& segment, const Pair (&pairs)[2]) {
    Sight sight;
    bool tree = segment.committed != NONE;
    sight.written = segment.start + segment.rows;
    sight.committed = segment.committed;
    sight.bits = tree ? sight.written - segment.committed : 0;
    u32 all = NONE;
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        u32 limit = tree ? sight.written : segment.start + pairs[which].row + 1;
        sight.limit[which] = pairs[which].valid ? limit : 0;
        sight.words[which] =
            tree ? a.mask + segment.first_word + static_cast<u64>(pairs[which].row) * segment.row_words : nullptr;
        // What a pair that is not there gives is thrown away, so it needs no mask.
        u32 seen = pairs[which].valid ? (tree ? segment.committed : limit) : NONE;
        all = seen < all ? seen : all;
    }
    sight.all = all;
    return sight;
}
