// Stored blocks as the tensor cores read them: quanta become bf16, which holds every one of them exactly, and scale and
// minimum of a block are applied to the f32 sum over its 32 columns. The definition of every format is
// engine::weights::dequantise; ../include/formats.cuh reads the same formats as f32.
//
// A lane with place `p` of four has, of a block, columns 16 s + 4 p up to 16 s + 4 p + 3 in step s of two. A word is a pair
// of columns: the first and the third of these four, or the second and the fourth.
#pragma once

#include "formats.cuh"

// Of step s and pair p: `[s][p]`.
using BlockWords = u32[2][2];

// Value of a weight: `factor * quantum + minimum`; the factor of each step.
struct BlockScale {
    float factor[2];
    float minimum;
};

__device__ __forceinline__ u32 multiply_add_pair(u32 left, u32 right, u32 addend) {
    u32 result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(left), "r"(right), "r"(addend));
    return result;
}

// A pair of ones.
constexpr u32 ONES = 0x3f803f80u;

// Four bytes below 128 each, less ZERO, as two words: or-ed into the mantissa of 128 they make a number of bf16.
template <u32 ZERO>
__device__ __forceinline__ void words_of_bytes(u32 (&words)[2], u32 bytes) {
    constexpr u32 OF_128 = 0x43004300u, LESS = 0xc300c300u | ZERO << 16 | ZERO;
    words[0] = multiply_add_pair((bytes & 0x00ff00ffu) | OF_128, ONES, LESS);
    words[1] = multiply_add_pair((bytes >> 8 & 0x00ff00ffu) | OF_128, ONES, LESS);
}

// Two signed bytes, the first and the third of four. The upper four bits in the mantissa of 2048 count by 16; 2304 is
// 2048 and 128 for what was or-ed to, and 128 for the sign.
__device__ __forceinline__ u32 word_of_signed(u32 bytes) {
    u32 unsigned_bytes = bytes ^ 0x00800080u;
    u32 high = multiply_add_pair((unsigned_bytes >> 4 & 0x000f000fu) | 0x45004500u, ONES, 0xc510c510u);
    return multiply_add_pair((unsigned_bytes & 0x000f000fu) | 0x43004300u, ONES, high);
}

// Bit `i` of four becomes bit 4 of byte `i`.
__device__ __forceinline__ u32 spread_fifth(u32 bits) {
    return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4;
}

__device__ __forceinline__ u32 load_word(const u8* from) {
    return *reinterpret_cast<const u32*>(from);
}

// Q4_0, Q4_1, Q5_0, Q5_1: scale, minimum, fifth bits, nibbles.
template <bool MINIMUM, bool FIFTH>
struct NibbleBlocks {
    static constexpr u32 BYTES = 18 + 2 * MINIMUM + 4 * FIFTH;
    // Blocks that a warp has under way, and threads whose registers a multiprocessor must hold.
    static constexpr u32 AHEAD = MINIMUM && FIFTH ? 2 : 3, RESIDENT_THREADS = MINIMUM && !FIFTH ? 768 : 640;
    static constexpr bool HAS_MINIMUM = MINIMUM, TWO_FACTORS = false;

    struct Raw {
        // Scale, minimum in the upper half.
        u32 head;
        u32 fifth;
        u32 quanta;
    };

    static __device__ __forceinline__ Raw load(const u8* row, u32 block, u32 place) {
        const u8* from = row + static_cast<u64>(block) * BYTES;
        constexpr u32 HEAD = MINIMUM ? 4 : 2, QUANTA = HEAD + 4 * FIFTH;
        Raw raw = {};
        if constexpr (MINIMUM) {
            // A multiple of four bytes.
            raw.head = load_word(from);
            raw.fifth = FIFTH ? load_word(from + HEAD) : 0;
            raw.quanta = load_word(from + QUANTA + 4 * place);
        } else {
            raw.head = load_u16(from);
            raw.fifth = FIFTH ? load_u32(from + HEAD) : 0;
            raw.quanta = load_u32(from + QUANTA + 4 * place);
        }
        return raw;
    }

    static __device__ __forceinline__ void words(BlockWords& to, const Raw& raw, u32 place, u32) {
        constexpr u32 ZERO = MINIMUM ? 0 : FIFTH ? 16 : 8;
        u32 low = raw.quanta & 0x0f0f0f0fu, high = raw.quanta >> 4 & 0x0f0f0f0fu;
        if constexpr (FIFTH) {
            low |= spread_fifth(raw.fifth >> 4 * place);
            high |= spread_fifth(raw.fifth >> (16 + 4 * place));
        }
        words_of_bytes<ZERO>(to[0], low);
        words_of_bytes<ZERO>(to[1], high);
    }

    static __device__ __forceinline__ BlockScale scale(const Raw& raw, u32) {
        float factor = half_to_float(static_cast<u16>(raw.head));
        return {{factor, factor}, MINIMUM ? half_to_float(static_cast<u16>(raw.head >> 16)) : 0.0f};
    }
};

struct BlocksQ8_0 {
    static constexpr u32 BYTES = 34, AHEAD = 3, RESIDENT_THREADS = 768;
    static constexpr bool HAS_MINIMUM = false, TWO_FACTORS = false;

    struct Raw {
        u32 head;
        u32 quanta[2];
    };

