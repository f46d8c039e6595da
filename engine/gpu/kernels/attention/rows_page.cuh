// Pages in shared memory for attend_rows, see rows.cuh, and the step's own rows in them.
#pragma once

#include "rows_memory.cuh"

#if ARCHWAY_ATTENDS_NEAR

// Where eight values of a position lie in a page of a share: eight rows of one column are in different banks.
__device__ __forceinline__ u32 value_place(u32 row, u32 chunk) {
    return row * SHARE + (chunk ^ row % 8) * CHUNK;
}

// Which share of the values the cluster works on.
__device__ __forceinline__ u32 own_share() {
    return blockIdx.x / CLUSTER % SHARES;
}

// The pages of a block, from the sequence's end on. Making a page's new rows takes as long as two other pages, so that blocks
// that have one sit out while the others take two each; then all take turns, those with new rows last.
struct RowsPages {
    static constexpr u32 LIGHT = 2;
    // Of this block, and of the one that has most.
    u32 count;
    u32 most;
    // A lane's: number in the sequence, and in the cache.
    u32 number;
    u32 place;

    // `fresh` of `pages` pages have new rows.
    static __device__ __forceinline__ u32 count_of(u32 rank, u32 pages, u32 fresh) {
        u32 others = CLUSTER - fresh, first = fresh + LIGHT * others + CLUSTER - 1 - rank;
        u32 count = pages > first ? ceiling_divide(pages - first, CLUSTER) : 0;
#pragma unroll
        for (u32 turn = 0; turn < LIGHT; ++turn) {
            count += (turn == 0 || rank >= fresh) && rank + turn * others < pages ? 1 : 0;
        }
        return count;
    }

    // Pages behind page `index` of the block.
    static __device__ __forceinline__ u32 behind(u32 rank, u32 index, u32 fresh) {
        u32 others = CLUSTER - fresh, light = rank < fresh ? 1 : LIGHT;
        return index < light ? rank + index * others
                             : fresh + LIGHT * others + CLUSTER - 1 - rank + (index - light) * CLUSTER;
    }

    __device__ __forceinline__ RowsPages(const AttentionArguments& a, const StepSegment& segment) {
        u32 pages = ceiling_divide(segment.start + segment.rows, PAGE), fresh = pages - segment.start / PAGE;
        u32 rank = rank_in_cluster(), lane = threadIdx.x % WARP;
        count = count_of(rank, pages, fresh);
        most = count_of(CLUSTER - 1, pages, fresh);
        number = lane < count ? pages - 1 - behind(rank, lane, fresh) : 0;
        place = lane < count ? a.pages[segment.first_page + number] : 0;
    }

    // First element of the block's head in page `index`; for whole warps.
    __device__ __forceinline__ u64 element(const AttentionArguments& a, u32 index) const {
        u64 page = __shfl_sync(ALL_LANES, place, index);
        return (page * a.cached_heads + blockIdx.y / a.bundles_per_head) * PAGE_ELEMENTS;
    }

    // Orders what the cache holds of a page. Values behind the sequence's end become zero: what lies there may be no number.
    __device__ __forceinline__ void order(
        const AttentionArguments& a, RowsMemory& memory, const StepSegment& segment, u32 index, u32 slot) const {
        u32 begin = __shfl_sync(ALL_LANES, number, index) * PAGE, written = segment.start + segment.rows - begin;
        u32 stored = segment.start > begin ? segment.start - begin : 0;
        bf16 *keys = memory.keys[slot], *values = memory.values[slot];
        u64 at = element(a, index);
#pragma unroll
        for (u32 chunk = threadIdx.x; chunk < PAGE * CHUNKS; chunk += ROWS_THREADS) {
            u32 row = chunk / CHUNKS, dimension = chunk % CHUNKS * CHUNK;
            if (row < stored) {
                copy_async(keys + row * HEAD + swizzled(row, dimension), a.keys + at + row * HEAD + dimension, true);
            }
        }
        u32 row = threadIdx.x / (SHARE / CHUNK), chunk = threadIdx.x % (SHARE / CHUNK);
        static_assert(ROWS_THREADS == PAGE * SHARE / CHUNK, "a thread a chunk");
        if (row < stored || row >= written) {
            const bf16* from = a.values + at + row * HEAD + own_share() * SHARE + chunk * CHUNK;
            copy_async(values + value_place(row, chunk), from, row < stored);
        }
    }

    // Pages of a turn.
    __device__ __forceinline__ u32 together() const {
        return most <= SLOTS ? SLOTS : FEW_SLOTS;
    }

    // Orders pages from page `first` on, as many as a turn has.
    __device__ __forceinline__ void order_all(
        const AttentionArguments& a, RowsMemory& memory, const StepSegment& segment, u32 first) const {
#pragma unroll 1
        for (u32 slot = 0; slot < together() && first + slot < count; ++slot) {
            order(a, memory, segment, first + slot, slot);
        }
        commit_copies();
    }

