// What a check of collectives needs on the device: inputs that differ from replay to replay, the sum that must come out,
// and ranks that come late.
#include "message.cuh"

struct CheckArguments {
    // In this rank's memory: differs from replay to replay, the same on all ranks.
    u32* round;
    u8* data;
    // What was wrong: how many elements, and the first index plus one.
    u32* wrong;
    u64 elements;
    // Of the call, the same on all ranks.
    u32 salt;
    u32 rank;
    u32 ranks;
    // Of `delay` alone: nanoseconds at most.
    u32 delay;
};

__device__ __forceinline__ u32 mix(u32 value) {
    value ^= value >> 16;
    value *= 0x7feb352du;
    value ^= value >> 15;
    value *= 0x846ca68bu;
    return value ^ (value >> 16);
}

// An element of a rank's input: a multiple of 2^-15 in -1..1, before it is rounded to the format.
__device__ __forceinline__ float element(u32 round, u32 salt, u32 rank, u64 index) {
    u32 bits = mix(static_cast<u32>(index) ^ mix(round ^ mix(salt ^ mix(rank + 1))));
    return static_cast<float>(bits >> 16) / 32768.0f - 1.0f;
}

template <typename Element>
__device__ __forceinline__ u32 bits_of(float value);

template <>
__device__ __forceinline__ u32 bits_of<bf16>(float value) {
    return to_bf16(value).bits;
}

template <>
__device__ __forceinline__ u32 bits_of<f16>(float value) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
    return pair & 0xffffu;
}

template <>
__device__ __forceinline__ u32 bits_of<float>(float value) {
    return __float_as_uint(value);
}

template <typename Element>
__device__ __forceinline__ float value_of(u32 bits);

template <>
__device__ __forceinline__ float value_of<bf16>(u32 bits) {
    return low_float(bits);
}

template <>
__device__ __forceinline__ float value_of<f16>(u32 bits) {
    return half_to_float(static_cast<u16>(bits));
}

template <>
__device__ __forceinline__ float value_of<float>(u32 bits) {
    return __uint_as_float(bits);
}

template <typename Element>
__device__ __forceinline__ void put(u8* data, u64 index, u32 bits) {
    if (sizeof(Element) == 4) {
        reinterpret_cast<u32*>(data)[index] = bits;
    } else {
        reinterpret_cast<u16*>(data)[index] = static_cast<u16>(bits);
    }
}

template <typename Element>
__device__ __forceinline__ u32 get(const u8* data, u64 index) {
    return sizeof(Element) == 4 ? reinterpret_cast<const u32*>(data)[index] : reinterpret_cast<const u16*>(data)[index];
}

// This rank's input.
template <typename Element>
__device__ __forceinline__ void fill(const CheckArguments& a) {
    let_next_start();
    wait_for_previous();
    u32 round = *a.round;
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.elements; i += step) {
        put<Element>(a.data, i, bits_of<Element>(element(round, a.salt, a.rank, i)));
    }
}

// The sum in rank order in f32, rounded once, is what must be there, bit for bit. What was looked at is overwritten, so
// that it cannot be found again.
template <typename Element>
__device__ __forceinline__ void check(const CheckArguments& a) {
    let_next_start();
    wait_for_previous();
    u32 round = *a.round;
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.elements; i += step) {
        float sum = 0.0f;
        for (u32 rank = 0; rank < a.ranks; ++rank) {
            float value = value_of<Element>(bits_of<Element>(element(round, a.salt, rank, i)));
            sum = rank == 0 ? value : sum + value;
        }
        if (get<Element>(a.data, i) != bits_of<Element>(sum)) {
            atomicAdd(a.wrong, 1u);
            atomicCAS(a.wrong + 1, 0u, static_cast<u32>(i) + 1);
        }
        put<Element>(a.data, i, ~0u);
    }
}

#define CHECK_KERNELS(NAME, ELEMENT)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) fill_##NAME(CheckArguments arguments) {            \
        fill<ELEMENT>(arguments);                                                                        \
    }                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256) check_##NAME(CheckArguments arguments) {           \
        check<ELEMENT>(arguments);                                                                       \
    }

CHECK_KERNELS(bf16, bf16)
CHECK_KERNELS(f16, f16)
CHECK_KERNELS(f32, float)

// The next round: other inputs.
extern "C" __global__ void next_round(CheckArguments arguments) {
    let_next_start();
    wait_for_previous();
    *arguments.round += 1;
}

// This rank comes late, by a time that differs from rank to rank, call to call and round to round.
extern "C" __global__ void delay(CheckArguments arguments) {
    let_next_start();
    wait_for_previous();
    if (arguments.delay > 0) {
        u32 chance = mix(*arguments.round ^ mix(arguments.salt ^ mix(arguments.rank + 77)));
        u64 until = clock_nanoseconds() + chance % arguments.delay;
        while (clock_nanoseconds() < until) {
        }
    }
}
