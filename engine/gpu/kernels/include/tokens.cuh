// The sampler's arithmetic, bit for bit that of engine::sampler: every operation in f32 is rounded by itself, and
// weights are integers, so that no order of summation matters.
#pragma once

#include "reduce.cuh"

// Order of logits as integers: larger logits are larger. Both zeros are one logit, and what is no number comes last.
__device__ __forceinline__ u32 order_of(float logit) {
    if (logit != logit) {
        return 0;
    }
    u32 bits = __float_as_uint(__fadd_rn(logit, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float logit_of(u32 order) {
    if (order == 0) {
        return NEGATIVE_INFINITY;
    }
    return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// Larger for larger logits, then for smaller ids.
__device__ __forceinline__ u64 rank_of(float logit, u32 id) {
    return static_cast<u64>(order_of(logit)) << 32 | (0xffffffffu - id);
}

__device__ __forceinline__ u32 id_of(u64 rank) {
    return 0xffffffffu - static_cast<u32>(rank);
}

__device__ __forceinline__ bool is_finite(float value) {
    return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// Where the tokens of a launch's rows go, each the one with the largest logit.
struct Choice {
    // A value per row, zero between launches.
    u64* best;
    u32* arrivals;
    // NONE where a row has no finite largest logit.
    u32* tokens;
    // The same in memory of the host, or null.
    u32* host;
    // The token of each column; null where they are the same.
    const u32* columns;

    // One thread of each of `blocks` blocks gives the best rank that the block has seen of a row; the last one's writes the
    // token.
    __device__ __forceinline__ void give(u32 row, u64 rank, u32 blocks) const {
        atomicMax(best + row, rank);
        __threadfence();
        if (atomicAdd(arrivals + row, 1) + 1 < blocks) {
            return;
        }
        rank = atomicExch(best + row, 0);
        arrivals[row] = 0;
        u32 token = is_finite(logit_of(static_cast<u32>(rank >> 32))) ? id_of(rank) : NONE;
        if (columns != nullptr && token != NONE) {
            token = columns[token];
        }
        tokens[row] = token;
        if (host != nullptr) {
            host[row] = token;
        }
    }
};

// 2^x for x <= 0; see engine::sampler's `weight`.
__device__ __forceinline__ float exact_exp2(float x) {
    constexpr float ROUNDER = 12582912.0f;
    x = x > -64.0f ? x : -64.0f;
    float rounded = __fadd_rn(x, ROUNDER);
    float rest = __fsub_rn(x, __fsub_rn(rounded, ROUNDER));
    float value = __fadd_rn(__fmul_rn(0.0013381302f, rest), 0.009666368f);
    value = __fadd_rn(__fmul_rn(value, rest), 0.05550381f);
    value = __fadd_rn(__fmul_rn(value, rest), 0.2402235f);
    value = __fadd_rn(__fmul_rn(value, rest), 0.69314718055994530942f);
    value = __fadd_rn(__fmul_rn(value, rest), 1.0f);
    return __uint_as_float(__float_as_uint(value) + (__float_as_uint(rounded) << 23));
}

// round(value * 2^40), to nearest even, for value in [0, 2).
__device__ __forceinline__ u64 fixed_point(float value) {
    constexpr double ALIGNER = 4096.0;
    return static_cast<u64>(__double_as_longlong(__dadd_rn(static_cast<double>(value), ALIGNER))) -
           static_cast<u64>(__double_as_longlong(ALIGNER));
}

// 64 uniform bits by Philox4x32-10 (Salmon et al. 2011): words 1 and 0 of the result.
__device__ __forceinline__ u64 random_bits(u64 seed, const u32 (&counter)[4]) {
    u32 words[4] = {counter[0], counter[1], counter[2], counter[3]};
    u32 keys[2] = {static_cast<u32>(seed), static_cast<u32>(seed >> 32)};
#pragma unroll
    for (u32 round = 0; round < 10; ++round) {
        u64 first = static_cast<u64>(0xD2511F53u) * words[0], second = static_cast<u64>(0xCD9E8D57u) * words[2];
        u32 next[4] = {
            static_cast<u32>(second >> 32) ^ words[1] ^ keys[0], static_cast<u32>(second),
            static_cast<u32>(first >> 32) ^ words[3] ^ keys[1], static_cast<u32>(first)};
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            words[i] = next[i];
        }
        keys[0] += 0x9E3779B9u;
        keys[1] += 0xBB67AE85u;
    }
    return static_cast<u64>(words[1]) << 32 | words[0];
}

// How a row's token is chosen: the twin of `SampleRow` in src/kernels/sampling.rs.
struct SampleRow {
    // log2(e) / temperature; 0 is greedy.
    float scale;
    float min_p;
    // 0 keeps all.
    u32 top_k;
    // Of the penalties, see logits.cu.
    float repetition;
    // floor(top_p * 2^32); 2^32 keeps all.
    u64 top_p;
    u64 seed;
    // Output position, choice, node, draw.
    u32 counter[4];
    float frequency;
    float presence;
    // Which of the changes are this row's.
    u32 first_change;
    u32 changes;
};
