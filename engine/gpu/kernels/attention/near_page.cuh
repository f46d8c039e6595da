// A page in registers, and the step's own rows in it: for attend_near, see near.cuh.
#pragma once

#include "near_head.cuh"

#if ARCHWAY_ATTENDS_NEAR

// The tile of a cluster: rows `first_row..first_row + rows` of a segment.
struct NearTile {
    StepSegment segment;
    u32 first_row;
    u32 rows;
    bool there;

    // Tile `index` of the step, whose segments are cut into tiles of `each` rows.
    __device__ __forceinline__ NearTile(const AttentionArguments& a, u32 index, u32 each) {
        there = false;
        u32 segments = a.counts->segments;
        // Asked for together with their number.
        segment = a.segments[0];
        for (u32 at = 0; at < segments; ++at) {
            if (at > 0) {
                segment = a.segments[at];
            }
            u32 tiles = ceiling_divide(segment.rows, each);
            if (index < tiles) {
                first_row = index * each;
                rows = segment.rows - first_row < each ? segment.rows - first_row : each;
                there = true;
                return;
            }
            index -= tiles;
        }
    }
};

// A page in registers: keys of positions g and g + 8, values of positions 2t, 2t + 1, 2t + 8 and 2t + 9, of which a lane
// has dimensions 8g to 8g + 7 of every 64.
struct NearPage {
    NearHead keys[2];
    Vector16 values[4][BLOCKS_64];

    static __device__ __forceinline__ u32 key_place(u32 which) {
        return threadIdx.x % WARP / 4 + 8 * which;
    }

    static __device__ __forceinline__ u32 value_place(u32 which) {
        return 2 * (threadIdx.x % 4) + which % 2 + which / 2 * 8;
    }

    static __device__ __forceinline__ u32 value_column(u32 block) {
        return 64 * block + 8 * (threadIdx.x % WARP / 4);
    }

    // What the cache holds of the page: its first `stored` positions. The rest becomes zero.
    __device__ __forceinline__ void load(const bf16* page_keys, const bf16* page_values, u32 stored) {
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            keys[which].load(page_keys + key_place(which) * HEAD, key_place(which) < stored);
        }
#pragma unroll
        for (u32 which = 0; which < 4; ++which) {
#pragma unroll
            for (u32 block = 0; block < BLOCKS_64; ++block) {
                u32 place = value_place(which);
                values[which][block] =
                    place < stored ? load16(page_values + place * HEAD + value_column(block)) : Vector16{};
            }
        }
    }
};

// Brings a page near that there are no registers for yet: lines of 128 bytes.
__device__ __forceinline__ void prefetch_page(const AttentionArguments& a, u64 element) {
    for (u32 first = threadIdx.x % WARP * 64; first < PAGE * HEAD; first += WARP * 64) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.keys + element + first));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.values + element + first));
    }
}

// Rows of the step in a page, which the cache does not have yet.
struct NearFresh {
    const AttentionArguments& a;
    const NearTile& tile;
    u32 cached;
    // Whether this block writes to the cache what is new in its tile.
    bool writes;

    __device__ __forceinline__ bool is_new(u32 position) const {
        return position >= tile.segment.start && position < tile.segment.start + tile.segment.rows;
    }

    // Whether one of the eight positions from `first` on is: the same for a whole warp.
    __device__ __forceinline__ bool has_new(u32 first) const {
        return first + 8 > tile.segment.start && first < tile.segment.start + tile.segment.rows;
    }

    __device__ __forceinline__ const bf16* source(u32 position, u32 offset) const {
        u64 row = tile.segment.first_row + position - tile.segment.start;
        return a.source + row * a.row + offset + cached * HEAD;
    }

    __device__ __forceinline__ bool is_own(u32 position) const {
        u32 row = position - tile.segment.start;
        return writes && row >= tile.first_row && row < tile.first_row + tile.rows;
    }

