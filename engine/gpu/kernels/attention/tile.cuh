// One warp's part of attention: up to 16 pairs of (row, query head) that read the same cached head, against pages of 16
// positions, with an online softmax (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023).
//
// Keys and values go from device memory to registers in the shape that the tensor cores read; nothing passes through
// shared memory. See matrix.cuh for who holds what.
#pragma once

#include "matrix.cuh"
#include "step.cuh"

// The head dimension, rounded up to 16: a parameter of the compilation.
constexpr u32 HEAD = ARCHWAY_HEAD;
static_assert(HEAD % 16 == 0, "the cache pads heads to 16");

// Pairs of a warp, and pairs of a 32-bit word's two elements in each lane's share of a position.
constexpr u32 PAIRS = 16;
constexpr u32 KEY_WORDS = HEAD / 8;
constexpr u32 VALUE_WORDS = HEAD / 16;

struct AttentionArguments {
    const StepCounts* counts;
    const StepSegment* segments;
    const AttentionItem* items;
    const u32* pages;
    const u64* mask;
    const bf16* source;
    // Of the layer: `[page][cached head][PAGE][HEAD]`.
    const bf16* keys;
    const bf16* values;
    // `[rows, query_heads * width]`
    bf16* output;
    // `[place][bundle][PAIRS][HEAD + 2]`: sums, largest score, sum of weights.
    float* workspace;
    // `[place][bundle]`, zero between launches.
    u32* arrivals;
    u32 row;
    u32 query_offset;
    u32 query_stride;
    // Columns of a head.
    u32 width;
    u32 query_heads;
    u32 cached_heads;
    u32 group;
    u32 group_offset;
    // Bundles of up to 16 query heads that one cached head serves.
    u32 bundles_per_head;
    // Factor of the scores, times log2(e).
    float scale;
};

// Query heads `first..first + count` read cached head `cached`.
struct Bundle {
    u32 cached, first, count;

    __device__ __forceinline__ Bundle(const AttentionArguments& a, u32 index) {
        cached = index / a.bundles_per_head;
        u32 begin = cached * a.group > a.group_offset ? cached * a.group - a.group_offset : 0;
        u32 end = (cached + 1) * a.group - a.group_offset;
        end = end < a.query_heads ? end : a.query_heads;
        first = begin + index % a.bundles_per_head * PAIRS;
        count = first >= end ? 0 : end - first < PAIRS ? end - first : PAIRS;
    }
};

// First of the two neighbouring dimensions that word `word` of a position's values has in column `column`.
__device__ __forceinline__ constexpr u32 dimension_of(u32 word, u32 column) {
    constexpr u32 WHOLE = HEAD / 64, REST = HEAD % 64;
    if (word < 4 * WHOLE) {
        return word / 4 * 64 + 8 * column + 2 * (word % 4);
    }
    u32 rest = word - 4 * WHOLE;
    if (REST >= 32 && rest < 2) {
        return WHOLE * 64 + 4 * column + 2 * rest;
    }
    return WHOLE * 64 + (REST >= 32 ? 32 : 0) + 2 * column;
}

// What the two pairs of a lane see.
struct Sight {
    // Positions below `limit` are seen; with a tree those below `committed`, and above it those whose bit is set.
    u32 limit[2];
    const u64* words[2];
    u32 committed;
    u32 bits;
    // Both pairs see every position below this.
    u32 all;
    // Nothing was written from here on.
    u32 written;

    __device__ __forceinline__ bool sees(u32 which, u32 position) const {
        if (position >= limit[which]) {
            return false;
        }
        if (words[which] == nullptr || position < committed) {
            return true;
        }
        u32 bit = position - committed;
        return bit < bits && (words[which][bit / 64] >> (bit % 64) & 1) != 0;
    }
};

struct WarpTile {
    LeftTile query[HEAD / 16];
    Sums output[HEAD / 8];
    float largest[2];
    float sum[2];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (u32 i = 0; i < HEAD / 8; ++i) {
            output[i] = Sums{};
        }
        largest[0] = largest[1] = NEGATIVE_INFINITY;
        sum[0] = sum[1] = 0.0f;
    }
};

