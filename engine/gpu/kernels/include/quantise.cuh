// Rows of f32 to eight and four bits. Rounding is to nearest even and saturates.
#pragma once

#include "reduce.cuh"

enum class Output : u32 {
    // Of the same format as the input.
    ELEMENT,
    // E4M3, divided by `*scale`, which is given.
    FP8_TENSOR,
    // E4M3, divided by `scale[row]`, which is written: the row's largest magnitude over 448.
    FP8_TOKEN,
    // E2M1 in half bytes, the even column in the lower one, in blocks of sixteen columns. `*scale` is given; a block is
    // multiplied by `*scale / block_scale`, where the block scale is E4M3: `*scale` times the block's largest magnitude
    // over 6. Columns are a multiple of sixteen.
    NVFP4,
};

constexpr float LARGEST_E4M3 = 448.0f;
constexpr float LARGEST_E2M1 = 6.0f;
constexpr u32 FP4_BLOCK = 16;

struct Quantised {
    u8* output;
    float* scale;
    u8* block_scales;
    u32 width;
    u32 row;
};

// The same on every architecture, with or without an instruction for it.
__device__ __forceinline__ u8 to_e4m3(float value) {
    u32 bits = __float_as_uint(value), sign = (bits >> 24) & 0x80, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return static_cast<u8>(sign | 0x7f);
    }
    if (magnitude >= 0x43e80000u) {
        return static_cast<u8>(sign | 0x7e);
    }
    if (magnitude < 0x3c800000u) {
        // Below the smallest normal number, 2^-6: multiples of 2^-9, the last of which rounds up to a normal one.
        float steps = __uint_as_float(magnitude) * 512.0f;
        return static_cast<u8>(sign | static_cast<u32>(__float2int_rn(steps)));
    }
    // Twenty bits of the mantissa go; the exponent's bias goes from 127 to 7.
    u32 rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1);
    return static_cast<u8>(sign | ((rounded >> 20) - (120u << 3)));
}

__device__ __forceinline__ float from_e4m3(u8 bits) {
    u32 exponent = (bits >> 3) & 15, mantissa = bits & 7;
    float magnitude = exponent == 0 ? static_cast<float>(mantissa) / 512.0f
                                    : __uint_as_float(((exponent + 120) << 23) | (mantissa << 20));
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// Of 0, 0.5, 1, 1.5, 2, 3, 4, 6 the nearest; of two the one with an even number.
__device__ __forceinline__ u32 to_e2m1(float value) {
    float m = fabsf(value);
    u32 number = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
    return number | (__float_as_uint(value) >> 31 << 3);
}

__device__ __forceinline__ u32 block_largest(u32 value, u32* scratch) {
    value = __reduce_max_sync(ALL_LANES, value);
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    u32 largest = 0;
    for (u32 warp = 0; warp < blockDim.x / WARP; ++warp) {
        largest = scratch[warp] > largest ? scratch[warp] : largest;
    }
    __syncthreads();
    return largest;
}

template <u32 PER_PACKET>
__device__ __forceinline__ void store_e4m3(
    const Quantised& target, const float (&values)[PER_PACKET], u32 first, float scale) {
    u8* row = target.output + static_cast<u64>(target.row) * target.width;
#pragma unroll
    for (u32 i = 0; i < PER_PACKET; ++i) {
        if (first + i < target.width) {
            row[first + i] = to_e4m3(values[i] / scale);
        }
    }
}

template <u32 PER_PACKET>
__device__ __forceinline__ void store_e2m1(const Quantised& target, const float (&values)[PER_PACKET], u32 first) {
    static_assert(PER_PACKET * 2 == FP4_BLOCK, "two neighbouring threads have a block");
    float largest = 0.0f;
#pragma unroll
    for (u32 i = 0; i < PER_PACKET; ++i) {
        largest = fmaxf(largest, fabsf(values[i]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
    float scale = *target.scale;
    u8 block = to_e4m3(scale * (largest / LARGEST_E2M1));
    float divisor = from_e4m3(block);
    float factor = divisor > 0.0f ? scale / divisor : 0.0f;
    if (first >= target.width) {
        return;
    }
    u32 word = 0;
#pragma unroll
    for (u32 i = 0; i < PER_PACKET; ++i) {
        word |= to_e2m1(values[i] * factor) << (4 * i);
    }
    u64 column = static_cast<u64>(target.row) * target.width + first;
    *reinterpret_cast<u32*>(target.output + column / 2) = word;
    if (first % FP4_BLOCK == 0) {
        target.block_scales[column / FP4_BLOCK] = block;
    }
}

// The row's values; thread t has packets t, t + blockDim.x and so on, zeros beyond the row.
template <Output OUTPUT, u32 PER_PACKET, u32 PIECES>
__device__ __forceinline__ void quantise_row(
    const Quantised& target, const float (&values)[PIECES][PER_PACKET], float* scratch) {
    float scale = 0.0f;
    if constexpr (OUTPUT == Output::FP8_TENSOR) {
        scale = *target.scale;
    }
    if constexpr (OUTPUT == Output::FP8_TOKEN) {
        float largest = 0.0f;
#pragma unroll
        for (u32 piece = 0; piece < PIECES; ++piece) {
#pragma unroll
            for (u32 i = 0; i < PER_PACKET; ++i) {
                largest = fmaxf(largest, fabsf(values[piece][i]));
            }
        }
        // Magnitudes are ordered as their bits are.
        largest = __uint_as_float(block_largest(__float_as_uint(largest), reinterpret_cast<u32*>(scratch)));
        scale = largest > 0.0f ? largest / LARGEST_E4M3 : 1.0f;
        if (threadIdx.x == 0) {
            target.scale[target.row] = scale;
        }
    }
#pragma unroll
    for (u32 piece = 0; piece < PIECES; ++piece) {
        u32 first = (threadIdx.x + piece * blockDim.x) * PER_PACKET;
        if constexpr (OUTPUT == Output::NVFP4) {
            store_e2m1<PER_PACKET>(target, values[piece], first);
        } else {
            store_e4m3<PER_PACKET>(target, values[piece], first, scale);
        }
    }
}