    // Whether not every pair of the cluster sees all of the block's first page. The backend sees to it that every pair sees
    // all of the others, seven pages before.
    __device__ __forceinline__ bool hides(u32 all) const {
        return count > 0 && (__shfl_sync(ALL_LANES, number, 0) + 1) * PAGE > all;
    }
};

// A thread's part of the new rows of the block's first page: sixteen dimensions of a key, eight values.
struct RowsFresh {
    // Eight threads a row; lanes t and t + 4 have other blocks of it.
    static constexpr u32 LANES = 8;
    static_assert(ROWS_THREADS / LANES == PAGE, "as many rows as a page");

    u32 row;
    // The same for the whole block: whether some row is there.
    bool any;
    bool there;
    // Rows of the tile are written to the cache.
    bool own;
    // Where the row's key and value begin in the source, and where those of the page do in the cache.
    u64 source;
    u64 cache;
    u32 position;
    Vector16 key[2];
    BlockAngles angles;

    __device__ __forceinline__ RowsFresh(const AttentionArguments& a, const RowsPages& pages, const NearTile& tile) {
        u32 begin = __shfl_sync(ALL_LANES, pages.number, 0) * PAGE, place = begin + threadIdx.x / LANES;
        row = place - tile.segment.start;
        any = pages.count > 0 && begin + PAGE > tile.segment.start;
        there = any && place >= tile.segment.start && row < tile.segment.rows;
        position = has_key() ? a.positions[tile.segment.first_row + row] : 0;
        own = blockIdx.y % a.bundles_per_head == 0 && row >= tile.first_row && row < tile.first_row + tile.rows;
        u64 of = tile.segment.first_row + row;
        source = there ? of * a.row + blockIdx.y / a.bundles_per_head * HEAD : 0;
        cache = pages.element(a, 0) + threadIdx.x / LANES * HEAD;
    }

    __device__ __forceinline__ void load_angles(const AttentionArguments& a) {
        u64 first = static_cast<u64>(position) * a.pairs;
        angles.load(a.cosines + first, a.sines + first, a.interleaved, has_key() ? threadIdx.x % LANES / 4 : 0);
    }

    __device__ __forceinline__ bool has_key() const {
        return there && threadIdx.x % LANES / 4 < BLOCKS_64;
    }

    // First dimension of the lane's blocks: pairs are within a block, or half a head apart.
    static __device__ __forceinline__ u32 column(const AttentionArguments& a, u32 which) {
        u32 half = threadIdx.x % LANES / 4, block = a.interleaved ? 2 * half + which : half + which * BLOCKS_64;
        return 32 * block + 8 * (threadIdx.x % 4);
    }

    // Values need nothing, and come to their place.
    __device__ __forceinline__ void load(const AttentionArguments& a, RowsMemory& memory) {
        const bf16* from = a.source + source;
        if (there) {
            const bf16* chunk = from + a.value_offset + own_share() * SHARE + threadIdx.x % LANES * CHUNK;
            copy_async(memory.values[0] + value_place(threadIdx.x / LANES, threadIdx.x % LANES), chunk, true);
        }
        commit_copies();
        key[0] = has_key() ? load16(from + a.key_offset + column(a, 0)) : Vector16{};
        key[1] = has_key() ? load16(from + a.key_offset + column(a, 1)) : Vector16{};
    }

    // Norm and rotation, rounded as by kernels of their own.
    __device__ __forceinline__ void make(const AttentionArguments& a, const float* norm) {
        if (a.key_norm != nullptr) {
            float squares = squares_of(key[0]) + squares_of(key[1]);
#pragma unroll
            for (u32 distance = 1; distance < LANES; distance *= 2) {
                squares += __shfl_xor_sync(ALL_LANES, squares, distance);
            }
            float factor = factor_of_norm(squares, a.epsilon);
            u32 safe = has_key() ? 1 : 0;
            normalise_block(key[0], factor, norm + safe * column(a, 0));
            normalise_block(key[1], factor, norm + safe * column(a, 1));
        }
        if (a.interleaved) {
            rotate_within(key[0], angles, 0);
            rotate_within(key[1], angles, 1);
        } else {
            rotate_apart(key[0], key[1], angles);
        }
    }

    // The key to the block's first page in shared memory, both to the cache.
    __device__ __forceinline__ void store(const AttentionArguments& a, RowsMemory& memory) const {
        u32 within = threadIdx.x / LANES, chunk = threadIdx.x % LANES;
        if (!there) {
            return;
        }
        if (own) {
            Vector16 value = load16(memory.values[0] + value_place(within, chunk));
            store16(a.values + cache + own_share() * SHARE + chunk * CHUNK, value);
        }
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            if (has_key()) {
                store16(memory.keys[0] + within * HEAD + swizzled(within, column(a, which)), key[which]);
                if (own && own_share() == 0) {
                    store16(a.keys + cache + column(a, which), key[which]);
                }
            }
        }
    }
};

#endif
