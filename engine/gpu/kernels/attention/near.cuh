// Attention of few rows over short contexts, where every microsecond is waiting: a cluster of eight blocks takes a tile of
// pairs, each of its warps a page at a time in registers; a block puts the parts of its warps together and sends them to the
// shared memory of the blocks that finish them, each its dimensions. Nothing but registers holds a page, so that blocks fit
// beside those of the product in front and have the pages of earlier steps at hand before it has ended.
//
// The roles of attend_split are turned round: positions and dimensions are rows of the tensor cores' tiles, pairs of (row,
// query head) their columns, so that few pairs take few registers.
#pragma once

#include "near_room.cuh"

#if ARCHWAY_HAS_CLUSTERS && ARCHWAY_HEAD % 64 == 0 && ARCHWAY_HEAD <= 128

// ONE: every segment has one row.
template <u32 TILES, bool ONE>
__device__ __forceinline__ void attend_near(const AttentionArguments& a, float* shared) {
    let_next_start();
    Bundle bundle(a, blockIdx.y);
    u32 each = 8 * TILES / a.group, warp = threadIdx.x / WARP, group = threadIdx.x % WARP / 4;
    // The step's arrays were written before the first kernel.
    NearTile tile(a, blockIdx.x / CLUSTER, each);
    if (!tile.there || bundle.count == 0) {
        // A block without work makes room at once; one of the grid waits, so that the grid does.
        if (blockIdx.x + blockIdx.y == 0) {
            wait_for_previous();
        }
        return;
    }
    const StepSegment& segment = tile.segment;
    NearAngles angles = {shared};
    // Nobody writes to a block's shared memory before it has started, and has used what it put there itself.
    if constexpr (ONE) {
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    } else {
        angles.order(a, segment);
    }
    u32 part = rank_in_cluster() * NEAR_WARPS + warp, pages = ceiling_divide(segment.start + segment.rows, PAGE);
    auto element = [&](u32 page) {
        return (static_cast<u64>(a.pages[segment.first_page + page]) * a.cached_heads + bundle.cached) * PAGE * HEAD;
    };
    auto stored = [&](u32 page) { return segment.start > page * PAGE ? segment.start - page * PAGE : 0; };
    // A warp takes its last page first: new rows are in no other.
    u32 last = part < pages ? part + (pages - 1 - part) / NEAR_PARTS * NEAR_PARTS : part;
    bool busy = part < pages, more = busy && last >= NEAR_PARTS;
    NearPage current;
    u64 at = busy ? element(last) : 0, next = more ? element(last - NEAR_PARTS) : 0;
    if (busy) {
        current.load(a.keys + at, a.values + at, stored(last));
    }
    if (more) {
        prefetch_page(a, next);
    }
    bool valid[TILES];
    u32 rows[TILES], heads[TILES];
#pragma unroll
    for (u32 i = 0; i < TILES; ++i) {
        u32 index = 8 * i + group;
        valid[i] = index < tile.rows * bundle.count;
        rows[i] = segment.first_row + tile.first_row + (valid[i] ? index / bundle.count : 0);
        heads[i] = bundle.first + (valid[i] ? index % bundle.count : 0);
    }
    NearSight sights[TILES][2];
#pragma unroll
    for (u32 i = 0; i < 2 * TILES; ++i) {
        sights[i / 2][i % 2].look(a, tile, bundle.count, i / 2 * 8 + 2 * (threadIdx.x % 4) + i % 2);
    }
    // Every pair sees every position below this.
    u32 all = segment.committed != NONE ? segment.committed : segment.start + tile.first_row + 1;
    NearFresh fresh = {a, tile, bundle.cached, blockIdx.y % a.bundles_per_head == 0};
    u32 first_new = segment.start / PAGE;
    bool has_new = busy && last >= first_new;
    NearHead queries[TILES];
    auto load_queries = [&] {
#pragma unroll
        for (u32 i = 0; i < TILES; ++i) {
            u64 row = static_cast<u64>(rows[i]) * a.row;
            queries[i].load(a.source + row + a.query_offset + heads[i] * a.query_stride, valid[i]);
        }
    };
    if constexpr (ONE) {
        HeldAngles held(a, segment.first_row);
        wait_for_previous();
        load_queries();
        NearRow row;
        if (has_new) {
            row.load(current, fresh);
        }
#pragma unroll
        for (u32 i = 0; i < TILES; ++i) {
            queries[i].make(a, held, a.query_norm);
        }
        if (has_new) {
            row.key.make(a, held, a.key_norm);
            row.add(current, fresh, at);
        }
    } else {
        wait_for_previous();
        load_queries();
        if (has_new) {
            fresh.load(current, last * PAGE);
        }
        angles.wait();
#pragma unroll
        for (u32 i = 0; i < TILES; ++i) {
            queries[i].make(a, RowAngles(a, angles, rows[i] - segment.first_row), a.query_norm);
        }
        if (has_new) {
            fresh.make(current, last * PAGE, angles);
        }
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        if (has_new) {
            fresh.store(current, last * PAGE, at);
        }
    }
    NearSums<TILES> sums;
    sums.clear();
    if (busy) {
        take_page<true, ONE>(sums, current, queries, a, sights, all, last * PAGE);
    }
    for (u32 page = last; more; more = page >= NEAR_PARTS) {
        page -= NEAR_PARTS;
        current.load(a.keys + next, a.values + next, PAGE);
        next = page >= NEAR_PARTS ? element(page - NEAR_PARTS) : 0;
        take_page<false, ONE>(sums, current, queries, a, sights, all, page * PAGE);
    }
    NearRoom room(shared, tile.rows * bundle.count);
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    room.keep(sums);
    __syncthreads();
    room.send();
    meet_cluster();
    u32 units = room.pairs * (OWN / 2);
    for (u32 first = 0; first < units; first += NEAR_WARPS * WARP / 2) {
        u32 unit = first + threadIdx.x / 2, safe = unit < units ? unit : 0;
        u32 pair = safe / (OWN / 2), within = safe % (OWN / 2) * 2;
        float2 value = room.put_together(pair, within);
        if (unit < units && threadIdx.x % 2 == 0) {
            // Mostly there is one row.
            u32 above = pair >= bundle.count ? pair / bundle.count : 0;
            u64 row = segment.first_row + tile.first_row + above;
            u32 head = bundle.first + pair - above * bundle.count;
            bf16* output = a.output + (row * a.query_heads + head) * HEAD + rank_in_cluster() * OWN + within;
            *reinterpret_cast<u32*>(output) = to_pair(value.x, value.y);
        }
    }
}

#endif
