// Attention of few rows over short contexts, where every microsecond is waiting: a cluster of blocks takes a tile of pairs,
// each of its warps a page at a time in registers; a block puts the parts of its warps together and sends them to the
// shared memory of the blocks that finish them, each its dimensions. Nothing but registers holds a page, so that blocks fit
// beside those of the product in front and have the pages of earlier steps at hand before it has ended. A team of one block
// is no cluster, and stores what it has put together.
//
// The roles of attend_split are turned round: positions and dimensions are rows of the tensor cores' tiles, pairs of (row,
// query head) their columns, so that few pairs take few registers.
#pragma once

#include "near_room.cuh"

#if ARCHWAY_ATTENDS_NEAR

// ONE: every segment has one row.
template <bool ONE, typename TEAM>
__device__ __forceinline__ void attend_near(const AttentionArguments& a, float* shared) {
    let_next_start();
    Bundle bundle(a, blockIdx.y);
    u32 each = 8 / a.group, group = threadIdx.x % WARP / 4;
    // The step's arrays were written before the first kernel. Where a segment has one row, that is mostly the row of its number,
    // whose position is asked for together with the segment.
    u32 position = ONE ? a.positions[blockIdx.x / TEAM::BLOCKS] : 0;
    NearTile tile(a, blockIdx.x / TEAM::BLOCKS, each, ONE);
    if (!tile.there || bundle.count == 0) {
        // A block without work makes room at once; one of the grid waits, so that the grid does.
        if (blockIdx.x + blockIdx.y == 0) {
            wait_for_previous();
        }
        return;
    }
    const StepSegment& segment = tile.segment;
    if (ONE && segment.first_row != blockIdx.x / TEAM::BLOCKS) {
        position = a.positions[segment.first_row];
    }
    NearAngles angles = {shared};
    NearRoom<TEAM> room(shared, tile.rows * bundle.count);
    __shared__ __align__(8) u64 arrived;
    if (TEAM::BLOCKS > 1 && threadIdx.x == 0) {
        prepare_parts(&arrived);
    }
    __syncwarp();
    // Nobody writes to a block's shared memory before it has started, and has used what it put there itself.
    if constexpr (ONE && TEAM::BLOCKS > 1) {
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
    NearPages<TEAM> pages(a, segment, bundle.cached);
    NearPage current;
    if (pages.busy()) {
        u32 stored = segment.start > pages.page * PAGE ? segment.start - pages.page * PAGE : 0;
        current.load_keys(a.keys + pages.at(), stored);
        current.load_values(a.values + pages.at(), stored);
    }
    bool valid = group < tile.rows * bundle.count;
    u32 row = segment.first_row + tile.first_row + (valid ? group / bundle.count : 0);
    u32 query_head = bundle.first + (valid ? group % bundle.count : 0);
    NearSight sights[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
        sights[i].look(a, tile, bundle.count, 2 * (threadIdx.x % 4) + i);
    }
    // Every pair sees every position below this.
    u32 all = segment.committed != NONE ? segment.committed : segment.start + tile.first_row + 1;
    NearFresh fresh = {a, tile, bundle.cached, blockIdx.y % a.bundles_per_head == 0};
    u32 last = pages.page;
    bool has_new = pages.busy() && last >= segment.start / PAGE;
    NearHead query;
    auto load_query = [&] {
        query.load(a.source + static_cast<u64>(row) * a.row + a.query_offset + query_head * a.query_stride, valid);
    };
    if constexpr (ONE) {
        HeldAngles held(a, position);
        wait_for_previous();
        load_query();
        NearRow added;
        if (has_new) {
            added.load_key(fresh);
            added.load_value(current, fresh);
        }
        query.make(a, held, a.query_norm);
        if (has_new) {
            added.key.make(a, held, a.key_norm);
            added.add(current, fresh, pages.at());
        }
    } else {
        wait_for_previous();
        load_query();
        if (has_new) {
            fresh.load(current, last * PAGE);
        }
        angles.order(a, segment);
        angles.wait();
        query.make(a, RowAngles(a, angles, row - segment.first_row), a.query_norm);
        if (has_new) {
            fresh.make(current, last * PAGE, angles);
        }
        // Angles have been used: what was made of them is in registers.
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
        if (has_new) {
            fresh.store(current, last * PAGE, pages.at());
        }
    }
    NearSums sums;
    sums.clear();
    if constexpr (NearPages<TEAM>::LISTED) {
        // Keys of the next page come while the values of this one are worked on, and its values while its keys are.
        bool more = false;
        auto next_keys = [&] {
            more = pages.advance();
            if (more) {
                current.load_keys(a.keys + pages.at(), PAGE);
            }
        };
        if (pages.busy()) {
            take_page<true, ONE>(sums, current, query, a, sights, all, last * PAGE, next_keys);
        }
        while (more) {
            current.load_values(a.values + pages.at(), PAGE);
            take_page<false, ONE>(sums, current, query, a, sights, all, pages.page * PAGE, next_keys);
        }
    } else {
        // Mostly there is no other, and what asks for it would only be in the way.
        auto nothing = [] {};
        if (pages.busy()) {
            take_page<true, ONE>(sums, current, query, a, sights, all, last * PAGE, nothing);
        }
        while (pages.advance()) {
            current.load_keys(a.keys + pages.at(), PAGE);
            current.load_values(a.values + pages.at(), PAGE);
            take_page<false, ONE>(sums, current, query, a, sights, all, pages.page * PAGE, nothing);
        }
    }
    auto output = [&](u32 pair) {
        // Mostly there is one row.
        u32 above = pair >= bundle.count ? pair / bundle.count : 0;
        u64 place = segment.first_row + tile.first_row + above;
        return a.output + (place * a.query_heads + bundle.first + pair - above * bundle.count) * HEAD;
    };
    if constexpr (TEAM::BLOCKS == 1) {
        room.own.keep(sums);
        __syncthreads();
        room.finish_alone(output);
    } else {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        room.own.keep(sums);
        __syncthreads();
        room.send(&arrived);
        // The block has met since the barrier was made. Parts that came before this are counted all the same.
        if (threadIdx.x == 0) {
            barrier_expect(&arrived, room.bytes());
        }
        await_parts(&arrived, 0);
        room.finish(output);
    }
}

#endif
