// Products of more rows of activations than held ones have registers for, with bf16 weights. Columns are outermost: a block
// walks over them once, with the sums of all of its rows of the weight in registers, so that it reads activations once. Where
// the blocks of a cluster share rows of the weight, each takes a part of the columns, and in the end has the sums of all blocks
// for its part of the activations' rows.
#pragma once

#include "sliced_sums.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

template <typename FORM, bool GATED>
struct Sliced : SlicedSums<FORM, GATED> {
    using Base = SlicedSums<FORM, GATED>;
    using Base::Base, Base::a, Base::shared;
    using Base::CLUSTER, Base::GROUPS, Base::INPUTS, Base::ROWS, Base::SLICES, Base::STAGES, Base::STEP, Base::STEP_BYTES,
        Base::UNITS, Base::WARPS;
    using typename Base::Barriers, typename Base::GroupSums, typename Base::UnitSums;
    static constexpr u32 INPUT_STAGES = FORM::INPUT_STAGES;
    // Steps of a chunk of a warp, which takes turns with the other one of its group.
    static constexpr u32 STEPS = FORM::COLUMNS / STEP / SLICES;
    using Inputs = Vector16[STEPS][INPUTS / 8][2];
    static_assert(STEPS * STEP * SLICES == FORM::COLUMNS, "warps of a group have as many steps");

    static __device__ __forceinline__ u32 own_step(u32 step) {
        return step * SLICES + Base::slice();
    }

    // A lane's two 16 bytes of row `group` of 8 rows of 64 columns. The copy engine has exchanged the eight 16 bytes of a row
    // as its number says: no two rows of a quarter of a warp meet in a bank.
    static __device__ __forceinline__ void load(Vector16 (&pair)[2], const u8* from, u32& read) {
        u32 lane = threadIdx.x % WARP, row = lane / 4, at = row * STEP_BYTES + (lane % 4 * 2 ^ row) * 16;
        pair[0] = load16(from + at);
        pair[1] = load16(from + (at ^ 16));
        read ^= pair[0].words[0] ^ pair[1].words[0];
    }

