// The shared memory of attend_rows, see rows.cuh, and how the blocks of a cluster put their parts together.
#pragma once

#include "near_room.cuh"
#include "pair.cuh"

#if ARCHWAY_ATTENDS_NEAR

// Dimensions of the values that a cluster works on, and clusters that share a head's.
constexpr u32 SHARE = 64;
constexpr u32 SHARES = HEAD / SHARE;
// Dimensions of them that a block of the cluster finishes: one tile of the tensor cores.
static_assert(SHARE == 8 * CLUSTER, "a block finishes a tile");
// Pairs of a cluster: a tile for each warp.
constexpr u32 ROWS_PAIRS = NEAR_WARPS * PAIRS;
// Pages that a block works on at once: contexts of up to 640 positions are there before the kernel in front has ended.
constexpr u32 SLOTS = 5;
// Where a block has more than that, those of a turn: the others' values make room for results.
constexpr u32 FEW_SLOTS = 3;

// Floats of the parts of the cluster's blocks, `[CLUSTER][NEAR_WARPS][WARP][4]`: a lane's share of a tile of sums; and of
// `[CLUSTER][NEAR_WARPS][8][4]`: the largest score and the sum of weights of pairs g and g + 8.
constexpr u32 PART_SUMS = CLUSTER * NEAR_WARPS * WARP * 4;
constexpr u32 PART_SCALES = CLUSTER * NEAR_WARPS * 8 * 4;
constexpr u32 PART_BYTES = (PART_SUMS + PART_SCALES) * 4;
constexpr u32 ROWS_THREADS = NEAR_WARPS * WARP;

// Two neighbouring dimensions of pairs g and g + 8 of a warp's tile: weighted sums relative to the largest score, of a part
// of the context or of all of it.
struct RowsResult {
    float4 total;
    // Largest scores, and sums of weights: first pair, second pair.
    float4 scale;

    // `other` has some other part.
    __device__ __forceinline__ void add(const RowsResult& other) {
        float first = fmaxf(scale.x, other.scale.x), second = fmaxf(scale.z, other.scale.z);
        float mine[2] = {factor(scale.x, first), factor(scale.z, second)};
        float others[2] = {factor(other.scale.x, first), factor(other.scale.z, second)};
        total.x = mine[0] * total.x + others[0] * other.total.x;
        total.y = mine[0] * total.y + others[0] * other.total.y;
        total.z = mine[1] * total.z + others[1] * other.total.z;
        total.w = mine[1] * total.w + others[1] * other.total.w;
        scale = make_float4(
            first, mine[0] * scale.y + others[0] * other.scale.y, second, mine[1] * scale.w + others[1] * other.scale.w);
    }

    static __device__ __forceinline__ float factor(float mine, float largest) {
        // Nothing seen yet: any finite number keeps the difference from being no number.
        return power(mine - (largest == NEGATIVE_INFINITY ? 0.0f : largest));
    }
};

// What a block of attend_rows keeps in shared memory. The twin of `rows_shared` in src/kernels/attention/near.rs.
struct RowsMemory {
    union {
        bf16 keys[SLOTS][PAGE * HEAD];
        // Come when nobody in the cluster needs a key any more.
        struct {
            float4 sums[CLUSTER][ROWS_THREADS];
            float4 scales[CLUSTER][NEAR_WARPS][8];
        };
    };
    // Of the cluster's share of dimensions.
    bf16 values[SLOTS][PAGE * SHARE];
    // Weights of the norms of queries and of keys, where there are any.
    float norms[2][HEAD];
    // Counts the parts' bytes.
    u64 barrier;

    // Asks for the norms' weights; nothing that a kernel in front writes.
    __device__ __forceinline__ void order_norms(const AttentionArguments& a) {
        u32 which = threadIdx.x / (HEAD / 4), piece = threadIdx.x % (HEAD / 4) * 4;
        const float* from = which == 0 ? a.query_norm : a.key_norm;
        if (which < 2 && from != nullptr) {
            copy_async(norms[which] + piece, from + piece, true);
        }
    }

    // What a thread has put together of the pages that were worked on before.
    __device__ __forceinline__ RowsResult& result() {
        static_assert((SLOTS - FEW_SLOTS) * PAGE * SHARE * sizeof(bf16) >= ROWS_THREADS * sizeof(RowsResult), "room");
        return reinterpret_cast<RowsResult*>(values[FEW_SLOTS])[threadIdx.x];
    }

    // A warp's part to the blocks of the cluster: sums of each tile of dimensions to its block, scales to all.
    __device__ __forceinline__ void send(const Sums (&output)[CLUSTER], const float4& scale) const {
        u32 rank = rank_in_cluster(), lane = threadIdx.x % WARP;
        auto offset = [&](const void* member) {
            return static_cast<u32>(static_cast<const u8*>(member) - reinterpret_cast<const u8*>(this));
        };
#pragma unroll
        for (u32 to = 0; to < CLUSTER; ++to) {
            u32 there = address_in(this, to);
            const float(&values)[4] = output[to].values;
            send_in_cluster(
                there + offset(&sums[rank][threadIdx.x]), there + offset(&barrier), values[0], values[1], values[2], values[3]);
        }
        // Each of a group's four lanes has them.
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            u32 there = address_in(this, lane % 4 + 4 * half);
            send_in_cluster(
                there + offset(&scales[rank][threadIdx.x / WARP][lane / 4]), there + offset(&barrier), scale.x, scale.y,
                scale.z, scale.w);
        }
    }

    // The parts of the cluster's blocks, put together.
    __device__ __forceinline__ RowsResult put_together() const {
        u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        float4 scale[CLUSTER];
        float first = NEGATIVE_INFINITY, second = NEGATIVE_INFINITY;
#pragma unroll
        for (u32 from = 0; from < CLUSTER; ++from) {
            scale[from] = scales[from][warp][lane / 4];
            first = fmaxf(first, scale[from].x);
            second = fmaxf(second, scale[from].z);
        }
        RowsResult result = {make_float4(0.0f, 0.0f, 0.0f, 0.0f), make_float4(first, 0.0f, second, 0.0f)};
#pragma unroll
        for (u32 from = 0; from < CLUSTER; ++from) {
            float4 value = sums[from][threadIdx.x];
            float factors[2] = {RowsResult::factor(scale[from].x, first), RowsResult::factor(scale[from].z, second)};
            result.scale.y += factors[0] * scale[from].y;
            result.scale.w += factors[1] * scale[from].w;
            result.total.x += factors[0] * value.x;
            result.total.y += factors[0] * value.y;
            result.total.z += factors[1] * value.z;
            result.total.w += factors[1] * value.w;
        }
        return result;
    }
};

#endif
