// Weights as they are stored, eight at a time. The definition of every format is engine::weights::dequantise; the order
// of operations is the same, so that a weight has the same value here as there.
//
// A reader is given the first byte of a row and a column that is a multiple of eight.
#pragma once

#include "base.cuh"

// Blocks are only aligned to two bytes.
__device__ __forceinline__ u32 load_u16(const u8* from) {
    return *reinterpret_cast<const u16*>(from);
}

__device__ __forceinline__ u32 load_u32(const u8* from) {
    return load_u16(from) | load_u16(from + 2) << 16;
}

__device__ __forceinline__ float load_half(const u8* from) {
    return half_to_float(static_cast<u16>(load_u16(from)));
}

struct FormatBf16 {
    static constexpr u32 ELEMENTS = 1, BYTES = 2;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        unpack(load16(row + 2 * column), out);
    }
};

struct FormatF16 {
    static constexpr u32 ELEMENTS = 1, BYTES = 2;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        Vector16 vector = load16(row + 2 * column);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            out[2 * i] = half_to_float(static_cast<u16>(vector.words[i]));
            out[2 * i + 1] = half_to_float(static_cast<u16>(vector.words[i] >> 16));
        }
    }
};

struct FormatF32 {
    static constexpr u32 ELEMENTS = 1, BYTES = 4;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            Vector16 vector = load16(row + 4 * column + 16 * half);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                out[4 * half + i] = __uint_as_float(vector.words[i]);
            }
        }
    }
};

struct FormatQ8_0 {
    static constexpr u32 ELEMENTS = 32, BYTES = 34;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 32 * BYTES;
        float scale = load_half(block);
        const u8* quanta = block + 2 + column % 32;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            u32 pair = load_u16(quanta + 2 * i);
            out[2 * i] = static_cast<float>(static_cast<i8>(pair)) * scale;
            out[2 * i + 1] = static_cast<float>(static_cast<i8>(pair >> 8)) * scale;
        }
    }
};

// Nibble `i` of eight, whose low ones hold weights 0 to 15 of a block and whose high ones the others.
struct Nibbles {
    u32 low, high;
    __device__ __forceinline__ Nibbles(const u8* quanta, u32 within) {
        const u8* from = quanta + within % 16;
        u32 shift = within / 16 * 4;
        low = load_u32(from) >> shift & 0x0f0f0f0fu;
        high = load_u32(from + 4) >> shift & 0x0f0f0f0fu;
    }
    __device__ __forceinline__ u32 at(u32 i) const {
        return (i < 4 ? low >> (8 * i) : high >> (8 * (i - 4))) & 0xffu;
    }
};

struct FormatQ4_0 {
    static constexpr u32 ELEMENTS = 32, BYTES = 18;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 32 * BYTES;
        float scale = load_half(block);
        Nibbles nibbles(block + 2, column % 32);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            out[i] = static_cast<float>(static_cast<i32>(nibbles.at(i)) - 8) * scale;
        }
    }
};

struct FormatQ4_1 {
    static constexpr u32 ELEMENTS = 32, BYTES = 20;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 32 * BYTES;
        float scale = load_half(block), minimum = load_half(block + 2);
        Nibbles nibbles(block + 4, column % 32);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            out[i] = __fadd_rn(__fmul_rn(static_cast<float>(nibbles.at(i)), scale), minimum);
        }
    }
};

struct FormatQ5_0 {
    static constexpr u32 ELEMENTS = 32, BYTES = 22;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 32 * BYTES;
        float scale = load_half(block);
        u32 fifth = load_u32(block + 2) >> (column % 32);
        Nibbles nibbles(block + 6, column % 32);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            u32 quantum = nibbles.at(i) | (fifth >> i & 1) << 4;
            out[i] = static_cast<float>(static_cast<i32>(quantum) - 16) * scale;
        }
    }
};

