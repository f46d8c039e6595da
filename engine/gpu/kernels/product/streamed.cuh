// Products of few rows of activations with bf16 weights, as in product.cu, where the bulk copy engine brings the weights
// to shared memory: one warp orders them, far ahead of those that multiply, so that memory is never idle and no register
// waits for it. This is what the forms of streamed.cu, held.cu and wide.cu share.
#pragma once

#include "stages.cuh"

#if ARCHWAY_HAS_TMA

template <typename FORM, bool GATED>
struct Streamed : Stages<FORM, GATED> {
    using Base = Stages<FORM, GATED>;
    using Base::a, Base::chunks, Base::chunk_after, Base::shared, Base::stages;
    using Tile = typename Base::Tile;
    static constexpr u32 INPUT_TILES = FORM::INPUT_TILES, COLUMNS = FORM::COLUMNS, ROW_BYTES = Base::ROW_BYTES;
    static constexpr u32 KEPT = FORM::KEPT, GROUPS = FORM::GROUPS, STAGES = FORM::STAGES, THREADS = FORM::WARPS * WARP;
    static constexpr u32 SHARE = COLUMNS / FORM::WARPS;
    static constexpr u32 BLOCKS = SHARE / BLOCK;
    static_assert(BLOCKS % 2 == 0, "blocks are read in pairs");

    // A lane's activations of a chunk.
    using Inputs = Vector16[BLOCKS][INPUT_TILES];
    // Where few warps multiply, products go to two sums in turns: neither waits for the other.
    static constexpr u32 CHAINS = FORM::WARPS < 16 && FORM::PER_MULTIPROCESSOR != 2 ? 2 : 1;
    using TileSums = Sums[GROUPS][CHAINS][INPUT_TILES];
    // Whether columns come in whole shares: a warp has all of its own of a chunk, or none.
    static constexpr bool WHOLE = FORM::HELD || FORM::PER_MULTIPROCESSOR == 1;
    // Weights are the tensor cores' left tile. Where two tiles of inputs are held, these are, and the sums of `[half]` are
    // those of eight rows of the weight each: fewer weights are in registers at once.
    static constexpr bool TURNED = FORM::HELD && INPUT_TILES == 2;

    // Whether the largest output of each row may be chosen: with more rows there are no registers for it. The twin of
    // `Size::chooses` in src/kernels/product/size.rs.
    static constexpr bool CHOOSES = !GATED && FORM::INPUTS <= 8;

    // Where a multiplying warp is.
    struct Cursor {
        Turn turn;
        // Groups of rows that are finished.
        u32 finished = 0;
        // The best rank of the thread's outputs, which are all of one row of activations.
        u64 best = 0;
    };

    float* sums_of_warps;
    InputRows<INPUT_TILES> rows;

    __device__ __forceinline__ u32 own_columns() const {
        return threadIdx.x / WARP * SHARE + 8 * (threadIdx.x % 4);
    }

