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

    // Tile `index` of the step, whose segments are cut into tiles of `each` rows; `one`: each segment has one row.
    __device__ __forceinline__ NearTile(const AttentionArguments& a, u32 index, u32 each, bool one = false) {
        if (one) {
            // Asked for together with the number of segments, which one of them depends on; the step's memory goes on behind
            // them.
            const Vector16* from = reinterpret_cast<const Vector16*>(a.segments + index);
            Vector16 low = from[0], high = from[1];
            segment = {low.words[0], low.words[1], low.words[2], low.words[3], high.words[0], high.words[1], high.words[2], high.words[3]};
            there = (index < a.counts->segments) & (segment.rows > 0);
            first_row = 0;
            rows = 1;
            return;
        }
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

// Who takes a tile: a cluster of BLOCKS blocks of WARPS warps.
template <u32 BLOCKS_, u32 WARPS_>
struct Team {
    static constexpr u32 BLOCKS = BLOCKS_, WARPS = WARPS_, THREADS = WARPS_ * WARP;
    // As many pages are worked on at once.
    static constexpr u32 PARTS = BLOCKS * WARPS;
    // Dimensions that a block of the cluster puts together.
    static constexpr u32 OWN = HEAD / BLOCKS;
};

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The pages of a segment that a warp of the team takes, from the last on: new rows are in no other.
template <typename TEAM>
struct NearPages {
    // Where the team is large a warp has a page, seldom two; else each lane keeps where one of them is, so that none is waited for.
    static constexpr bool LISTED = TEAM::PARTS < 32;

    const AttentionArguments& a;
    const StepSegment& segment;
    u32 cached;
    // How many are left, and where they are in the cache, in pages of a head: of each lane one of them, or the one at hand and
    // the next.
    u32 left, places, next;
    // The one at hand.
    u32 page;

    __device__ __forceinline__ NearPages(const AttentionArguments& arguments, const StepSegment& of, u32 head)
        : a(arguments), segment(of), cached(head) {
        u32 part = rank_in_cluster() * TEAM::WARPS + threadIdx.x / WARP;
        u32 all = ceiling_divide(segment.start + segment.rows, PAGE);
        left = part < all ? (all - 1 - part) / TEAM::PARTS + 1 : 0;
        page = part + (busy() ? left - 1 : 0) * TEAM::PARTS;
        u32 first = LISTED ? part + threadIdx.x % WARP * TEAM::PARTS : page;
        places = first < all ? place(first) : 0;
        next = !LISTED && left > 1 ? place(page - TEAM::PARTS) : 0;
    }

    __device__ __forceinline__ u32 place(u32 of) const {
        return a.pages[segment.first_page + of] * a.cached_heads + cached;
    }

    __device__ __forceinline__ bool busy() const {
        return left > 0;
    }

    // Elements in front of the page at hand in the cache.
    __device__ __forceinline__ u64 at() const {
        u32 here = LISTED ? __shfl_sync(ALL_LANES, places, left - 1) : places;
        return static_cast<u64>(here) * PAGE * HEAD;
    }

    // Goes on to the page before; false where there is none.
    __device__ __forceinline__ bool advance() {
        if (left <= 1) {
            return false;
        }
        --left;
        page -= TEAM::PARTS;
        if (!LISTED) {
            places = next;
            next = left > 1 ? place(page - TEAM::PARTS) : 0;
        }
        return true;
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
    __device__ __forceinline__ void load_keys(const bf16* page_keys, u32 stored) {
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            keys[which].load(page_keys + key_place(which) * HEAD, key_place(which) < stored);
        }
    }

    __device__ __forceinline__ void load_values(const bf16* page_values, u32 stored) {
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

    __device__ __forceinline__ void load_key(const NearFresh& fresh) {
        key.load(fresh.source(fresh.tile.segment.start, fresh.a.key_offset), true);
    }

    static __device__ __forceinline__ void load_value(NearPage& page, const NearFresh& fresh) {
        u32 position = fresh.tile.segment.start;
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