struct FormatQ5_1 {
    static constexpr u32 ELEMENTS = 32, BYTES = 24;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 32 * BYTES;
        float scale = load_half(block), minimum = load_half(block + 2);
        u32 fifth = load_u32(block + 4) >> (column % 32);
        Nibbles nibbles(block + 8, column % 32);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            u32 quantum = nibbles.at(i) | (fifth >> i & 1) << 4;
            out[i] = __fadd_rn(__fmul_rn(static_cast<float>(quantum), scale), minimum);
        }
    }
};

// Six-bit scale and minimum of a sub-block of 32, packed in 12 bytes.
struct SubScale {
    float scale, minimum;
    __device__ __forceinline__ SubScale(const u8* packed, u32 index) {
        u32 raw_scale, raw_minimum;
        if (index < 4) {
            raw_scale = packed[index] & 63;
            raw_minimum = packed[index + 4] & 63;
        } else {
            u32 low = packed[index + 4];
            raw_scale = (low & 15) | (packed[index - 4] >> 6) << 4;
            raw_minimum = (low >> 4) | (packed[index] >> 6) << 4;
        }
        scale = static_cast<float>(raw_scale);
        minimum = static_cast<float>(raw_minimum);
    }
};

// Q4_K, and Q5_K with 32 bytes of fifth bits before the nibbles.
template <bool FIFTH>
struct FormatSubScaled {
    static constexpr u32 ELEMENTS = 256, BYTES = FIFTH ? 176 : 144;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 256 * BYTES;
        u32 within = column % 256, sub_block = within / 32, index = within % 32;
        SubScale sub(block + 4, sub_block);
        float scale = __fmul_rn(load_half(block), sub.scale);
        float minimum = __fmul_rn(load_half(block + 2), sub.minimum);
        const u8* quanta = block + (FIFTH ? 48 : 16) + sub_block / 2 * 32 + index;
        u32 shift = 4 * (sub_block % 2);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            u32 quantum = quanta[i] >> shift & 15;
            if (FIFTH) {
                quantum |= (block[16 + index + i] >> sub_block & 1) << 4;
            }
            out[i] = __fsub_rn(__fmul_rn(scale, static_cast<float>(quantum)), minimum);
        }
    }
};

using FormatQ4K = FormatSubScaled<false>;
using FormatQ5K = FormatSubScaled<true>;

struct FormatQ6K {
    static constexpr u32 ELEMENTS = 256, BYTES = 210;
    static __device__ __forceinline__ void read(const u8* row, u32 column, float (&out)[8]) {
        const u8* block = row + column / 256 * BYTES;
        u32 within = column % 256, line = within / 32, half = line / 4, quarter = line % 4, index = within % 32;
        const u8* low = block + 64 * half + 32 * (quarter % 2) + index;
        const u8* high = block + 128 + 32 * half + index;
        float sub_scale = static_cast<float>(static_cast<i8>(block[192 + 8 * half + 2 * quarter + index / 16]));
        float scale = __fmul_rn(load_half(block + 208), sub_scale);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            u32 quantum = (low[i] >> (4 * (quarter / 2)) & 15) | (high[i] >> (2 * quarter) & 3) << 4;
            out[i] = __fmul_rn(scale, static_cast<float>(static_cast<i32>(quantum) - 32));
        }
    }
};

template <typename Format>
__device__ __forceinline__ u64 row_bytes(u32 columns) {
    return static_cast<u64>(columns / Format::ELEMENTS) * Format::BYTES;
}

// Calls DEFINE(name, Format) for every format.
#define FOR_EACH_FORMAT(DEFINE)    \
    DEFINE(bf16, FormatBf16)       \
    DEFINE(f16, FormatF16)         \
    DEFINE(f32, FormatF32)         \
    DEFINE(q8_0, FormatQ8_0)       \
    DEFINE(q4_0, FormatQ4_0)       \
    DEFINE(q4_1, FormatQ4_1)       \
    DEFINE(q5_0, FormatQ5_0)       \
    DEFINE(q5_1, FormatQ5_1)       \
    DEFINE(q4_k, FormatQ4K)        \
    DEFINE(q5_k, FormatQ5K)        \
    DEFINE(q6_k, FormatQ6K)
