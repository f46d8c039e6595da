// One warp's part of attention: up to 16 pairs of (row, query head) that read the same cached head, against pages of 16
// positions, with an online softmax (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023).
//
// Pages come to shared memory by asynchronous copies, some ahead of the one that is worked on, and from there to registers
// in the shape that the tensor cores read. See matrix.cuh for who holds what.
#pragma once

#include "matrix.cuh"
#include "step.cuh"

// The head dimension, rounded up to 16: a parameter of the compilation.
constexpr u32 HEAD = ARCHWAY_HEAD;
static_assert(HEAD % 16 == 0, "the cache pads heads to 16");

// Whether there is attention of its own for short contexts, see near.cuh and rows.cuh.
#define ARCHWAY_ATTENDS_NEAR (ARCHWAY_HAS_CLUSTERS && ARCHWAY_HAS_TMA && ARCHWAY_HEAD % 64 == 0 && ARCHWAY_HEAD <= 128)

// Pairs of a warp, and 32-bit words of values in a lane's share of a position.
constexpr u32 PAIRS = 16;
constexpr u32 VALUE_WORDS = HEAD / 16;

struct AttentionArguments {
    const StepCounts* counts;
    const StepSegment* segments;
    const AttentionItem* items;
    const u32* pages;
    const u64* mask;
    const bf16* source;
    // Of the layer: `[page][cached head][PAGE][HEAD]`.
    bf16* keys;
    bf16* values;
    // `[rows, query_heads * width]`
    bf16* output;
    // `[place][bundle][PAIRS][HEAD + 2]`: sums, largest score, sum of weights.
    float* workspace;
    // `[place][bundle]`, zero between launches.
    u32* arrivals;
    // Where attention rotates and appends the step's own rows: their positions, angles `[positions, pairs]`, and the
    // norms of heads or null. `cosines` is null where another kernel has done it.
    const u32* positions;
    const float* cosines;
    const float* sines;
    const float* query_norm;
    const float* key_norm;
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
    u32 pairs;
    // Pairs are (2i, 2i+1) instead of (i, i + pairs).
    u32 interleaved;
    // Of the norms of heads.
    float epsilon;
    // Columns of a row where its keys and values begin, head by head.
    u32 key_offset;
    u32 value_offset;
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

// So many of a page's bits.
__device__ __forceinline__ u32 lowest_bits(u32 count) {
    return count < PAGE ? (1u << count) - 1 : (1u << PAGE) - 1;
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

    // Which of the 16 positions from `first` on pair `which` sees: a bit each.
    __device__ __forceinline__ u32 seen(u32 which, u32 first) const {
        u32 below = limit[which] > first ? lowest_bits(limit[which] - first) : 0;
        if (words[which] == nullptr || first + PAGE <= committed) {
            return below;
        }
        u32 before = committed > first ? committed - first : 0, bit = first + before - committed;
        u32 left = bits > bit ? bits - bit : 0;
        if (left == 0) {
            return below & lowest_bits(before);
        }
        u64 mask = words[which][bit / 64] >> (bit % 64);
        if (bit % 64 > 64 - PAGE && left > 64 - bit % 64) {
            mask |= words[which][bit / 64 + 1] << (64 - bit % 64);
        }
        return below & (lowest_bits(before) | (static_cast<u32>(mask) & lowest_bits(left)) << before);
    }

    // Those of both pairs, of the second one in the upper half.
    __device__ __forceinline__ u32 seen(u32 first) const {
        return seen(0, first) | seen(1, first) << PAGE;
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

// Sixteen bytes of a row, and how many there are.
constexpr u32 CHUNK = 8;
constexpr u32 CHUNKS = HEAD / CHUNK;
// Elements of a page's keys; as many values follow them.
constexpr u32 PAGE_ELEMENTS = PAGE * HEAD;

// Where element `dimension` of a row lies in the row of a page in shared memory. Chunks change places by row, so that
// what a quarter of a warp reads together lies in different banks, keys (two rows, four chunks) as well as values (four
// rows, two chunks).
__device__ __forceinline__ u32 swizzled(u32 row, u32 dimension) {
    if constexpr (CHUNKS % 8 == 0) {
        u32 by = (row / 2 % 4 * 2) ^ (row % 2 * 4);
        return dimension ^ by * CHUNK;
    } else {
        return dimension;
    }
}

__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
    u32 address = static_cast<u32>(__cvta_generic_to_shared(to)), bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `LEFT` groups of this thread's copies are under way.
template <u32 LEFT>
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Threads that share a ring of pages: a warp, or the block.
template <u32 THREADS>
__device__ __forceinline__ void meet() {
    if constexpr (THREADS == WARP) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// Orders a page's keys and values. Rows from `stored` up to `written` are written by the warp itself. Values at and after
// `written` become zero: what lies there may be no number.
template <u32 THREADS>
__device__ __forceinline__ void order_page(bf16* to, const bf16* keys, const bf16* values, u32 stored, u32 written) {
#pragma unroll
    for (u32 i = 0; i < ceiling_divide(PAGE * CHUNKS, THREADS); ++i) {
        u32 index = i * THREADS + threadIdx.x % THREADS;
        if (PAGE * CHUNKS % THREADS != 0 && index >= PAGE * CHUNKS) {
            break;
        }
        u32 row = index / CHUNKS, dimension = index % CHUNKS * CHUNK, place = row * HEAD + swizzled(row, dimension);
        if (row >= stored && row < written) {
            continue;
        }
        copy_async(to + place, keys + row * HEAD + dimension, true);
        copy_async(to + PAGE_ELEMENTS + place, values + row * HEAD + dimension, row < written);
    }
}

template <typename Word>
__device__ __forceinline__ Word read_shared(const bf16* page, u32 row, u32 dimension) {
    // A word lies within a chunk.
    u32 within = dimension % CHUNK;
    return *reinterpret_cast<const Word*>(page + row * HEAD + swizzled(row, dimension - within) + within);
}

// Values of a page: word `word` of this lane's share of position `position`, see `dimension_of`.
template <u32 WORDS>
__device__ __forceinline__ void read_values(u32 (&words)[WORDS], const bf16* page, u32 position, u32 dimension) {
    if constexpr (WORDS == 4) {
        Vector16 vector = read_shared<Vector16>(page, position, dimension);
        words[0] = vector.words[0], words[1] = vector.words[1], words[2] = vector.words[2], words[3] = vector.words[3];
    } else if constexpr (WORDS == 2) {
        Vector8 vector = read_shared<Vector8>(page, position, dimension);
        words[0] = vector.words[0], words[1] = vector.words[1];
    } else {
        words[0] = read_shared<u32>(page, position, dimension);
    }
}

// Products of queries with a page's keys are added: `scores[half]` are positions 8 * half + 2t and the next.
__device__ __forceinline__ void multiply_keys(Sums (&scores)[2], const LeftTile (&query)[HEAD / 16], const bf16* keys) {
    u32 group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
#pragma unroll
    for (u32 block = 0; block < HEAD / 32; ++block) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            Vector16 vector = read_shared<Vector16>(keys, 8 * half + group, 32 * block + 8 * place);
            multiply_add(scores[half], query[2 * block], vector.words[0], vector.words[1]);
            multiply_add(scores[half], query[2 * block + 1], vector.words[2], vector.words[3]);
        }
    }
    if constexpr (HEAD % 32 != 0) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            Vector8 vector = read_shared<Vector8>(keys, 8 * half + group, HEAD / 32 * 32 + 4 * place);
            multiply_add(scores[half], query[HEAD / 16 - 1], vector.words[0], vector.words[1]);
        }
    }
}