    static __device__ __forceinline__ Raw load(const u8* row, u32 block, u32 place) {
        const u8* from = row + static_cast<u64>(block) * BYTES;
        return {load_u16(from), {load_u32(from + 2 + 4 * place), load_u32(from + 18 + 4 * place)}};
    }

    static __device__ __forceinline__ void words(BlockWords& to, const Raw& raw, u32, u32) {
#pragma unroll
        for (u32 step = 0; step < 2; ++step) {
            to[step][0] = word_of_signed(raw.quanta[step]);
            to[step][1] = word_of_signed(raw.quanta[step] >> 8);
        }
    }

    static __device__ __forceinline__ BlockScale scale(const Raw& raw, u32) {
        float factor = half_to_float(static_cast<u16>(raw.head));
        return {{factor, factor}, 0.0f};
    }
};

// Q4_K and Q5_K: 256 columns share two scales and the packed six-bit ones of eight blocks.
template <bool FIFTH>
struct SubScaledBlocks {
    static constexpr u32 BYTES = FIFTH ? 176 : 144, AHEAD = 2, RESIDENT_THREADS = 640;
    static constexpr bool HAS_MINIMUM = true, TWO_FACTORS = false;

    struct Raw {
        Vector16 head;
        u32 quanta[2];
        u32 fifth[2];
    };

    static __device__ __forceinline__ Raw load(const u8* row, u32 block, u32 place) {
        const u8* from = row + static_cast<u64>(block / 8) * BYTES;
        const u8* quanta = from + (FIFTH ? 48 : 16) + block % 8 / 2 * 32 + 4 * place;
        Raw raw = {load16(from), {load_word(quanta), load_word(quanta + 16)}, {}};
        if constexpr (FIFTH) {
            raw.fifth[0] = load_word(from + 16 + 4 * place);
            raw.fifth[1] = load_word(from + 32 + 4 * place);
        }
        return raw;
    }

    static __device__ __forceinline__ void words(BlockWords& to, const Raw& raw, u32, u32 block) {
#pragma unroll
        for (u32 step = 0; step < 2; ++step) {
            u32 bytes = raw.quanta[step] >> block % 2 * 4 & 0x0f0f0f0fu;
            if constexpr (FIFTH) {
                bytes |= (raw.fifth[step] >> block % 8 & 0x01010101u) << 4;
            }
            words_of_bytes<0>(to[step], bytes);
        }
    }

    static __device__ __forceinline__ BlockScale scale(const Raw& raw, u32 block) {
        u32 shift = block % 4 * 8;
        u32 first = raw.head.words[1] >> shift, second = raw.head.words[2] >> shift, third = raw.head.words[3] >> shift;
        bool early = block % 8 < 4;
        u32 scale = early ? first & 63 : (third & 15) | (first >> 2 & 48);
        u32 minimum = early ? second & 63 : (third >> 4 & 15) | (second >> 2 & 48);
        float factor = half_to_float(static_cast<u16>(raw.head.words[0])) * static_cast<float>(scale);
        float less = half_to_float(static_cast<u16>(raw.head.words[0] >> 16)) * static_cast<float>(minimum);
        return {{factor, factor}, -less};
    }
};

struct BlocksQ6K {
    static constexpr u32 BYTES = 210, AHEAD = 2, RESIDENT_THREADS = 768;
    static constexpr bool HAS_MINIMUM = false, TWO_FACTORS = true;

    struct Raw {
        u32 low[2];
        u32 high[2];
        // Of the two steps, signed bytes; of 256 columns.
        u32 scales;
        u32 head;
    };

    static __device__ __forceinline__ Raw load(const u8* row, u32 block, u32 place) {
        const u8* from = row + static_cast<u64>(block / 8) * BYTES;
        u32 half = block % 8 / 4, quarter = block % 4;
        const u8 *low = from + 64 * half + 32 * (quarter % 2) + 4 * place, *high = from + 128 + 32 * half + 4 * place;
        return {
            {load_u32(low), load_u32(low + 16)}, {load_u32(high), load_u32(high + 16)},
            load_u16(from + 192 + 8 * half + 2 * quarter), load_u16(from + 208)};
    }

    static __device__ __forceinline__ void words(BlockWords& to, const Raw& raw, u32, u32 block) {
        u32 quarter = block % 4;
#pragma unroll
        for (u32 step = 0; step < 2; ++step) {
            u32 bytes = (raw.low[step] >> quarter / 2 * 4 & 0x0f0f0f0fu) | (raw.high[step] >> 2 * quarter & 0x03030303u) << 4;
            words_of_bytes<32>(to[step], bytes);
        }
    }

    static __device__ __forceinline__ BlockScale scale(const Raw& raw, u32) {
        float whole = half_to_float(static_cast<u16>(raw.head));
        float first = static_cast<float>(static_cast<i8>(raw.scales)), second = static_cast<float>(static_cast<i8>(raw.scales >> 8));
        return {{whole * first, whole * second}, 0.0f};
    }
};

using BlocksQ4_0 = NibbleBlocks<false, false>;
using BlocksQ4_1 = NibbleBlocks<true, false>;
using BlocksQ5_0 = NibbleBlocks<false, true>;
using BlocksQ5_1 = NibbleBlocks<true, true>;
using BlocksQ4K = SubScaledBlocks<false>;
using BlocksQ5K = SubScaledBlocks<true>;