__device__ __forceinline__ u32 query_pair(const bf16* from, u32 dimension, u32 width, bool aligned) {
    if (aligned) {
        return dimension < width ? *reinterpret_cast<const u32*>(from + dimension) : 0;
    }
    u32 low = dimension < width ? from[dimension].bits : 0, high = dimension + 1 < width ? from[dimension + 1].bits : 0;
    return low | high << 16;
}

// `from` are the queries of the lane's two pairs; null for none.
__device__ __forceinline__ void load_queries(WarpTile& tile, const bf16* const (&from)[2], u32 width, bool aligned) {
    u32 place = threadIdx.x % 4;
#pragma unroll
    for (u32 step = 0; step < HEAD / 16; ++step) {
        constexpr u32 WHOLE = HEAD / 32;
        // Two steps share 32 dimensions; the last 16 of an odd number of steps are a step of their own.
        bool whole = step < 2 * WHOLE;
        u32 first = whole ? step / 2 * 32 + 8 * place + step % 2 * 4 : WHOLE * 32 + 4 * place;
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            tile.query[step].pairs[which] = from[which] ? query_pair(from[which], first, width, aligned) : 0;
            tile.query[step].pairs[which + 2] = from[which] ? query_pair(from[which], first + 2, width, aligned) : 0;
        }
    }
}

// Keys of a page: this lane's share of positions `g` and `g + 8`.
__device__ __forceinline__ void load_keys(u32 (&keys)[2][KEY_WORDS], const bf16* page) {
    u32 group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        const bf16* from = page + (8 * half + group) * HEAD;
#pragma unroll
        for (u32 block = 0; block < HEAD / 32; ++block) {
            Vector16 vector = load16(from + 32 * block + 8 * place);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                keys[half][4 * block + i] = vector.words[i];
            }
        }
        if constexpr (HEAD % 32 != 0) {
            Vector8 vector = *reinterpret_cast<const Vector8*>(from + HEAD / 32 * 32 + 4 * place);
            keys[half][HEAD / 32 * 4] = vector.words[0];
            keys[half][HEAD / 32 * 4 + 1] = vector.words[1];
        }
    }
}

// Values of a page: this lane's share of positions 2t, 2t + 1, 2t + 8, 2t + 9. Positions at and after `written` count
// as zero: what lies there may be no number.
__device__ __forceinline__ void load_values(u32 (&values)[4][VALUE_WORDS], const bf16* page, u32 written) {
    u32 group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
#pragma unroll
    for (u32 which = 0; which < 4; ++which) {
        u32 position = 2 * place + which % 2 + which / 2 * 8;
        const bf16* from = page + position * HEAD;
        bool valid = position < written;
#pragma unroll
        for (u32 block = 0; block < HEAD / 64; ++block) {
            Vector16 vector = {};
            if (valid) {
                vector = load16(from + 64 * block + 8 * group);
            }
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                values[which][4 * block + i] = vector.words[i];
            }
        }
        constexpr u32 REST = HEAD % 64, BASE = HEAD / 64 * 64, WORD = HEAD / 64 * 4;
        if constexpr (REST >= 32) {
            Vector8 vector = {};
            if (valid) {
                vector = *reinterpret_cast<const Vector8*>(from + BASE + 4 * group);
            }
            values[which][WORD] = vector.words[0];
            values[which][WORD + 1] = vector.words[1];
        }
        if constexpr (REST % 32 != 0) {
            constexpr u32 SKIP = REST >= 32 ? 32 : 0;
            values[which][WORD + SKIP / 16] =
                valid ? *reinterpret_cast<const u32*>(from + BASE + SKIP + 2 * group) : 0;
        }
    }
}

// Scores of the page, masked and times the scale: `weights[half]` are positions 8 * half + 2t and the next.
__device__ __forceinline__ void score(
    Sums (&scores)[2], const WarpTile& tile, const u32 (&keys)[2][KEY_WORDS], const Sight& sight, u32 first, float scale) {
    scores[0] = scores[1] = Sums{};
#pragma unroll
    for (u32 step = 0; step < HEAD / 16; ++step) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            multiply_add(scores[half], tile.query[step], keys[half][2 * step], keys[half][2 * step + 1]);
        }
    }
    bool masked = first + PAGE > sight.all;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            u32 position = first + 8 * half + 2 * (threadIdx.x % 4) + i % 2;
            bool seen = !masked || sight.sees(i / 2, position);
            scores[half].values[i] = seen ? scores[half].values[i] * scale : NEGATIVE_INFINITY;
        }
    }
}

