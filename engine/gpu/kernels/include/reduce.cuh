// Sums and maxima over a warp and over a block, in a fixed order.
#pragma once

#include "base.cuh"

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

__device__ __forceinline__ u64 warp_sum(u64 value) {
#pragma unroll
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

__device__ __forceinline__ u64 warp_max(u64 value) {
#pragma unroll
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        u64 other = __shfl_xor_sync(ALL_LANES, value, distance);
        value = other > value ? other : value;
    }
    return value;
}

// ARCHWAY_HAS_FAULT_MISSING_BARRIER is in no record: a race on purpose, that what looks for races must find.
//
// Every thread of the block gets the sum. `scratch` holds a value per warp; the block must not use it for something
// else before its next barrier.
template <typename Value>
__device__ __forceinline__ Value block_sum(Value value, Value* scratch) {
    value = warp_sum(value);
    u32 warps = blockDim.x / WARP;
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = value;
    }
#if !ARCHWAY_HAS_FAULT_MISSING_BARRIER
    __syncthreads();
#endif
    Value sum = 0;
    for (u32 warp = 0; warp < warps; ++warp) {
        sum += scratch[warp];
    }
    __syncthreads();
    return sum;
}

__device__ __forceinline__ u64 block_max(u64 value, u64* scratch) {
    value = warp_max(value);
    u32 warps = blockDim.x / WARP;
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    u64 largest = 0;
    for (u32 warp = 0; warp < warps; ++warp) {
        largest = scratch[warp] > largest ? scratch[warp] : largest;
    }
    __syncthreads();
    return largest;
}
