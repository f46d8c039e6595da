// Products of few rows of activations with bf16 weights, as in product.cu, where the bulk copy engine brings the weights
// to shared memory: one warp orders them, far ahead of those that multiply, so that memory is never idle and no register
// waits for it. This is what the forms of streamed.cu, held.cu and wide.cu share.
#pragma once

#include "multiply.cuh"

#if ARCHWAY_HAS_TMA

template <typename FORM, bool GATED>
struct Streamed : StageProducts<FORM, GATED> {
    using Base = StageProducts<FORM, GATED>;
    using typename Base::Inputs, typename Base::Tile, typename Base::TileSums;
    using Base::a, Base::await, Base::chunk_at, Base::chunks, Base::load, Base::multiply_stage, Base::release, Base::shared;
    using typename Base::Part;
    using Base::keep, Base::load_part;
    using Base::CHAINS, Base::GROUPS, Base::INPUT_TILES, Base::STAGES, Base::THREADS, Base::TURNED;
    static constexpr u32 KEPT = FORM::KEPT, IN_REGISTERS = FORM::IN_SHARED ? 1 : KEPT;

    // Whether the largest output of each row may be chosen: with more rows there are no registers for it. The twin of
    // `Size::chooses` in src/kernels/product/size.rs.
    static constexpr bool CHOOSES = !GATED && FORM::INPUTS <= 8;

    // Of a thread where warps grow: sixteen that multiply and four of which one orders share what twenty have at the start,
    // 96 each.
    static constexpr u32 ORDERING_REGISTERS = 32, GROWN_REGISTERS = 112;
    static_assert(!FORM::GROWS || FORM::WARPS == 16, "others would share otherwise");

    // Where a multiplying warp is.
    struct Cursor {
        Turn turn;
        // Tiles that are finished.
        u32 finished = 0;
        // The best rank of the thread's outputs, which are all of one row of activations.
        u64 best = 0;
    };

    float* sums_of_warps;

    // A tile's groups of rows are stored at once, one behind the other, in as many turns as it takes all threads.
    static constexpr u32 OF_GROUP = Tile::OUTPUTS * FORM::INPUTS;
    static constexpr u32 TURNS = (GROUPS * OF_GROUP + THREADS - 1) / THREADS;
    using Befores = Before[TURNS];

    // What a thread stores in a turn: the group of rows, which is none behind the last one, and the place in it.
    struct Place {
        u32 group, index;

        __device__ __forceinline__ explicit Place(u32 turn)
            : group((threadIdx.x + turn * THREADS) / OF_GROUP), index((threadIdx.x + turn * THREADS) % OF_GROUP) {}
    };

    // What is in the residual stream at the thread's outputs in a tile.
    __device__ __forceinline__ void load_before(Befores& before, u32 tile) const {
#pragma unroll
        for (u32 turn = 0; turn < TURNS; ++turn) {
            Place at(turn);
            u32 row, input, output;
            bool adds = !GATED && a.residual != nullptr && at.group < GROUPS;
            if (adds && Tile::place(a, tile * GROUPS + at.group, at.index, row, input, output)) {
                before[turn].load(a, input, output);
            }
        }
    }

    // The multiplying warps alone.
    static __device__ __forceinline__ void meet() {
        asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    }