// Turns scores into weights, and takes the page's values in.
__device__ __forceinline__ void take_in(WarpTile& tile, Sums (&scores)[2], const u32 (&values)[4][VALUE_WORDS]) {
    float factor[2];
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        float largest = tile.largest[which];
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            largest = fmaxf(largest, fmaxf(scores[half].values[2 * which], scores[half].values[2 * which + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
        // Nothing seen yet: any finite number keeps the differences from being no numbers.
        float base = largest == NEGATIVE_INFINITY ? 0.0f : largest;
        factor[which] = exp2f(tile.largest[which] - base);
        tile.largest[which] = largest;
        float sum = 0.0f;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                float weight = exp2f(scores[half].values[2 * which + i] - base);
                scores[half].values[2 * which + i] = weight;
                sum += weight;
            }
        }
        // The four lanes of a group add their shares up at the end.
        tile.sum[which] = tile.sum[which] * factor[which] + sum;
    }
    LeftTile weights;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        weights.pairs[2 * half] = to_pair(scores[half].values[0], scores[half].values[1]);
        weights.pairs[2 * half + 1] = to_pair(scores[half].values[2], scores[half].values[3]);
    }
#pragma unroll
    for (u32 word = 0; word < VALUE_WORDS; ++word) {
#pragma unroll
        for (u32 odd = 0; odd < 2; ++odd) {
            Sums& sums = tile.output[2 * word + odd];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                sums.values[i] *= factor[i / 2];
            }
            // The same dimension of two neighbouring positions in one word.
            u32 selector = odd ? 0x7632u : 0x5410u;
            u32 low = __byte_perm(values[0][word], values[1][word], selector);
            u32 high = __byte_perm(values[2][word], values[3][word], selector);
            multiply_add(sums, weights, low, high);
        }
    }
}

// The sequence's pages `from, from + step, …` below `to`.
__device__ __forceinline__ void walk(
    WarpTile& tile, const AttentionArguments& a, const Sight& sight, const u32* pages, u32 cached, u32 from, u32 to,
    u32 step) {
    if (from >= to) {
        return;
    }
    u64 stride = static_cast<u64>(a.cached_heads) * PAGE * HEAD, head = static_cast<u64>(cached) * PAGE * HEAD;
    u32 keys[2][KEY_WORDS], values[4][VALUE_WORDS];
    u64 place = pages[from] * stride + head;
    load_keys(keys, a.keys + place);
    load_values(values, a.values + place, sight.written - from * PAGE);
    for (u32 page = from; page < to; page += step) {
        u32 next = page + step < to ? page + step : page;
        u64 next_place = pages[next] * stride + head;
        Sums scores[2];
        score(scores, tile, keys, sight, page * PAGE, a.scale);
        if (page + step < to) {
            load_keys(keys, a.keys + next_place);
        }
        take_in(tile, scores, values);
        if (page + step < to) {
            load_values(values, a.values + next_place, sight.written > next * PAGE ? sight.written - next * PAGE : 0);
        }
    }
}

// Sums of weights over the four lanes of a group.
__device__ __forceinline__ void finish_sums(WarpTile& tile) {
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        tile.sum[which] += __shfl_xor_sync(ALL_LANES, tile.sum[which], 1);
        tile.sum[which] += __shfl_xor_sync(ALL_LANES, tile.sum[which], 2);
    }
}

__device__ __forceinline__ void store_output(bf16* head, u32 dimension, u32 width, float low, float high) {
    if (width % 2 == 0) {
        if (dimension < width) {
            *reinterpret_cast<u32*>(head + dimension) = to_pair(low, high);
        }
        return;
    }
    if (dimension < width) {
        head[dimension] = to_bf16(low);
    }
    if (dimension + 1 < width) {
        head[dimension + 1] = to_bf16(high);
    }
}
