// What a warp of a streamed product does with a stage: its share of the weights from shared memory, times activations in
// registers.
#pragma once

#include "stages.cuh"

#if ARCHWAY_HAS_TMA

template <typename FORM, bool GATED>
struct StageProducts : Stages<FORM, GATED> {
    using Base = Stages<FORM, GATED>;
    using Base::a, Base::chunks, Base::shared, Base::stages;
    using Base::COLUMNS, Base::GROUPS, Base::INPUT_TILES, Base::ROW_BYTES, Base::STAGES;
    // Those that multiply.
    static constexpr u32 THREADS = FORM::WARPS * WARP;
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

    InputRows<INPUT_TILES> rows;
    // Of kept rows in shared memory: the chunks in their order, each warp its share of them.
    bf16* kept;

    __device__ __forceinline__ u32 own_columns() const {
        return threadIdx.x / WARP * SHARE + 8 * (threadIdx.x % 4);
    }

    __device__ __forceinline__ void load(Inputs& inputs, u32 chunk) const {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
            rows.load(a, inputs[block], chunk * COLUMNS + own_columns() + block * BLOCK);
        }
    }

    // Where a lane has its 16 bytes of a block of the chunk that is `ordinal` in the order.
    __device__ __forceinline__ bf16* kept_at(u32 ordinal, u32 block) const {
        return kept + ordinal * COLUMNS + own_columns() + block * BLOCK;
    }

    // A lane's part of what its warp keeps of a row in shared memory: the eight groups of lanes would read the same, so each reads
    // other blocks.
    static constexpr u32 DEALT = FORM::IN_SHARED ? FORM::KEPT * BLOCKS / 8 : 1;
    static_assert(!FORM::IN_SHARED || FORM::KEPT * BLOCKS % 8 == 0, "every group of lanes has as many blocks");
    using Part = Vector16[DEALT][INPUT_TILES];

    static __device__ __forceinline__ u32 dealt(u32 i) {
        return 8 * i + threadIdx.x % WARP / 4;
    }

    __device__ __forceinline__ void load_part(Part& part) const {
#pragma unroll
        for (u32 i = 0; i < DEALT; ++i) {
            u32 ordinal = dealt(i) / BLOCKS, block = dealt(i) % BLOCKS;
            rows.load(a, part[i], chunk_at(ordinal < chunks ? ordinal : 0) * COLUMNS + own_columns() + block * BLOCK);
        }
    }

    __device__ __forceinline__ void keep(const Part& part) const {
#pragma unroll
        for (u32 i = 0; i < DEALT; ++i) {
            store16(kept_at(dealt(i) / BLOCKS, dealt(i) % BLOCKS), part[i][0]);
        }
        __syncwarp();
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
        Sums (&sums)[CHAINS][INPUT_TILES], const Inputs& inputs, u32 place, u32 chunk, u32 ordinal) const {
        const u8* from = stages + place * Base::STAGE_BYTES + threadIdx.x % WARP / 4 * ROW_BYTES + own_columns() * 2;
        u32 read = 0;
        if (!WHOLE || chunk * COLUMNS + threadIdx.x / WARP * SHARE < a.columns) {
#pragma unroll
            for (u32 block = 0; block < BLOCKS; block += 2) {
                u32 column = chunk * COLUMNS + own_columns() + block * BLOCK;
                if constexpr (TURNED) {
                    multiply_turned(sums, inputs + block, from + block * BLOCK * 2, read);
                } else if constexpr (FORM::IN_SHARED) {
                    Vector16 pair[2][INPUT_TILES] = {{load16(kept_at(ordinal, block))}, {load16(kept_at(ordinal, block + 1))}};
                    multiply_pair(sums, pair, from + block * BLOCK * 2, column, read);
                } else {
                    multiply_pair(sums, inputs + block, from + block * BLOCK * 2, column, read);
                }
            }
        }
        return read;
    }

    // Zero, which the compiler does not know: there are never that many rows. What is made of it depends on what was `read`.
    __device__ __forceinline__ u32 nothing(u32 read) const {
        return read & a.count >> 16;
    }

    // Says that the warp has read a stage. The arrival does not wait for reads that are still on their way, and assemblers
    // put what uses them behind it; where loads of activations keep the load unit busy, the copy engine then overwrites
    // what is not read yet. So the barrier's address depends on what was read.
    __device__ __forceinline__ void release(Turn& turn, u32 read) const {
        __syncwarp();
        if (threadIdx.x % WARP < ARRIVALS) {
            barrier_arrive(shared.empty + turn.place + nothing(read));
        }
        turn.template next<STAGES>();
    }

    // Has the assembler wait for activations here, where they depend on what was `read`, and not where they were asked for.
    __device__ __forceinline__ void await(Inputs& inputs, u32 read) const {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
            for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
#pragma unroll
                for (u32 word = 0; word < 4; ++word) {
                    inputs[block][tile].words[word] ^= nothing(read);
                }
            }
        }
    }

    // The chunk of the class's order that is so many behind its first.
    __device__ __forceinline__ u32 chunk_at(u32 ordinal) const {
        u32 chunk = this->first_chunk() + ordinal;
        return chunk < chunks ? chunk : chunk - chunks;
    }
};

#endif