    __device__ __forceinline__ void load(Inputs& inputs, u32 chunk) const {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
            rows.load(a, inputs[block], chunk * COLUMNS + own_columns() + block * BLOCK);
        }
    }

    // Of a lane's words from `word` on, of both tiles of inputs.
    static __device__ __forceinline__ LeftTile left_tile(const Vector16 (&inputs)[INPUT_TILES], u32 word) {
        const Vector16 &low = inputs[0], &high = inputs[INPUT_TILES - 1];
        return {{low.words[word], high.words[word], low.words[word + 1], high.words[word + 1]}};
    }

    // Rows of weights start in the same bank, so every other row is read the other way round: no two groups of a quarter of a
    // warp meet. Of the two blocks of a pair this is the one that a lane reads in turn `i`.
    static __device__ __forceinline__ u32 block_in_turn(u32 i) {
        return threadIdx.x / 4 % 2 == 1 ? 1 - i : i;
    }

    static __device__ __forceinline__ void put_in_order(Vector16 (&pair)[2]) {
        bool odd = threadIdx.x / 4 % 2 == 1;
#pragma unroll
        for (u32 word = 0; word < 4; ++word) {
            u32 first = pair[0].words[word], second = pair[1].words[word];
            pair[0].words[word] = odd ? second : first;
            pair[1].words[word] = odd ? first : second;
        }
    }

    // A pair of blocks from `from` on, a lane's 16 bytes of rows `group` and `group + 8` of each, and their products with
    // `inputs`. `read` depends on the arrival of every word.
    __device__ __forceinline__ void multiply_pair(
        Sums (&sums)[CHAINS][INPUT_TILES], const Vector16 (*inputs)[INPUT_TILES], const u8* from, u32 column, u32& read) const {
        Vector16 low[2] = {}, high[2] = {};
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            u32 block = block_in_turn(i);
            if (WHOLE || column + block * BLOCK < a.columns) {
                low[i] = load16(from + block * BLOCK * 2);
                high[i] = load16(from + 8 * ROW_BYTES + block * BLOCK * 2);
            }
            read ^= low[i].words[0] ^ high[i].words[0];
        }
        put_in_order(low);
        put_in_order(high);
        multiply(sums[0], sums[CHAINS - 1], low[0], high[0], inputs[0]);
        multiply(sums[0], sums[CHAINS - 1], low[1], high[1], inputs[1]);
    }

    // The same with the inputs on the left, eight rows of the weight after the other.
    __device__ __forceinline__ void multiply_turned(
        Sums (&sums)[CHAINS][INPUT_TILES], const Vector16 (*inputs)[INPUT_TILES], const u8* from, u32& read) const {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            Vector16 weights[2];
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                weights[i] = load16(from + half * 8 * ROW_BYTES + block_in_turn(i) * BLOCK * 2);
                read ^= weights[i].words[0];
            }
            put_in_order(weights);
