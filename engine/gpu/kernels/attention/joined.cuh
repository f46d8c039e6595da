// Parts of the context in the blocks of one cluster: each block leaves its part in its own shared memory, and all of them
// put the parts together from there, in order, a share of the output each. Saves the way through the second-level cache.
#pragma once

#include "tile.cuh"

#if ARCHWAY_HAS_CLUSTERS

// Blocks of a cluster: as many as every device with clusters takes. The twin of `CLUSTER` in src/kernels/attention.rs.
constexpr u32 CLUSTER = 8;

// All blocks of the cluster that have not ended.
__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where `pointer` of this block's shared memory is in that of block `rank` of the cluster.
__device__ __forceinline__ u32 address_in(const float* pointer, u32 rank) {
    u32 own = static_cast<u32>(__cvta_generic_to_shared(pointer)), address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
    return address;
}

__device__ __forceinline__ float2 load_from_cluster(u32 address) {
    float2 value;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
    return value;
}

// Whether the parts of an item's rows are all in this cluster.
__device__ __forceinline__ bool is_joined(const AttentionItem& item) {
    return item.parts > 1 && item.place % CLUSTER + item.parts <= CLUSTER;
}

// Two neighbouring dimensions of a pair from the parts of the cluster's blocks. `part` is the pair's in this block: HEAD
// sums, the largest score, the sum of weights.
__device__ __forceinline__ float2 join(const AttentionItem& item, const float* part, u32 dimension) {
    float2 scales[CLUSTER], values[CLUSTER];
    u32 first = item.place % CLUSTER;
#pragma unroll
    for (u32 i = 0; i < CLUSTER; ++i) {
        bool there = i < item.parts;
        u32 address = address_in(part, first + (there ? i : 0));
        scales[i] = load_from_cluster(address + HEAD * sizeof(float));
        values[i] = load_from_cluster(address + dimension * sizeof(float));
        scales[i].x = there ? scales[i].x : NEGATIVE_INFINITY;
    }
    float largest = NEGATIVE_INFINITY, sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < CLUSTER; ++i) {
        largest = fmaxf(largest, scales[i].x);
    }
    float base = largest == NEGATIVE_INFINITY ? 0.0f : largest;
    float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
    for (u32 i = 0; i < CLUSTER; ++i) {
        float factor = exp2f(scales[i].x - base);
        sum += factor * scales[i].y;
        total.x += factor * values[i].x;
        total.y += factor * values[i].y;
    }
    return make_float2(total.x / sum, total.y / sum);
}

#endif