    // Asks for the new rows of the page whose first position is `first`: raw keys, and values.
    __device__ __forceinline__ void load(NearPage& page, u32 first) const {
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            u32 position = first + NearPage::key_place(which);
            if (is_new(position)) {
                page.keys[which].load(source(position, a.key_offset), true);
            }
        }
#pragma unroll
        for (u32 which = 0; which < 4; ++which) {
            u32 position = first + NearPage::value_place(which);
#pragma unroll
            for (u32 block = 0; block < BLOCKS_64; ++block) {
                if (is_new(position)) {
                    page.values[which][block] = load16(source(position, a.value_offset) + NearPage::value_column(block));
                }
            }
        }
    }

    // Makes keys of what was loaded.
    __device__ __forceinline__ void make(NearPage& page, u32 first, const NearAngles& angles) const {
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            if (!has_new(first + 8 * which)) {
                continue;
            }
            u32 position = first + NearPage::key_place(which);
            // All four lanes of a group have the same position; the norm's exchange needs every lane of the warp.
            bool there = is_new(position);
            NearHead made = page.keys[which];
            made.make(a, RowAngles(a, angles, there ? position - tile.segment.start : 0), a.key_norm);
#pragma unroll
            for (u32 block = 0; block < BLOCKS_32; ++block) {
                if (there) {
                    page.keys[which].blocks[block] = made.blocks[block];
                }
            }
        }
    }

    // Writes what is new to the cache, where `element` is the page's first.
    __device__ __forceinline__ void store(const NearPage& page, u32 first, u64 element) const {
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            u32 place = NearPage::key_place(which), position = first + place;
            if (is_new(position) && is_own(position)) {
#pragma unroll
                for (u32 block = 0; block < BLOCKS_32; ++block) {
                    store16(a.keys + element + place * HEAD + 32 * block + 8 * (threadIdx.x % 4), page.keys[which].blocks[block]);
                }
            }
        }
#pragma unroll
        for (u32 which = 0; which < 4; ++which) {
            u32 place = NearPage::value_place(which), position = first + place;
            if (is_new(position) && is_own(position)) {
#pragma unroll
                for (u32 block = 0; block < BLOCKS_64; ++block) {
                    store16(a.values + element + place * HEAD + NearPage::value_column(block), page.values[which][block]);
                }
            }
        }
    }
};

// The same where a segment has one row: every group of four lanes makes its key.
struct NearRow {
    NearHead key;

    static __device__ __forceinline__ bool is_value(u32 which, u32 place) {
        return NearPage::value_place(which) == place;
    }

    __device__ __forceinline__ void load(NearPage& page, const NearFresh& fresh) {
        u32 position = fresh.tile.segment.start;
        key.load(fresh.source(position, fresh.a.key_offset), true);
        const bf16* value = fresh.source(position, fresh.a.value_offset);
#pragma unroll
        for (u32 which = 0; which < 4; ++which) {
#pragma unroll
            for (u32 block = 0; block < BLOCKS_64; ++block) {
                if (is_value(which, position % PAGE)) {
                    page.values[which][block] = load16(value + NearPage::value_column(block));
                }
            }
        }
    }

    __device__ __forceinline__ void add(NearPage& page, const NearFresh& fresh, u64 element) const {
        const AttentionArguments& a = fresh.a;
        u32 place = fresh.tile.segment.start % PAGE, column = 8 * (threadIdx.x % 4);
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            if (NearPage::key_place(which) != place) {
                continue;
            }
            page.keys[which] = key;
#pragma unroll
            for (u32 block = 0; fresh.writes && block < BLOCKS_32; ++block) {
                store16(a.keys + element + place * HEAD + 32 * block + column, key.blocks[block]);
            }
        }
#pragma unroll
        for (u32 which = 0; which < 4; ++which) {
#pragma unroll
            for (u32 block = 0; fresh.writes && block < BLOCKS_64; ++block) {
                if (is_value(which, place)) {
                    store16(a.values + element + place * HEAD + NearPage::value_column(block), page.values[which][block]);
                }
            }
        }
    }
};

#endif
