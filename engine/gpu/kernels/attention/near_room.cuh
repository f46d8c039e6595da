// How the warps of a cluster put their parts together: for attend_near, see near.cuh.
#pragma once

#include "cluster.cuh"
#include "near_sums.cuh"

#if ARCHWAY_ATTENDS_NEAR

// Of several rows: as many blocks as every device with clusters takes. The twin of `CLUSTER` in src/kernels/attention.rs.
constexpr u32 CLUSTER = 8;
constexpr u32 NEAR_WARPS = 4;

// By one thread of a block, before the cluster meets.
__device__ __forceinline__ void prepare_parts(u64* barrier) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Factors that bring parts to one largest score, and the sum of their weights.
template <u32 COUNT>
struct Joint {
    float factors[COUNT];
    float largest = NEGATIVE_INFINITY;
    float sum = 0.0f;

    __device__ __forceinline__ Joint(const float2* scales, u32 stride) {
        float2 scale[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            scale[i] = scales[i * stride];
            largest = fmaxf(largest, scale[i].x);
        }
        // Nothing seen yet: any finite number keeps the differences from being no numbers.
        float base = largest == NEGATIVE_INFINITY ? 0.0f : largest;
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            factors[i] = power(scale[i].x - base);
            sum += factors[i] * scale[i].y;
        }
    }
};

// The parts of a block's warps, `[WARPS][pairs][HEAD]` and `[WARPS][pairs]` largest scores and sums of weights, and those
// of the cluster's blocks, `[BLOCKS][pairs][OWN]` and `[BLOCKS][pairs]`.
template <typename TEAM>
struct NearRoom {
    static constexpr u32 BLOCKS = TEAM::BLOCKS, WARPS = TEAM::WARPS, OWN = TEAM::OWN;
    float* own;
    float2* own_scales;
    float* sums;
    float2* scales;
    u32 pairs;

    __device__ __forceinline__ NearRoom(float* shared, u32 all_pairs) : own(shared), pairs(all_pairs) {
        sums = own + WARPS * pairs * HEAD;
        own_scales = reinterpret_cast<float2*>(sums + pairs * HEAD);
        scales = own_scales + WARPS * pairs;
    }

    // A warp's part, to be put together with those of the block's other warps.
    __device__ __forceinline__ void keep(const NearSums& part) const {
        u32 group = threadIdx.x % WARP / 4, warp = threadIdx.x / WARP;
#pragma unroll
        for (u32 column = 0; column < 2; ++column) {
            u32 pair = 2 * (threadIdx.x % 4) + column;
            float sum = sum_of_groups(part.sum[column]);
            if (pair >= pairs) {
                continue;
            }
            if (group == 0) {
                own_scales[warp * pairs + pair] = make_float2(part.largest[column], sum);
            }
#pragma unroll
            for (u32 block = 0; block < BLOCKS_64; ++block) {
                float* to = own + (warp * pairs + pair) * HEAD + 64 * block + 8 * group;
#pragma unroll
                for (u32 half = 0; half < 2; ++half) {
                    const Sums &low = part.output[block][2 * half], &high = part.output[block][2 * half + 1];
                    *reinterpret_cast<float4*>(to + 4 * half) = make_float4(
                        low.values[column], low.values[column + 2], high.values[column], high.values[column + 2]);
                }
            }
        }
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
            Joint<WARPS> joint(own_scales + pair, pairs);
            float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (u32 warp = 0; warp < WARPS; ++warp) {
                float4 value = *reinterpret_cast<const float4*>(own + (warp * pairs + pair) * HEAD + dimension);
                total.x += joint.factors[warp] * value.x;
                total.y += joint.factors[warp] * value.y;
                total.z += joint.factors[warp] * value.z;
                total.w += joint.factors[warp] * value.w;
            }
            u32 to = dimension / OWN, arrival = address_in(barrier, to);
            u32 sum = address_in(sums + (rank * pairs + pair) * OWN + dimension % OWN, to);
            send_in_cluster(sum, arrival, total.x, total.y, total.z, total.w);
            if (dimension % OWN == 0) {
                send_in_cluster(address_in(scales + rank * pairs + pair, to), arrival, joint.largest, joint.sum);
            }
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
