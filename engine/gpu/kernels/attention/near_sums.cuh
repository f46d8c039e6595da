// What a warp makes of pages: for attend_near, see near.cuh.
#pragma once

#include "near_page.cuh"

#if ARCHWAY_ATTENDS_NEAR

// Pairs 2t and 2t + 1 of a tile of eight: what a warp has gathered.
struct NearSums {
    // Dimensions (64 block + 8g + 2 word) and the next, as the rows of the tensor cores' tile.
    Sums output[BLOCKS_64][4];
    float largest[2];
    float sum[2];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (u32 block = 0; block < BLOCKS_64; ++block) {
#pragma unroll
            for (u32 word = 0; word < 4; ++word) {
                output[block][word] = Sums{};
            }
        }
        largest[0] = largest[1] = NEGATIVE_INFINITY;
        sum[0] = sum[1] = 0.0f;
    }
};

// Over the eight lanes with the same pairs.
__device__ __forceinline__ float largest_of_groups(float value) {
#pragma unroll
    for (u32 distance = 4; distance < WARP; distance *= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

__device__ __forceinline__ float sum_of_groups(float value) {
#pragma unroll
    for (u32 distance = 4; distance < WARP; distance *= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

// An 8 by 8 tile of pairs of bf16, turned round.
__device__ __forceinline__ u32 transpose(u32 pairs) {
    u32 turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pairs));
    return turned;
}

// What pair `index` of the tile may see.
struct NearSight {
    u32 limit;
    const u64* words;
    u32 committed;
    u32 bits;

    __device__ __forceinline__ void look(const AttentionArguments& a, const NearTile& tile, u32 count, u32 index) {
        const StepSegment& segment = tile.segment;
        bool valid = index < tile.rows * count, tree = segment.committed != NONE;
        u32 row = tile.first_row + (valid && index >= count ? index / count : 0), written = segment.start + segment.rows;
        limit = !valid ? 0 : tree ? written : segment.start + row + 1;
        committed = segment.committed;
        bits = tree ? written - segment.committed : 0;
        words = tree ? a.mask + segment.first_word + static_cast<u64>(row) * segment.row_words : nullptr;
    }

    __device__ __forceinline__ bool sees(u32 position) const {
        if (position >= limit || words == nullptr || position < committed) {
            return position < limit;
        }
        u32 bit = position - committed;
        return bit < bits && (words[bit / 64] >> (bit % 64) & 1) != 0;
    }
};

// Two to the power of a number that is at most zero.
__device__ __forceinline__ float power(float exponent) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(exponent));
    return value;
}

// One page, for the queries of eight pairs. FIRST is the warp's first. `keys_done` is called when the page's keys are not
// needed any more.
template <bool FIRST, bool ONE, typename KeysDone>
__device__ __forceinline__ void take_page(
    NearSums& sums, const NearPage& page, const NearHead& head, const AttentionArguments& a, const NearSight (&sights)[2],
    u32 all, u32 first, const KeysDone& keys_done) {
    u32 group = threadIdx.x % WARP / 4;
    bool masked = first + PAGE > all;
    Sums scores = {}, others = {};
#pragma unroll
    for (u32 block = 0; block < BLOCKS_32; ++block) {
        const u32(&low)[4] = page.keys[0].blocks[block].words, (&high)[4] = page.keys[1].blocks[block].words;
        const u32(&query)[4] = head.blocks[block].words;
        multiply_add(scores, LeftTile{{low[0], high[0], low[1], high[1]}}, query[0], query[1]);
        multiply_add(others, LeftTile{{low[2], high[2], low[3], high[3]}}, query[2], query[3]);
    }
    keys_done();
#pragma unroll
    for (u32 column = 0; column < 2; ++column) {
        const NearSight& sight = sights[column];
        float* mine = scores.values + column;
        const float* odd = others.values + column;
        float score[2];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            score[half] = (mine[2 * half] + odd[2 * half]) * a.scale;
            u32 position = first + group + 8 * half;
            if (masked && !(ONE ? position < all : sight.sees(position))) {
                score[half] = NEGATIVE_INFINITY;
            }
        }
        float largest = largest_of_groups(fmaxf(score[0], score[1]));
        float before = sums.largest[column];
        if constexpr (!FIRST) {
            largest = fmaxf(before, largest);
        }
        // Nothing seen yet: any finite number keeps the differences from being no numbers.
        float base = largest == NEGATIVE_INFINITY ? 0.0f : largest;
        sums.largest[column] = largest;
        mine[0] = power(score[0] - base);
        mine[2] = power(score[1] - base);
        float sum = mine[0] + mine[2];
        if constexpr (FIRST) {
            sums.sum[column] = sum;
            continue;
        }
        float factor = power(before - base);
        sums.sum[column] = sums.sum[column] * factor + sum;
#pragma unroll
        for (u32 block = 0; block < BLOCKS_64; ++block) {
#pragma unroll
            for (u32 word = 0; word < 4; ++word) {
                sums.output[block][word].values[column] *= factor;
                sums.output[block][word].values[column + 2] *= factor;
            }
        }
    }
    u32 weights[2] = {
        transpose(to_pair(scores.values[0], scores.values[1])), transpose(to_pair(scores.values[2], scores.values[3]))};
#pragma unroll
    for (u32 block = 0; block < BLOCKS_64; ++block) {
#pragma unroll
        for (u32 word = 0; word < 4; ++word) {
            u32 values[4];
#pragma unroll
            for (u32 which = 0; which < 4; ++which) {
                values[which] = page.values[which][block].words[word];
            }
            // The same dimension of two neighbouring positions in one word.
            LeftTile turned = {
                {__byte_perm(values[0], values[1], 0x5410), __byte_perm(values[0], values[1], 0x7632),
                 __byte_perm(values[2], values[3], 0x5410), __byte_perm(values[2], values[3], 0x7632)}};
            multiply_add(sums.output[block][word], turned, weights[0], weights[1]);
        }
    }
}

#endif