#pragma unroll
            for (u32 word = 0; word < 8; word += 2) {
                const u32(&words)[4] = weights[word / 4].words;
                multiply_add(sums[0][half], left_tile(inputs[word / 4], word % 4), words[word % 4], words[word % 4 + 1]);
            }
        }
    }

    __device__ __forceinline__ u32 multiply_stage(
        Sums (&sums)[CHAINS][INPUT_TILES], const Inputs& inputs, u32 place, u32 chunk) const {
        const u8* from = stages + place * Base::STAGE_BYTES + threadIdx.x % WARP / 4 * ROW_BYTES + own_columns() * 2;
        u32 read = 0;
        if (!WHOLE || chunk * COLUMNS + threadIdx.x / WARP * SHARE < a.columns) {
#pragma unroll
            for (u32 block = 0; block < BLOCKS; block += 2) {
                if constexpr (TURNED) {
                    multiply_turned(sums, inputs + block, from + block * BLOCK * 2, read);
                } else {
                    u32 column = chunk * COLUMNS + own_columns() + block * BLOCK;
                    multiply_pair(sums, inputs + block, from + block * BLOCK * 2, column, read);
                }
            }
        }
        return read;
    }

    // Says that the warp has read a stage. The arrival does not wait for reads that are still on their way, and assemblers
    // put what uses them behind it; where loads of activations keep the load unit busy, the copy engine then overwrites
    // what is not read yet. So the barrier's address depends on what was read.
    __device__ __forceinline__ void release(Turn& turn, u32 read) const {
        __syncwarp();
        if (threadIdx.x % WARP < ARRIVALS) {
            // There are never that many, which the compiler does not know.
            u32 nothing = a.count >> 16;
            barrier_arrive(shared.empty + turn.place + (read & nothing));
        }
        turn.template next<STAGES>();
    }

    // Of the thread's output in a tile, which has no more outputs than there are threads.
    __device__ __forceinline__ Before before_tile(u32 tile) const {
        static_assert(Tile::OUTPUTS * FORM::INPUTS <= THREADS, "a thread stores once");
        Before before;
        u32 row, input, output;
        if (!GATED && a.residual != nullptr && Tile::place(a, tile, threadIdx.x, row, input, output)) {
            before.load(a, input, output);
        }
        return before;
    }

    __device__ __forceinline__ void load_before(Before (&before)[GROUPS], u32 tile) const {
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group) {
            before[group] = before_tile(tile * GROUPS + group);
        }
    }

    // The block's sums of a tile, in the order of the warps.
    __device__ __forceinline__ void finish(Cursor& at, u32 tile, TileSums& sums, const Before (&before)[GROUPS]) const {
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group) {
            // Whoever reads what was written two turns ago has met the others since.
            float* buffer = sums_of_warps + at.finished % 2 * Tile::FLOATS;
            Sums whole[1][INPUT_TILES];
#pragma unroll
            for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    float even = sums[group][0][tile].values[i], odd = sums[group][CHAINS - 1][tile].values[i];
                    whole[0][tile].values[i] = CHAINS == 2 ? even + odd : even;
                }
                sums[group][0][tile] = sums[group][CHAINS - 1][tile] = Sums{};
            }
            if constexpr (TURNED) {
                Tile::write_turned(buffer, whole[0]);
            } else {
                Tile::write(buffer, whole, a.count);
            }
            // The multiplying warps alone.
            asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
            const Before& mine = before[group];
            auto before_sum = [&](u32, u32) { return mine; };
            auto see = [&](u32 output, float value) {
                if constexpr (CHOOSES) {
                    u64 rank = rank_of(value, output);
                    at.best = rank > at.best ? rank : at.best;
                }
            };
            Tile::store(a, buffer, shared.factors, tile * GROUPS + group, before_sum, see);
            ++at.finished;
        }
    }

    // The threads of a row of activations are neighbours.
    __device__ __forceinline__ void choose(u64 best) const {
        constexpr u32 OUTPUTS = Tile::OUTPUTS;
#pragma unroll
        for (u32 distance = OUTPUTS / 2; distance > 0; distance /= 2) {
            u64 other = __shfl_xor_sync(ALL_LANES, best, distance);
            best = other > best ? other : best;
        }
        u32 row = threadIdx.x / OUTPUTS;
        if (threadIdx.x % OUTPUTS == 0 && row < a.count) {
            a.choice.give(row, best, gridDim.x);
        }
    }

    // The chunk of the class's order that is so many behind its first.
    __device__ __forceinline__ u32 chunk_at(u32 ordinal) const {
        u32 chunk = this->first_chunk() + ordinal;
        return chunk < chunks ? chunk : chunk - chunks;
    }

    // Chunks of a tile from the `first` on, as many as are kept: the one whose activations are `inputs[AT]`, and those
    // behind it.
    template <u32 AT>
    __device__ __forceinline__ void multiply_kept(u32 first, Cursor& at, Inputs (&inputs)[KEPT], TileSums& sums) const {
        u32 ordinal = first + AT;
        if (ordinal >= chunks) {
            return;
        }
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group) {
            barrier_wait(shared.full + at.turn.place, at.turn.parity);
            u32 read = multiply_stage(sums[group], inputs[AT], at.turn.place, chunk_at(ordinal));
            release(at.turn, read);
        }
        if constexpr (!FORM::HELD) {
            // From a cache, before the weights are waited for: of this tile, or of the next one, which begins as this one.
            load(inputs[AT], chunk_at(ordinal + KEPT < chunks ? ordinal + KEPT : AT < chunks ? AT : 0));
        }
        if constexpr (AT + 1 < KEPT) {
            multiply_kept<AT + 1>(first, at, inputs, sums);
        }
    }

    __device__ __forceinline__ void consume() const {
        Cursor at;
        Inputs inputs[KEPT];
#pragma unroll
        for (u32 kept = 0; kept < KEPT; ++kept) {
            load(inputs[kept], chunk_at(kept < chunks ? kept : 0));
        }
        Before before[GROUPS];
        // Of the first tile, while activations come; turned products have no registers to spare.
        if (!TURNED) {
            load_before(before, blockIdx.x);
        }
        Tile::prepare(a, shared.factors);
        TileSums sums = {};
        for (;;) {
            barrier_wait(shared.full + at.turn.place, at.turn.parity);
            u32 tile = shared.tile_of[at.turn.place];
            if (tile == NONE) {
                if (CHOOSES && a.choice.best != nullptr) {
                    choose(at.best);
                }
                return;
            }
            if (TURNED || tile != blockIdx.x) {
                load_before(before, tile);
            }
            for (u32 first = 0; first < chunks; first += KEPT) {
                multiply_kept<0>(first, at, inputs, sums);
                if (FORM::HELD) {
                    break;
                }
            }
            finish(at, tile, sums, before);
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
            // Weights depend on no kernel.
            this->produce();
            wait_for_previous();
        } else {
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
    Kernel{stages, sums, InputRows<FORM::INPUT_TILES>(a)}.run();
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
