// Attention of several rows of a sequence over a short context: a cluster of eight blocks takes up to 64 pairs of (row, query
// head) and 64 dimensions of a cached head's values. A block has every eighth page in shared memory before the kernel in front
// has ended; each of its warps takes 16 pairs over all of them, and sends what it gathered straight to the blocks that finish
// it, eight dimensions each. So a page is read once for 64 pairs, a block's part crosses the cluster once, and the blocks
// are so few and so small that one stands beside a block of the products in front and behind on every multiprocessor.
#pragma once

#include "rows_page.cuh"

#if ARCHWAY_ATTENDS_NEAR

// What a warp has gathered for its pairs: sums of values, and of weights.
struct RowsSums {
    Sums output[SHARE / 8];
    Sums weights;

    __device__ __forceinline__ RowsSums() : output(), weights() {}

    // A page's values, two tiles of eight dimensions at a time. Weights are added up as they are rounded for the product.
    __device__ __forceinline__ void take(const LeftTile& tile, const bf16* values) {
        constexpr u32 ONES = 0x3f803f80;
        multiply_add(weights, tile, ONES, ONES);
        u32 lane = threadIdx.x % WARP;
#pragma unroll
        for (u32 i = 0; i < SHARE / 8; i += 2) {
            u32 address = shared_address(values + value_place(lane % PAGE, i + lane / PAGE)), words[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                         : "r"(address)
                         : "memory");
            multiply_add(output[i], tile, words[0], words[1]);
            multiply_add(output[i + 1], tile, words[2], words[3]);
        }
    }
};

// Two heads after norm and rotation as the tensor cores' left tiles.
__device__ __forceinline__ void to_tiles(LeftTile (&query)[HEAD / 16], const NearHead (&heads)[2]) {
#pragma unroll
    for (u32 step = 0; step < HEAD / 16; ++step) {
        const u32(&first)[4] = heads[0].blocks[step / 2].words, (&second)[4] = heads[1].blocks[step / 2].words;
        u32 from = step % 2 * 2;
        query[step] = LeftTile{{first[from], second[from], first[from + 1], second[from + 1]}};
    }
}

// Over the four lanes of a group.
__device__ __forceinline__ float largest_of_group(float value) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

// `pages` pages that are in shared memory; of the first one, `seen` is seen. Gives the largest scores times the scale; at
// `done` no key is needed any more.
template <typename Done>
__device__ __forceinline__ float2 attend_pages(
    RowsSums& sums, const LeftTile (&query)[HEAD / 16], const RowsMemory& memory, u32 pages, u32 seen, float scale, Done done) {
    Sums scores[SLOTS][2] = {};
    float largest[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY};
#pragma unroll
    for (u32 slot = 0; slot < SLOTS; ++slot) {
        if (slot >= pages) {
            continue;
        }
        multiply_keys(scores[slot], query, memory.keys[slot]);
        if (slot == 0 && seen != ~0u) {
            hide(scores[slot], seen);
        }
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], scores[slot][i / 4].values[i % 4]);
        }
    }
    largest[0] = scale * largest_of_group(largest[0]);
    largest[1] = scale * largest_of_group(largest[1]);
    done();
    // Nothing seen: any finite number keeps the differences from being no numbers.
    float base[2] = {largest[0] == NEGATIVE_INFINITY ? 0.0f : largest[0], largest[1] == NEGATIVE_INFINITY ? 0.0f : largest[1]};
#pragma unroll
    for (u32 slot = 0; slot < SLOTS; ++slot) {
        if (slot >= pages) {
            continue;
        }
        LeftTile tile;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const float(&values)[4] = scores[slot][half].values;
            float weights[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                weights[i] = power(__fmaf_rn(values[i], scale, -base[i / 2]));
            }
            tile.pairs[2 * half] = to_pair(weights[0], weights[1]);
            tile.pairs[2 * half + 1] = to_pair(weights[2], weights[3]);
        }
        sums.take(tile, memory.values[slot]);
    }
    return make_float2(largest[0], largest[1]);
}

// Whether the 16 pairs of a warp are of whole rows, and those of a row can be halved.
__device__ __forceinline__ bool shares_row(const AttentionArguments& a) {
    return a.group % 2 == 0 && PAIRS % a.group == 0 && a.bundles_per_head == 1 && a.query_heads == a.group * a.cached_heads;
}

// Pair `which` of a lane, of the warp's 16: where both can be of one row, they are, so that they have the same angles.
__device__ __forceinline__ Pair pair_of(const AttentionArguments& a, const Bundle& bundle, const NearTile& tile, u32 which) {
    u32 group = threadIdx.x % WARP / 4, half = a.group / 2, place = group + 8 * which;
    if (shares_row(a)) {
        place = group / half * a.group + group % half + half * which;
    }
    return Pair(bundle, tile.first_row, tile.rows, threadIdx.x / WARP * PAIRS + place);
}

// What a lane knows of its two pairs when their queries come: where those are in the source, and where the outputs go (NONE
// for a pair that is not there).
struct RowsPairs {
    u64 query[2];
    u32 output[2];