// Scores of positions that a pair does not see, see Sight::seen, become those of no weight.
__device__ __forceinline__ void hide(Sums (&scores)[2], u32 seen) {
    u32 mine = seen >> (2 * (threadIdx.x % 4));
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            bool sees = (mine >> (i / 2 * PAGE + 8 * half + i % 2) & 1) != 0;
            scores[half].values[i] = sees ? scores[half].values[i] : NEGATIVE_INFINITY;
        }
    }
}

// Scores of the page whose first position is `first`, masked and times the scale.
__device__ __forceinline__ void score(
    Sums (&scores)[2], const WarpTile& tile, const bf16* keys, const Sight& sight, u32 first, float scale) {
    scores[0] = scores[1] = Sums{};
    multiply_keys(scores, tile.query, keys);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        scores[i / 4].values[i % 4] *= scale;
    }
    if (first + PAGE > sight.all) {
        hide(scores, sight.seen(first));
    }
}

// The part of a page's values in WORDS words from word FIRST on, whose columns are `WORDS * 2` dimensions apart.
template <u32 FIRST, u32 WORDS>
__device__ __forceinline__ void take_words(
    WarpTile& tile, const LeftTile& weights, const float (&factor)[2], const bf16* values) {
    u32 group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
    u32 words[4][WORDS];
#pragma unroll
    for (u32 which = 0; which < 4; ++which) {
        u32 position = 2 * place + which % 2 + which / 2 * 8;
        read_values(words[which], values, position, dimension_of(FIRST, group));
    }
#pragma unroll
    for (u32 word = 0; word < WORDS; ++word) {
#pragma unroll
        for (u32 odd = 0; odd < 2; ++odd) {
            Sums& sums = tile.output[2 * (FIRST + word) + odd];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                sums.values[i] *= factor[i / 2];
            }
            // The same dimension of two neighbouring positions in one word.
            u32 selector = odd ? 0x7632u : 0x5410u;
            u32 low = __byte_perm(words[0][word], words[1][word], selector);
            u32 high = __byte_perm(words[2][word], words[3][word], selector);
            multiply_add(sums, weights, low, high);
        }
    }
}

