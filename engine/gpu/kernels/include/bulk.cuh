// The bulk copy engine and the barriers in shared memory that count its bytes (PTX `cp.async.bulk`, `mbarrier`).
#pragma once

#include "base.cuh"

#if ARCHWAY_HAS_TMA

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void barrier_wait(u64* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// For what a step reads once, as weights are: the second-level cache gives up its room first.
__device__ __forceinline__ u64 read_once() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void bulk_copy_once(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(read_once())
        : "memory");
}

// Of the driver: where boxes of a tensor lie.
struct __align__(128) TensorMap {
    u64 words[16];
};

// Copies a box: blocks of 64 columns from `block` on, of rows from `row` on.
__device__ __forceinline__ void block_copy(void* to, const TensorMap& map, u32 row, u32 block, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %2, %4}], [%5];" ::"r"(
            shared_address(to)),
        "l"(&map), "r"(0), "r"(row), "r"(block), "r"(shared_address(barrier))
        : "memory");
}

__device__ __forceinline__ void block_copy_once(void* to, const TensorMap& map, u32 row, u32 block, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(shared_address(to)),
        "l"(&map), "r"(0), "r"(row), "r"(block), "r"(shared_address(barrier)), "l"(read_once())
        : "memory");
}

// True of one lane of the warp. The compiler knows that it is one: addresses that it makes are those of the warp.
__device__ __forceinline__ bool elected() {
    u32 one;
    asm volatile(
        "{\n"
        ".reg .pred one;\n"
        "elect.sync _|one, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, one;\n"
        "}\n"
        : "=r"(one));
    return one != 0;
}

// Warps that change their registers together.
constexpr u32 GROUP_WARPS = 4;
// Whether they can. Where clusters are not native, the assembler makes copies a call, beside which registers stay.
constexpr bool REGISTERS_MOVE = ARCHWAY_HAS_SETMAXNREG && ARCHWAY_HAS_CLUSTERS;

// A thread has REGISTERS from here on, fewer than before; every warp of the group calls it.
template <u32 REGISTERS>
__device__ __forceinline__ void hand_over_registers() {
    if constexpr (REGISTERS_MOVE) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
    }
}

// The same with more than before, as soon as others have handed them over.
template <u32 REGISTERS>
__device__ __forceinline__ void take_registers() {
    if constexpr (REGISTERS_MOVE) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
    }
}

#endif
