// Types, conversions and the few instructions that every kernel uses. No toolkit header is included anywhere, so that a
// host with nothing but the run-time compiler can build the kernels.
#pragma once

#if !defined(ARCHWAY_HAS_PDL) || !defined(ARCHWAY_HAS_TMA) || !defined(ARCHWAY_HAS_CLUSTERS) || \
    !defined(ARCHWAY_HAS_SETMAXNREG)
#error "features of the database's record are given as macros, 0 or 1"
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

// Sixteen bytes, the widest access of one thread.
struct __align__(16) Vector16 {
    u32 words[4];
};

struct __align__(8) Vector8 {
    u32 words[2];
};

// bfloat16 as bits: the upper half of an f32.
struct bf16 {
    u16 bits;
};

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;
constexpr u32 NONE = 0xffffffffu;
#define NEGATIVE_INFINITY __int_as_float(0xff800000)

__device__ __forceinline__ float to_float(bf16 value) {
    return __uint_as_float(static_cast<u32>(value.bits) << 16);
}

// The lower element of a pair of bf16.
__device__ __forceinline__ float low_float(u32 pair) {
    return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float high_float(u32 pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

// Two f32 to a pair of bf16, rounded to nearest even; `low` in the lower half.
__device__ __forceinline__ u32 to_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ bf16 to_bf16(float value) {
    return bf16{static_cast<u16>(to_pair(value, 0.0f))};
}

// IEEE half precision, as stored scales are.
__device__ __forceinline__ float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ void unpack(const Vector16& vector, float (&values)[8]) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        values[2 * i] = low_float(vector.words[i]);
        values[2 * i + 1] = high_float(vector.words[i]);
    }
}

__device__ __forceinline__ Vector16 pack(const float (&values)[8]) {
    Vector16 vector;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        vector.words[i] = to_pair(values[2 * i], values[2 * i + 1]);
    }
    return vector;
}

__device__ __forceinline__ Vector16 load16(const void* from) {
    return *static_cast<const Vector16*>(from);
}

__device__ __forceinline__ void store16(void* to, const Vector16& vector) {
    *static_cast<Vector16*>(to) = vector;
}

// Read once, by nobody else on this multiprocessor: stays out of the first-level cache.
__device__ __forceinline__ Vector16 load16_streaming(const void* from) {
    Vector16 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "l"(from));
    return v;
}

// One of a rotated pair; the sine is negative for the first of the two. Rounded the same wherever it is compiled.
__device__ __forceinline__ float rotated(float own, float other, float cosine, float sine) {
    return __fmaf_rn(own, cosine, __fmul_rn(other, sine));
}

__device__ __forceinline__ u32 ceiling_divide(u32 value, u32 by) {
    return (value + by - 1) / by;
}

// Programmatic dependent launch: the next kernel may be scheduled from here on.
//
// Every kernel calls `let_next_start` at its beginning and every thread calls `wait_for_previous` before it touches
// anything that an earlier kernel wrote or still reads, also where it has no work: a grid that ends without having
// waited would let the one after it start before the one before it has ended.
__device__ __forceinline__ void let_next_start() {
#if ARCHWAY_HAS_PDL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if ARCHWAY_HAS_PDL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