template <u32 BLOCK>
__device__ __forceinline__ void take_blocks(
    WarpTile& tile, const LeftTile& weights, const float (&factor)[2], const bf16* values) {
    if constexpr (BLOCK < HEAD / 64) {
        take_words<4 * BLOCK, 4>(tile, weights, factor, values);
        take_blocks<BLOCK + 1>(tile, weights, factor, values);
    }
}

// Turns scores into weights, and takes the page's values in.
__device__ __forceinline__ void take_in(WarpTile& tile, Sums (&scores)[2], const bf16* values) {
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
    constexpr u32 WHOLE = HEAD / 64 * 4, REST = HEAD % 64;
    take_blocks<0>(tile, weights, factor, values);
    if constexpr (REST >= 32) {
        take_words<WHOLE, 2>(tile, weights, factor, values);
    }
    if constexpr (REST % 32 != 0) {
        take_words<WHOLE + REST / 32 * 2, 1>(tile, weights, factor, values);
    }
}

// The sequence's pages `from, from + step, …` below `to`. THREADS threads bring them to a ring of STAGES pages of their
// own; FRESH writes what the cache does not have yet.
template <u32 THREADS, u32 STAGES, typename FRESH>
struct Walk {
    const AttentionArguments& a;
    const Sight& sight;
    const FRESH& fresh;
    const u32* pages;
    u32 cached;
    u32 from, to, step;
    bf16* ring;
    u32 next, next_page, order;

    // Page `from` of the sequence is page `first_page` of the cache.
    __device__ __forceinline__ void begin(u32 first_page) {
        next = from, next_page = first_page, order = 0;
#pragma unroll
        for (u32 stage = 0; stage + 1 < STAGES; ++stage) {
            order_next();
        }
    }

    __device__ __forceinline__ void order_next() {
        if (next < to) {
            u64 place = (static_cast<u64>(next_page) * a.cached_heads + cached) * PAGE_ELEMENTS;
            bf16* room = ring + order * 2 * PAGE_ELEMENTS;
            u32 first = next * PAGE, written = sight.written > first ? sight.written - first : 0;
            u32 stored = fresh.stored() > first ? fresh.stored() - first : 0;
            order_page<THREADS>(room, a.keys + place, a.values + place, stored, written);
            if (stored < PAGE && written > stored) {
                fresh.write(room, next, place);
            }
            next += step;
            next_page = next < to ? pages[next] : 0;
            order = order + 1 == STAGES ? 0 : order + 1;
        }
        // An empty group where there is no page: the count of groups stays the same.
        commit_copies();
    }

    // This warp takes pages below `mine` in.
    __device__ __forceinline__ void run(WarpTile& tile, u32 mine) {
        u32 taken = 0;
        for (u32 page = from; page < to; page += step) {
            await_copies<STAGES - 2>();
            meet<THREADS>();
            order_next();
            if (page < mine) {
                const bf16* keys = ring + taken * 2 * PAGE_ELEMENTS;
                Sums scores[2];
                score(scores, tile, keys, sight, page * PAGE, a.scale);
                take_in(tile, scores, keys + PAGE_ELEMENTS);
            }
            taken = taken + 1 == STAGES ? 0 : taken + 1;
        }
        await_copies<0>();
    }
};

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
