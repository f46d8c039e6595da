// How the warps of a block put their parts together: for attend_near, see near.cuh.
#pragma once

#include "near_sums.cuh"

#if ARCHWAY_ATTENDS_NEAR

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

// The parts of a block's warps in shared memory: `[WARPS][pairs][HEAD]` sums, and `[WARPS][pairs]` largest scores and sums of
// weights.
template <u32 WARPS>
struct WarpParts {
    float* sums;
    float2* scales;
    u32 pairs;

    // The warp's part.
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
                scales[warp * pairs + pair] = make_float2(part.largest[column], sum);
            }
#pragma unroll
            for (u32 block = 0; block < BLOCKS_64; ++block) {
                float* to = sums + (warp * pairs + pair) * HEAD + 64 * block + 8 * group;
#pragma unroll
                for (u32 half = 0; half < 2; ++half) {
                    const Sums &low = part.output[block][2 * half], &high = part.output[block][2 * half + 1];
                    *reinterpret_cast<float4*>(to + 4 * half) = make_float4(
                        low.values[column], low.values[column + 2], high.values[column], high.values[column + 2]);
                }
            }
        }
    }

    __device__ __forceinline__ Joint<WARPS> joint(u32 pair) const {
        return Joint<WARPS>(scales + pair, pairs);
    }

    // Four dimensions of a pair, of all warps, in their order.
    __device__ __forceinline__ float4 total(const Joint<WARPS>& joint, u32 pair, u32 dimension) const {
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (u32 warp = 0; warp < WARPS; ++warp) {
            float4 value = *reinterpret_cast<const float4*>(sums + (warp * pairs + pair) * HEAD + dimension);
            total.x += joint.factors[warp] * value.x;
            total.y += joint.factors[warp] * value.y;
            total.z += joint.factors[warp] * value.z;
            total.w += joint.factors[warp] * value.w;
        }
        return total;
    }
};

#endif
