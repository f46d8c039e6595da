// Products of few rows of activations with bf16 weights: `output = input * weight^T + bias` for up to 64 rows, bound by
// the reading of the weights.
//
// Weights go from device memory to registers in the shape that the tensor cores read and are read once; a block's eight
// warps share a tile of output columns and cut the summed dimension among them. Blocks are persistent: while a tile is
// summed up and stored, the loads of the next are under way. The first loads are issued before the kernel waits for the
// one before it, because weights depend on no kernel.
#include "common.cuh"

// Where the loads or the products of a warp stand.
struct Cursor {
    u32 tile;
    u32 chunk;

    __device__ __forceinline__ void advance(u32 chunks) {
        if (++chunk == chunks) {
            chunk = 0;
            tile += gridDim.x;
        }
    }
};

// Warps that cut the summed dimension among them, and their threads.
constexpr u32 WARPS = 8;
constexpr u32 THREADS = WARPS * WARP;

// INPUT_TILES tiles of 8 rows of activations, ROW_TILES tiles of 16 rows of weights, BLOCKS blocks of columns in a
// stage; two stages of loads are in flight. Inputs travel with the weights where registers allow it (AHEAD).
template <u32 INPUT_TILES, u32 ROW_TILES, u32 BLOCKS, bool AHEAD, bool GATED>
struct Product {
    static constexpr u32 ROWS = 16 * ROW_TILES;
    static constexpr u32 CHUNK = BLOCK * BLOCKS;
    using Tile = Epilogue<ROWS, 8 * INPUT_TILES, GATED, WARPS>;
    using Factors = float[8 * INPUT_TILES];
    static constexpr u32 INPUT_STAGES = AHEAD ? 2 : 1;

    const ProductArguments& a;
    InputRows<INPUT_TILES> rows;
    u32 warp, group, place, chunks;
    Vector16 weights[2][ROW_TILES][2][BLOCKS];
    Vector16 inputs[INPUT_STAGES][BLOCKS][INPUT_TILES];
    Sums sums[ROW_TILES][INPUT_TILES];

    __device__ __forceinline__ explicit Product(const ProductArguments& arguments) : a(arguments), rows(arguments) {
        warp = threadIdx.x / WARP;
        group = threadIdx.x % WARP / 4;
        place = threadIdx.x % 4;
        chunks = ceiling_divide(a.columns, WARPS * CHUNK);
        clear();
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (u32 row = 0; row < ROW_TILES; ++row) {
#pragma unroll
            for (u32 input = 0; input < INPUT_TILES; ++input) {
                sums[row][input] = Sums{};
            }
        }
    }

    // The lane's first column of a chunk's block.
    __device__ __forceinline__ u32 column(u32 chunk, u32 block) const {
        return (chunk * WARPS + warp) * CHUNK + block * BLOCK + 8 * place;
    }

    __device__ __forceinline__ void load_weights(u32 stage, const Cursor& at) {
#pragma unroll
        for (u32 row = 0; row < ROW_TILES; ++row) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                u32 weight_row = Tile::weight_row(a, at.tile, 16 * row + 8 * half + group);
                const bf16* from = a.weight + static_cast<u64>(weight_row) * a.columns;
#pragma unroll
                for (u32 block = 0; block < BLOCKS; ++block) {
                    u32 first = column(at.chunk, block);
                    Vector16 vector = {};
                    if (first < a.columns) {
                        vector = load16_streaming(from + first);
                    }
                    weights[stage][row][half][block] = vector;
                }
            }
        }
    }

    __device__ __forceinline__ void load_stage_inputs(u32 stage, const Cursor& at) {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
            rows.load(a, inputs[stage][block], column(at.chunk, block));
        }
    }

    __device__ __forceinline__ void multiply_stage(u32 stage, u32 input_stage) {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
            for (u32 row = 0; row < ROW_TILES; ++row) {
                const Vector16(&halves)[2][BLOCKS] = weights[stage][row];
                multiply(sums[row], sums[row], halves[0][block], halves[1][block], inputs[input_stage][block]);
            }
        }
    }

    // What follows the products of a chunk: at the end of a tile, the sum over the warps.
    __device__ __forceinline__ void finish(float* shared, const Factors& factors, const Cursor& at) {
        if (at.chunk + 1 < chunks) {
            return;
        }
        Tile::write(shared, sums, a.count);
        clear();
        __syncthreads();
        auto before_sum = [this](u32 input, u32 output) {
            Before before;
            before.load(a, input, output);
            return before;
        };
        Tile::store(a, shared, factors, at.tile, threadIdx.x, THREADS, before_sum, [](u32, float) {});
        __syncthreads();
    }

    template <u32 STAGE>
    __device__ __forceinline__ void turn(float* shared, const Factors& factors, Cursor& work, Cursor& load, u32 ahead) {
        if constexpr (!AHEAD) {
            load_stage_inputs(0, work);
        }
        multiply_stage(STAGE, AHEAD ? STAGE : 0);
        if (ahead > 0) {
            load_weights(STAGE, load);
            if constexpr (AHEAD) {
                load_stage_inputs(STAGE, load);
            }
            load.advance(chunks);
        }
        finish(shared, factors, work);
        work.advance(chunks);
    }

    __device__ __forceinline__ void run(float* shared, Factors& factors) {
        u32 tiles = ceiling_divide(a.outputs, Tile::OUTPUTS);
        u32 turns = blockIdx.x < tiles ? ceiling_divide(tiles - blockIdx.x, gridDim.x) * chunks : 0;
        Cursor work = {blockIdx.x, 0}, first = work, second = work;
        second.advance(chunks);
        if (turns > 0) {
            load_weights(0, first);
        }
        if (turns > 1) {
            load_weights(1, second);
        }
        wait_for_previous();
        if constexpr (AHEAD) {
            if (turns > 0) {
                load_stage_inputs(0, first);
            }
            if (turns > 1) {
                load_stage_inputs(1, second);
            }
        }
        Tile::prepare(a, factors);
        Cursor load = second;
        load.advance(chunks);
        for (u32 turn_index = 0; turn_index < turns; turn_index += 2) {
            u32 left = turns - turn_index;
            turn<0>(shared, factors, work, load, left > 2 ? 1 : 0);
            if (left > 1) {
                turn<1>(shared, factors, work, load, left > 3 ? 1 : 0);
            }
        }
    }
};

extern __shared__ float shared_sums[];

template <u32 INPUT_TILES, u32 ROW_TILES, u32 BLOCKS, bool AHEAD, bool GATED>
__device__ __forceinline__ void direct(const ProductArguments& a) {
    __shared__ float factors[8 * INPUT_TILES];
    let_next_start();
    Product<INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, GATED>(a).run(shared_sums, factors);
}

#define DEFINE(NAME, INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, PER_MULTIPROCESSOR)                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) product_##NAME(ProductArguments a) { \
        direct<INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, false>(a);                                                      \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) gated_##NAME(ProductArguments a) {   \
        direct<INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, true>(a);                                                       \
    }

DEFINE(8, 1, 1, 4, true, 2)
DEFINE(16, 2, 1, 2, true, 2)
DEFINE(32, 4, 2, 2, false, 1)
DEFINE(64, 8, 2, 2, false, 1)