    // The block's sums of a tile, in the order of the warps.
    __device__ __forceinline__ void finish(Cursor& at, u32 tile, TileSums& sums, const Befores& before) const {
        // Of one group, whoever reads what was written two turns ago has met the others since.
        float* buffer = sums_of_warps + (GROUPS == 1 ? at.finished % 2 * Tile::FLOATS : 0);
        if (GROUPS > 1 && at.finished > 0) {
            meet();
        }
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group) {
            Sums whole[1][INPUT_TILES];
#pragma unroll
            for (u32 input = 0; input < INPUT_TILES; ++input) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    float even = sums[group][0][input].values[i], odd = sums[group][CHAINS - 1][input].values[i];
                    whole[0][input].values[i] = CHAINS == 2 ? even + odd : even;
                }
                sums[group][0][input] = sums[group][CHAINS - 1][input] = Sums{};
            }
            if constexpr (TURNED) {
                Tile::write_turned(buffer + group * Tile::FLOATS, whole[0]);
            } else {
                Tile::write(buffer + group * Tile::FLOATS, whole, a.count);
            }
        }
        meet();
        store(at, tile, buffer, before);
        ++at.finished;
    }

    __device__ __forceinline__ void store(Cursor& at, u32 tile, const float* buffer, const Befores& before) const {
        auto see = [&](u32 output, float value) {
            if constexpr (CHOOSES) {
                u64 rank = rank_of(value, output);
                at.best = rank > at.best ? rank : at.best;
            }
        };
#pragma unroll
        for (u32 turn = 0; turn < TURNS; ++turn) {
            Place to(turn);
            if (to.group >= GROUPS) {
                break;
            }
            auto before_sum = [&](u32, u32) { return before[turn]; };
            const float* sums = buffer + to.group * Tile::FLOATS;
            Tile::store(a, sums, shared.factors, tile * GROUPS + to.group, to.index, OF_GROUP, before_sum, see);
        }
    }

    // The threads of a row of activations and a group of rows of the weight are neighbours.
    __device__ __forceinline__ void choose(u64 best) const {
        static_assert(TURNS == 1, "a thread has seen outputs of one row of activations");
        Place at(0);
        constexpr u32 OUTPUTS = Tile::OUTPUTS;
#pragma unroll
        for (u32 distance = OUTPUTS / 2; distance > 0; distance /= 2) {
            u64 other = __shfl_xor_sync(ALL_LANES, best, distance);
            best = other > best ? other : best;
        }
        u32 row = at.index / OUTPUTS;
        if (at.group < GROUPS && threadIdx.x % OUTPUTS == 0 && row < a.count) {
            a.choice.give(row, best, gridDim.x * GROUPS);
        }
    }

    // Chunks of a tile from the `first` on, as many as are kept: the one whose activations are `inputs[AT]`, and those
    // behind it. FRESH: they were asked for, those of the next chunk were not. `read`: what came last.
    template <u32 AT, bool FRESH>
    __device__ __forceinline__ void multiply_kept(
        u32 first, Cursor& at, Inputs (&inputs)[IN_REGISTERS], TileSums& sums, u32 read) const {
        u32 ordinal = first + AT;
        if (ordinal >= chunks) {
            return;
        }
        Inputs& here = inputs[AT % IN_REGISTERS];
        if constexpr (FRESH) {
            await(here, read);
            if constexpr (AT + 1 < KEPT) {
                load(inputs[AT + 1], chunk_at(AT + 1 < chunks ? AT + 1 : 0));
            }
        }
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group) {
            barrier_wait(shared.full + at.turn.place, at.turn.parity);
            read = multiply_stage(sums[group], here, at.turn.place, chunk_at(ordinal), ordinal);
            release(at.turn, read);
        }
        if constexpr (!FORM::HELD) {
            // From a cache, before the weights are waited for: of this tile, or of the next one, which begins as this one.
            load(here, chunk_at(ordinal + KEPT < chunks ? ordinal + KEPT : AT < chunks ? AT : 0));
        }
        if constexpr (AT + 1 < KEPT) {
            multiply_kept<AT + 1, FRESH>(first, at, inputs, sums, read);
        }
    }

    // The block's next tile; false behind the last. `before` is that of the block's first.
    template <bool FRESH>
    __device__ __forceinline__ bool work(
        Cursor& at, Inputs (&inputs)[IN_REGISTERS], TileSums& sums, Befores& before) const {
        barrier_wait(shared.full + at.turn.place, at.turn.parity);
        u32 tile = shared.tile_of[at.turn.place];
        if (tile == NONE) {
            return false;
        }
        if (TURNED || tile != blockIdx.x) {
            load_before(before, tile);
        }
        for (u32 first = 0; first < chunks; first += KEPT) {
            multiply_kept<0, FRESH>(first, at, inputs, sums, tile);
            if (FORM::HELD) {
                break;
            }
        }
        finish(at, tile, sums, before);
        return true;
    }

    __device__ __forceinline__ void consume() const {
        // Of many held activations those of a chunk are asked for when those of the one before are there: the first stage is
        // free sooner, and weights find a way between them.
        constexpr bool GRADUAL = FORM::HELD && FORM::INPUTS > 1 && (!FORM::GROWS || REGISTERS_MOVE);
        Cursor at;
        Inputs inputs[IN_REGISTERS];
        Part part;
        if constexpr (FORM::IN_SHARED) {
            load_part(part);
        } else {
#pragma unroll
            for (u32 kept = 0; kept < (GRADUAL ? 1 : KEPT); ++kept) {
                load(inputs[kept], chunk_at(kept < chunks ? kept : 0));
            }
        }
        Befores before;
        // Of the first tile, while activations come; turned products have no registers to spare.
        if (!TURNED) {
            load_before(before, blockIdx.x);
        }
        Tile::prepare(a, shared.factors);
        if constexpr (FORM::IN_SHARED) {
            keep(part);
        }
        TileSums sums = {};
        if (!GRADUAL || work<true>(at, inputs, sums, before)) {
            while (work<false>(at, inputs, sums, before)) {
            }
        }
        if constexpr (CHOOSES) {
            if (a.choice.best != nullptr) {
                choose(at.best);
            }
        }
    }

    __device__ __forceinline__ void run() const {
        if (threadIdx.x == 0) {
            for (u32 place = 0; place < STAGES; ++place) {
                barrier_init(shared.full + place, 1);
                barrier_init(shared.empty + place, FORM::WARPS * ARRIVALS);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        if (threadIdx.x >= THREADS) {
            if constexpr (FORM::GROWS) {
                hand_over_registers<ORDERING_REGISTERS>();
            }
            if (threadIdx.x < THREADS + WARP) {
                // Weights depend on no kernel.
                this->produce();
            }
            wait_for_previous();
        } else {
            if constexpr (FORM::GROWS) {
                take_registers<GROWN_REGISTERS>();
            }
            wait_for_previous();
            consume();
        }
    }
};

extern __shared__ __align__(128) u8 storage[];

template <typename FORM, bool GATED>
__device__ __forceinline__ void streamed(const ProductArguments& a) {
    using Kernel = Streamed<FORM, GATED>;
    __shared__ __align__(8) typename Kernel::Barriers barriers;
    let_next_start();
    float* sums = reinterpret_cast<float*>(storage + FORM::STAGES * Kernel::STAGE_BYTES);
    Tickets tickets = {a.launch, ceiling_divide(a.outputs, Kernel::Tile::OUTPUTS * FORM::GROUPS)};
    Stages<FORM, GATED> stages = {a, storage, barriers, tickets, ceiling_divide(a.columns, FORM::COLUMNS)};
    bf16* kept = reinterpret_cast<bf16*>(sums + 2 * Kernel::Tile::FLOATS);
    StageProducts<FORM, GATED> products = {stages, InputRows<FORM::INPUT_TILES>(a), kept};
    Kernel{products, sums}.run();
}

#define DEFINE(NAME, ...)                                                                                              \
    using form_##NAME = Form<__VA_ARGS__>;                                                                             \
    extern "C" __global__ void __launch_bounds__(form_##NAME::THREADS, form_##NAME::PER_MULTIPROCESSOR)                 \
        streamed_##NAME(ProductArguments a) {                                                                          \
        streamed<form_##NAME, false>(a);                                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(form_##NAME::THREADS, form_##NAME::PER_MULTIPROCESSOR)                 \
        streamed_gated_##NAME(ProductArguments a) {                                                                    \
        streamed<form_##NAME, true>(a);                                                                                \
    }

#endif
