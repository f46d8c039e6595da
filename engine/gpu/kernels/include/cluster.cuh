// Blocks of a cluster that write to each other's shared memory (PTX `mapa`, `st.async`, `barrier.cluster`).
#pragma once

#include "bulk.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

// Where `pointer` of this block's shared memory is in that of block `rank` of the cluster.
__device__ __forceinline__ u32 address_in(const void* pointer, u32 rank) {
    u32 own = static_cast<u32>(__cvta_generic_to_shared(pointer)), address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
    return address;
}

// Stores to a block's shared memory; its barrier counts the bytes when they are there, so that nobody waits for an answer.
__device__ __forceinline__ void send_in_cluster(u32 address, u32 barrier, float x, float y, float z, float w) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
                 "f"(x), "f"(y), "f"(z), "f"(w), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void send_in_cluster(u32 address, u32 barrier, float x, float y) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "f"(x), "f"(y), "r"(barrier)
                 : "memory");
}

// Until as many bytes as were expected have come from the blocks of the cluster.
__device__ __forceinline__ void await_parts(const u64* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// All threads of the cluster meet, in two halves. Nothing that was stored need be seen behind it: a releasing arrival would wait
// for every store that is on its way.
__device__ __forceinline__ void arrive_in_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#endif
