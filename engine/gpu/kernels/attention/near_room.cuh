// How the warps of a cluster put their parts together: for attend_near, see near.cuh.
#pragma once

#include "cluster.cuh"
#include "near_parts.cuh"

#if ARCHWAY_ATTENDS_NEAR

// Of several rows: as many blocks as every device with clusters takes. The twin of `CLUSTER` in src/kernels/attention/near.rs.
constexpr u32 CLUSTER = 8;
constexpr u32 NEAR_WARPS = 4;

// By one thread of a block, before the cluster meets.
__device__ __forceinline__ void prepare_parts(u64* barrier) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The parts of a block's warps, `[WARPS][pairs][HEAD]` and `[WARPS][pairs]` largest scores and sums of weights, and those
// of the cluster's blocks, `[BLOCKS][pairs][OWN]` and `[BLOCKS][pairs]`.
template <typename TEAM>
struct NearRoom {
    static constexpr u32 BLOCKS = TEAM::BLOCKS, WARPS = TEAM::WARPS, OWN = TEAM::OWN;
    float* sums;
    float2* scales;
    WarpParts<WARPS> own;
    u32 pairs;

    __device__ __forceinline__ NearRoom(float* shared, u32 all_pairs) : pairs(all_pairs) {
        sums = shared + WARPS * pairs * HEAD;
        float2* own_scales = reinterpret_cast<float2*>(sums + pairs * HEAD);
        scales = own_scales + WARPS * pairs;
        own = {shared, own_scales, pairs};
    }

    // Of all parts that a block gets.
    __device__ __forceinline__ u32 bytes() const {
        return BLOCKS * pairs * (OWN * sizeof(float) + sizeof(float2));
    }

    // Sends the block's part to the blocks of the cluster, each its dimensions.
    __device__ __forceinline__ void send(const u64* barrier) const {
        constexpr u32 PIECES = HEAD / 4;
        u32 rank = rank_in_cluster();
        for (u32 index = threadIdx.x; index < pairs * PIECES; index += TEAM::THREADS) {
            u32 pair = index / PIECES, dimension = index % PIECES * 4;
            Joint<WARPS> joint = own.joint(pair);
            float4 total = own.total(joint, pair, dimension);
            u32 to = dimension / OWN, arrival = address_in(barrier, to);
            u32 sum = address_in(sums + (rank * pairs + pair) * OWN + dimension % OWN, to);
            send_in_cluster(sum, arrival, total.x, total.y, total.z, total.w);
            if (dimension % OWN == 0) {
                send_in_cluster(address_in(scales + rank * pairs + pair, to), arrival, joint.largest, joint.sum);
            }
        }
    }

    // The same of a team of one block, whose warps have all parts.
    template <typename Output>
    __device__ __forceinline__ void finish_alone(const Output& output) const {
        constexpr u32 PIECES = HEAD / 4;
        for (u32 index = threadIdx.x; index < pairs * PIECES; index += TEAM::THREADS) {
            u32 pair = index / PIECES, dimension = index % PIECES * 4;
            Joint<WARPS> joint = own.joint(pair);
            float4 total = own.total(joint, pair, dimension);
            Vector8 four = {
                to_pair(__fdividef(total.x, joint.sum), __fdividef(total.y, joint.sum)),
                to_pair(__fdividef(total.z, joint.sum), __fdividef(total.w, joint.sum))};
            *reinterpret_cast<Vector8*>(output(pair) + dimension) = four;
        }
    }

    // Two neighbouring dimensions of a pair by two lanes, each of which takes half of the blocks.
    __device__ __forceinline__ float2 put_together(u32 pair, u32 dimension) const {
        constexpr u32 EACH = BLOCKS / 2;
        u32 first = threadIdx.x % 2 * EACH;
        float2 scale[EACH];
        float largest = NEGATIVE_INFINITY;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            scale[i] = scales[(first + i) * pairs + pair];
            largest = fmaxf(largest, scale[i].x);
        }
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        float base = largest == NEGATIVE_INFINITY ? 0.0f : largest, sum = 0.0f;
        float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            float factor = power(scale[i].x - base);
            float2 value = *reinterpret_cast<const float2*>(sums + ((first + i) * pairs + pair) * OWN + dimension);
            sum += factor * scale[i].y;
            total.x += factor * value.x;
            total.y += factor * value.y;
        }
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        total.x += __shfl_xor_sync(ALL_LANES, total.x, 1);
        total.y += __shfl_xor_sync(ALL_LANES, total.y, 1);
        return make_float2(__fdividef(total.x, sum), __fdividef(total.y, sum));
    }

    // The block's dimensions, of what the cluster's blocks have sent. `output(pair)` is where a pair's dimensions go.
    template <typename Output>
    __device__ __forceinline__ void finish(const Output& output) const {
        u32 units = pairs * (OWN / 2);
        for (u32 first = 0; first < units; first += TEAM::THREADS / 2) {
            u32 unit = first + threadIdx.x / 2, safe = unit < units ? unit : 0;
            u32 pair = safe / (OWN / 2), within = safe % (OWN / 2) * 2;
            float2 value = put_together(pair, within);
            if (unit < units && threadIdx.x % 2 == 0) {
                *reinterpret_cast<u32*>(output(pair) + rank_in_cluster() * OWN + within) = to_pair(value.x, value.y);
            }
        }
    }
};

#endif
