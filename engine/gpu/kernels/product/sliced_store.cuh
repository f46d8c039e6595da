// The outputs of a block of a sliced product: eight neighbours of a row of activations to a thread.
#pragma once

#include "sliced_order.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

// What is in the residual stream before eight neighbours are added, and the weight of the norm behind it.
struct Befores {
    Vector16 residual;
    float norm[8];
};

template <typename FORM, bool GATED>
struct SlicedStore : SlicedOrder<FORM, GATED> {
    using Base = SlicedOrder<FORM, GATED>;
    using Base::Base, Base::a, Base::first_unit, Base::rank, Base::shared, Base::units;
    using Base::CLUSTER, Base::OWN, Base::ROWS, Base::THREADS;
    using typename Base::Tile;
    static constexpr u32 EIGHT = 8;

    // Sums as they come: `[CLUSTER][OWN][stride]`, of each block for the rows of activations that this one finishes.
    __device__ __forceinline__ float* received() const {
        return reinterpret_cast<float*>(this->inputs);
    }

    __device__ __forceinline__ u32 stride() const {
        return units * ROWS + 8;
    }

    // Of all blocks, in their order, for eight rows of the weight from `row` of the cluster's on.
    __device__ __forceinline__ void total(float (&sums)[EIGHT], u32 own, u32 row) const {
#pragma unroll
        for (u32 source = 0; source < CLUSTER; ++source) {
            const float* from = received() + (source * OWN + own) * stride() + row;
#pragma unroll
            for (u32 i = 0; i < EIGHT; i += 4) {
                float4 four = *reinterpret_cast<const float4*>(from + i);
                sums[i] = source == 0 ? four.x : sums[i] + four.x;
                sums[i + 1] = source == 0 ? four.y : sums[i + 1] + four.y;
                sums[i + 2] = source == 0 ? four.z : sums[i + 2] + four.z;
                sums[i + 3] = source == 0 ? four.w : sums[i + 3] + four.w;
            }
        }
    }

    // Of `there` rows of the weight from `row` on, with the factor and the bias.
    __device__ __forceinline__ void finish_sums(float (&sums)[EIGHT], u32 own, u32 row, u32 there) const {
        float factor = shared.factors[own];
#pragma unroll
        for (u32 i = 0; i < EIGHT; ++i) {
            sums[i] = sums[i] * factor + (a.bias != nullptr && i < there ? a.bias[row + i] : 0.0f);
        }
    }

    // Each thread takes eight outputs of a row of activations, and so on.
    __device__ __forceinline__ void store() const {
        u32 parts = units * (Tile::OUTPUTS / EIGHT);
        bool adds = !GATED && a.residual != nullptr;
#pragma unroll 1
        for (u32 task = threadIdx.x; task < parts * OWN; task += THREADS) {
            u32 own = task / parts, part = task % parts, input = rank() * OWN + own;
            u32 output = first_unit * Tile::OUTPUTS + part * EIGHT;
            bool some = input < a.count && output < a.outputs;
            Befores before;
            if (adds && some) {
                before.residual = load16(a.residual + static_cast<u64>(input) * a.outputs + output);
#pragma unroll
                for (u32 i = 0; i < EIGHT; ++i) {
                    before.norm[i] = a.norm[output + i];
                }
            }
            // By some thread of every block, also where it finishes nothing: no block ends before others have sent.
            await_parts(&shared.received, 0);
            if (some) {
                store_part(own, part, input, output, before);
            }
        }
    }

    __device__ __forceinline__ void store_part(u32 own, u32 part, u32 input, u32 output, const Befores& before) const {
        u32 there = a.outputs - output < EIGHT ? a.outputs - output : EIGHT;
        float values[EIGHT];
        total(values, own, part * (GATED ? ROWS : EIGHT));
        finish_sums(values, own, output, there);
        if constexpr (GATED) {
            float others[EIGHT];
            total(others, own, part * ROWS + EIGHT);
            finish_sums(others, own, output + a.outputs, there);
#pragma unroll
            for (u32 i = 0; i < EIGHT; ++i) {
                values[i] = Tile::activate(a, values[i]) * others[i];
            }
        }
        if (!GATED && a.residual != nullptr) {
            add(values, input, output, before);
        } else {
            give(values, input, output, there);
        }
    }

    // As `Epilogue::add`, of eight neighbours; of their SQUARES the next thread has the others.
    __device__ __forceinline__ void add(
        const float (&values)[EIGHT], u32 input, u32 output, const Befores& before) const {
        u64 at = static_cast<u64>(input) * a.outputs + output;
        float sums[EIGHT], scaled[EIGHT], squares = 0.0f;
        unpack(before.residual, sums);
#pragma unroll
        for (u32 i = 0; i < EIGHT; ++i) {
            sums[i] = to_float(to_bf16(sums[i] + values[i]));
            squares += sums[i] * sums[i];
            scaled[i] = sums[i] * before.norm[i];
        }
        store16(a.residual + at, pack(sums));
        store16(static_cast<bf16*>(a.output) + at, pack(scaled));
        squares += __shfl_xor_sync(3u << (threadIdx.x % WARP / 2 * 2), squares, 1);
        if (output % SQUARES == 0) {
            a.squares[at / SQUARES] = squares;
        }
    }

    __device__ __forceinline__ void give(const float (&values)[EIGHT], u32 input, u32 output, u32 there) const {
        u64 at = static_cast<u64>(input) * a.stride + output;
        bf16* to = static_cast<bf16*>(a.output) + at;
        if (there == EIGHT && a.float_output == 0 && reinterpret_cast<u64>(to) % sizeof(Vector16) == 0) {
            store16(to, pack(values));
            return;
        }
#pragma unroll
        for (u32 i = 0; i < EIGHT; ++i) {
            if (i < there && a.float_output != 0) {
                static_cast<float*>(a.output)[at + i] = values[i];
            } else if (i < there) {
                to[i] = to_bf16(values[i]);
            }
        }
    }
};

#endif