    __device__ __forceinline__ RowsPairs(const AttentionArguments& a, const Pair (&pairs)[2], u32 first_row) {
        u32 column = own_share() * SHARE + 8 * rank_in_cluster() + 2 * (threadIdx.x % 4);
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            u64 of = first_row + pairs[which].row, head = pairs[which].head;
            query[which] = of * a.row + a.query_offset + head * a.query_stride;
            output[which] = pairs[which].valid ? static_cast<u32>((of * a.query_heads + head) * HEAD + column) : NONE;
        }
    }

    __device__ __forceinline__ void store(const AttentionArguments& a, const RowsResult& result) const {
        const float4 &total = result.total, &scale = result.scale;
        u32 words[2] = {
            to_pair(__fdividef(total.x, scale.y), __fdividef(total.y, scale.y)),
            to_pair(__fdividef(total.z, scale.w), __fdividef(total.w, scale.w))};
#pragma unroll
        for (u32 which = 0; which < 2; ++which) {
            if (output[which] != NONE) {
                *reinterpret_cast<u32*>(a.output + output[which]) = words[which];
            }
        }
    }
};

// Which of the cluster's rows and pages are next.
struct RowsTurn {
    // Tile of the step, and pages of each block that have been worked on: their result is in shared memory.
    u32 tile;
    u32 done = 0;
    // Of the phase of the barrier.
    u32 parity = 0;
};

// Works on as many pages as there is room for. Gives whether those were the tile's last.
__device__ __forceinline__ bool attend_some(
    const AttentionArguments& a, RowsMemory& memory, const NearTile& tile, RowsTurn& turn) {
    Bundle bundle(a, blockIdx.y);
    const StepSegment& segment = tile.segment;
    RowsPages pages(a, segment);
    Pair both[2] = {pair_of(a, bundle, tile, 0), pair_of(a, bundle, tile, 1)};
    const u32* rows = a.positions + segment.first_row;
    u32 positions[2] = {rows[both[0].row], rows[both[1].row]};
    RowsFresh fresh(a, pages, tile);
    memory.order_norms(a);
    pages.order_all(a, memory, segment, turn.done);
    RowsPairs pairs(a, both, segment.first_row);
    u32 seen = ~0u;
    if (turn.done == 0 && pages.hides(segment.committed != NONE ? segment.committed : segment.start + tile.first_row + 1)) {
        seen = sight_of(a, segment, both).seen(__shfl_sync(ALL_LANES, pages.number, 0) * PAGE);
    }
    bool makes = fresh.any && turn.done == 0;
    wait_for_previous();
    NearHead heads[2];
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        heads[which].load(a.source + pairs.query[which], pairs.output[which] != NONE);
    }
    if (makes) {
        fresh.load(a, memory);
        fresh.load_angles(a);
    }
    // Behind the queries: where the block started late, these need not wait for angles that wait for positions.
    HeldAngles angles(a, positions[0]);
    // Pages are there, and values of new rows.
    await_copies<0>();
    __syncthreads();
    if (makes) {
        fresh.make(a, memory.norms[1]);
        fresh.store(a, memory);
    }
    const float* norm = a.query_norm != nullptr ? memory.norms[0] : nullptr;
    heads[0].make(a, angles, norm);
    if (!shares_row(a)) {
        angles = HeldAngles(a, positions[1]);
    }
    heads[1].make(a, angles, norm);
    LeftTile query[HEAD / 16];
    to_tiles(query, heads);
    // Keys are made.
    __syncthreads();
    RowsSums sums;
    u32 here = pages.count > turn.done ? pages.count - turn.done : 0;
    here = here < pages.together() ? here : pages.together();
    float2 largest = attend_pages(sums, query, memory, here, seen, a.scale, [] {
        // Parts may come in the place of keys, once this is said everywhere.
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    });
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    memory.send(sums.output, make_float4(largest.x, sums.weights.values[0], largest.y, sums.weights.values[2]));
    // The block has met since the barrier was made. Parts that came before this are counted all the same.
    if (threadIdx.x == 0) {
        barrier_expect(&memory.barrier, PART_BYTES);
    }
    await_parts(&memory.barrier, turn.parity);
    RowsResult result = memory.put_together();
    if (turn.done > 0) {
        result.add(memory.result());
    }
    turn.done += pages.together();
    if (turn.done < pages.most) {
        memory.result() = result;
        return false;
    }
    pairs.store(a, result);
    return true;
}

__device__ __forceinline__ void attend_rows_of(const AttentionArguments& a, RowsMemory& memory) {
    let_next_start();
    u32 each = ROWS_PAIRS / a.group, tiles = gridDim.x / (CLUSTER * SHARES);
    RowsTurn turn = {blockIdx.x / (CLUSTER * SHARES)};
    // The step's arrays were written before the first kernel.
    NearTile tile(a, turn.tile, each);
    if (!tile.there || Bundle(a, blockIdx.y).count == 0) {
        // A block without work makes room at once; one of the grid waits, so that the grid does.
        if (blockIdx.x + blockIdx.y == 0) {
            wait_for_previous();
        }
        return;
    }
    if (threadIdx.x == 0) {
        prepare_parts(&memory.barrier);
    }
    bool more = NearTile(a, turn.tile + tiles, each).there;
#pragma unroll 1
    for (;; turn.parity ^= 1) {
        if (attend_some(a, memory, tile, turn)) {
            if (!more) {
                return;
            }
            turn.tile += tiles;
            turn.done = 0;
            more = NearTile(a, turn.tile + tiles, each).there;
        }
        tile = NearTile(a, turn.tile, each);
        // Parts were read; pages come in their place.
        __syncthreads();
    }
}

#endif