    // A step of a unit: inputs are the tensor cores' left tiles, eight rows of the weight their right one.
    static __device__ __forceinline__ void multiply_step(
        UnitSums& sums, const Vector16 (&values)[INPUTS / 8][2], const u8* from, u32& read) {
        Vector16 weights[2][2];
        load(weights[0], from, read);
        load(weights[1], from + 8 * STEP_BYTES, read);
#pragma unroll
        for (u32 word = 0; word < 8; word += 2) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const u32* right = weights[half][word / 4].words + word % 4;
#pragma unroll
                for (u32 left = 0; left < Base::LEFTS; ++left) {
                    const u32* above = values[2 * left][word / 4].words + word % 4;
                    const u32* below = values[2 * left + 1][word / 4].words + word % 4;
                    multiply_add(sums[half][left], LeftTile{{above[0], below[0], above[1], below[1]}}, right[0], right[1]);
                }
            }
        }
    }

    // Says that the warp has read what a barrier stands for: the address depends on what was `read`, as `release` in
    // multiply.cuh explains.
    __device__ __forceinline__ void release(u64* barrier, u32 read) const {
        __syncwarp();
        if (threadIdx.x % WARP < ARRIVALS) {
            barrier_arrive(barrier + (read & a.count >> 16));
        }
    }

    // The warp's steps of a stage of activations, which is free again then.
    __device__ __forceinline__ void take_inputs(Inputs& values, Turn turn) const {
        u32 read = 0;
        barrier_wait(shared.inputs_full + turn.place, turn.parity);
#pragma unroll
        for (u32 step = 0; step < STEPS; ++step) {
#pragma unroll
            for (u32 tile = 0; tile < INPUTS / 8; ++tile) {
                const u8* from = this->inputs + turn.place * Base::INPUT_BYTES + own_step(step) * INPUTS * STEP_BYTES;
                load(values[step][tile], from + tile * 8 * STEP_BYTES, read);
            }
        }
        release(shared.inputs_empty + turn.place, read);
    }

    // A chunk of the warp's units, the first of which is at `turn`.
    __device__ __forceinline__ void multiply_chunk(GroupSums& sums, Turn& turn, Turn input_turn, u32 chunk) const {
        u32 blocks = a.columns / STEP, block = this->block_of(chunk), steps = block < blocks ? blocks - block : 0;
        Inputs values;
        take_inputs(values, input_turn);
#pragma unroll
        for (u32 unit = 0; unit < UNITS; ++unit) {
            if (unit < this->group_units) {
                u32 place = Base::group() * STAGES + turn.place, read = 0;
                barrier_wait(shared.full + place, turn.parity);
#pragma unroll
                for (u32 step = 0; step < STEPS; ++step) {
                    if (own_step(step) < steps) {
                        const u8* from = this->stages + place * Base::UNIT_BYTES + own_step(step) * ROWS * STEP_BYTES;
                        multiply_step(sums[unit], values[step], from, read);
                    }
                }
                release(shared.empty + place, read);
                turn.template next<STAGES>();
            }
        }
    }

    __device__ __forceinline__ void consume() const {
        GroupSums sums = {};
        Turn turn, input_turn;
        for (u32 ordinal = 0; ordinal < this->chunks(); ++ordinal) {
            multiply_chunk(sums, turn, input_turn, this->chunk_at(ordinal));
            input_turn.template next<INPUT_STAGES>();
        }
        this->finish(sums);
    }

    __device__ __forceinline__ void prepare() const {
        if (threadIdx.x == 0) {
            for (u32 place = 0; place < GROUPS * STAGES; ++place) {
                barrier_init(shared.full + place, 1);
                barrier_init(shared.empty + place, SLICES * ARRIVALS);
            }
            for (u32 place = 0; place < INPUT_STAGES; ++place) {
                barrier_init(shared.inputs_full + place, 1);
                barrier_init(shared.inputs_empty + place, WARPS * ARRIVALS);
            }
            this->expect_sums();
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        if (CLUSTER > 1) {
            // Nothing is sent before all of the cluster's barriers are ready.
            arrive_in_cluster();
        }
    }

    __device__ __forceinline__ void run() const {
        u32 warp = threadIdx.x / WARP;
        prepare();
        if (warp == WARPS && elected()) {
            // Weights depend on no kernel.
            this->order_weights();
        }
        __syncwarp();
        wait_for_previous();
        if (warp < WARPS) {
            consume();
            return;
        }
        if (warp == WARPS + 1 && elected()) {
            this->order_inputs();
        } else if (warp == WARPS + 2) {
            this->make_factors();
        }
        __syncwarp();
        if (CLUSTER > 1) {
            meet_cluster();
            arrive_in_cluster();
            meet_cluster();
        }
    }
};

// The copy engine exchanges what it brings by addresses, in rounds of so many bytes.
extern __shared__ __align__(1024) u8 storage[];

template <typename FORM, bool GATED>
__device__ __forceinline__ void sliced(const SlicedArguments& maps) {
    using Kernel = Sliced<FORM, GATED>;
    __shared__ __align__(8) typename Kernel::Barriers barriers;
    let_next_start();
    Kernel(maps, storage, barriers).run();
}

#define DEFINE_KERNEL(NAME, FORM, GATED)                                                                               \
    extern "C" __global__ void __cluster_dims__(FORM::CLUSTER, 1, 1) __launch_bounds__(FORM::THREADS, 1)                \
        NAME(const __grid_constant__ SlicedArguments maps) {                                                           \
        sliced<FORM, GATED>(maps);                                                                                     \
    }

#define DEFINE_PLAIN(NAME, ...)                                                                                        \
    using form_##NAME = SlicedForm<__VA_ARGS__>;                                                                       \
    DEFINE_KERNEL(sliced_##NAME, form_##NAME, false)

#define DEFINE(NAME, ...)                                                                                              \
    DEFINE_PLAIN(NAME, __VA_ARGS__)                                                                                    \
    DEFINE_KERNEL(sliced_gated_##NAME, form_##NAME, true)

#endif
