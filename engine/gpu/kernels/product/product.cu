// Products of few rows of activations with bf16 weights: `output = input * weight^T + bias` for up to 64 rows, bound by
// the reading of the weights.
//
// Weights go from device memory to registers in the shape that the tensor cores read and are read once; a block's eight
// warps share a tile of output columns and cut the summed dimension among them. Blocks are persistent: while a tile is
// summed up and stored, the loads of the next are under way. The first loads are issued before the kernel waits for the
// one before it, because weights depend on no kernel.
#include "matrix.cuh"

struct ProductArguments {
    // `[outputs, columns]`; gated: `[2 * outputs, columns]`, gates first.
    const bf16* weight;
    // `[count, columns]`
    const bf16* input;
    // One per row of the weight, or null.
    const float* bias;
    // bf16 or f32, `[count, outputs]` with `stride` elements from row to row.
    void* output;
    u32 outputs;
    u32 columns;
    u32 count;
    u32 stride;
    u32 float_output;
    // Of the gated kernels: 0 is SiLU, 1 is GELU with the hyperbolic tangent.
    u32 activation;
};

constexpr u32 WARPS = 8;
constexpr u32 THREADS = WARPS * WARP;
// Columns that a lane's 16 bytes of each of four places cover.
constexpr u32 BLOCK = 32;

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

// INPUT_TILES tiles of 8 rows of activations, ROW_TILES tiles of 16 rows of weights, BLOCKS blocks of columns in a
// stage; two stages of loads are in flight. Inputs travel with the weights where registers allow it (AHEAD).
template <u32 INPUT_TILES, u32 ROW_TILES, u32 BLOCKS, bool AHEAD, bool GATED>
struct Product {
    static constexpr u32 ROWS = 16 * ROW_TILES;
    static constexpr u32 OUTPUTS = GATED ? ROWS / 2 : ROWS;
    static constexpr u32 INPUTS = 8 * INPUT_TILES;
    static constexpr u32 CHUNK = BLOCK * BLOCKS;
    // One more than the inputs: rows start in different banks.
    static constexpr u32 SUM_STRIDE = INPUTS + 1;
    static constexpr u32 SUMS_OF_WARP = ROWS * SUM_STRIDE;
    static constexpr u32 INPUT_STAGES = AHEAD ? 2 : 1;

    const ProductArguments& a;
    u32 warp, group, place, chunks;
    Vector16 weights[2][ROW_TILES][2][BLOCKS];
    Vector16 inputs[INPUT_STAGES][INPUT_TILES][BLOCKS];
    Sums sums[ROW_TILES][INPUT_TILES];

    __device__ __forceinline__ explicit Product(const ProductArguments& arguments) : a(arguments) {
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

    // Row of the weight behind row `row` of half `half` of a tile; the last one where there is none.
    __device__ __forceinline__ u32 weight_row(u32 tile, u32 row_tile, u32 half) const {
        u32 row = GATED ? tile * OUTPUTS + 8 * row_tile + group : tile * ROWS + 16 * row_tile + 8 * half + group;
        row = row < a.outputs ? row : a.outputs - 1;
        return GATED && half == 1 ? row + a.outputs : row;
    }

    __device__ __forceinline__ void load_weights(u32 stage, const Cursor& at) {
#pragma unroll
        for (u32 row = 0; row < ROW_TILES; ++row) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const bf16* from = a.weight + static_cast<u64>(weight_row(at.tile, row, half)) * a.columns;
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

    __device__ __forceinline__ void load_inputs(u32 stage, const Cursor& at) {
#pragma unroll
        for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
            u32 row = 8 * tile + group;
            const bf16* from = a.input + static_cast<u64>(row) * a.columns;
#pragma unroll
            for (u32 block = 0; block < BLOCKS; ++block) {
                u32 first = column(at.chunk, block);
                Vector16 vector = {};
                if (row < a.count && first < a.columns) {
                    vector = load16(from + first);
                }
                inputs[stage][tile][block] = vector;
            }
        }
    }

    __device__ __forceinline__ void multiply(u32 stage, u32 input_stage) {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
            for (u32 row = 0; row < ROW_TILES; ++row) {
                const u32(&low)[4] = weights[stage][row][0][block].words;
                const u32(&high)[4] = weights[stage][row][1][block].words;
                LeftTile first = {{low[0], high[0], low[1], high[1]}}, second = {{low[2], high[2], low[3], high[3]}};
#pragma unroll
                for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
                    const u32(&input)[4] = inputs[input_stage][tile][block].words;
                    multiply_add(sums[row][tile], first, input[0], input[1]);
                    multiply_add(sums[row][tile], second, input[2], input[3]);
                }
            }
        }
    }

    __device__ __forceinline__ void write_sums(float* shared) {
        float* mine = shared + warp * SUMS_OF_WARP;
#pragma unroll
        for (u32 row = 0; row < ROW_TILES; ++row) {
#pragma unroll
            for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    u32 at = 16 * row + 8 * (i / 2) + group;
                    mine[at * SUM_STRIDE + 8 * tile + 2 * place + i % 2] = sums[row][tile].values[i];
                }
            }
        }
    }

    // The warps' sums of a row of the tile and an input, in the order of the warps.
    static __device__ __forceinline__ float total(const float* shared, u32 row, u32 input) {
        float sum = 0.0f;
#pragma unroll
        for (u32 warp = 0; warp < WARPS; ++warp) {
            sum += shared[warp * SUMS_OF_WARP + row * SUM_STRIDE + input];
        }
        return sum;
    }

    __device__ __forceinline__ float activate(float gate) const {
        float inner = a.activation == 0 ? gate : 1.595769f * (gate + 0.044715f * gate * gate * gate);
        return gate / (1.0f + __expf(-inner));
    }

    __device__ __forceinline__ void store(const float* shared, u32 tile) {
        u32 inputs_here = a.count < INPUTS ? a.count : INPUTS;
        for (u32 index = threadIdx.x; index < OUTPUTS * inputs_here; index += THREADS) {
            u32 row = index % OUTPUTS, input = index / OUTPUTS, output = tile * OUTPUTS + row;
            if (output >= a.outputs) {
                continue;
            }
            float value;
            if constexpr (GATED) {
                u32 gate_row = row / 8 * 16 + row % 8;
                float gate = total(shared, gate_row, input), up = total(shared, gate_row + 8, input);
                if (a.bias != nullptr) {
                    gate += a.bias[output];
                    up += a.bias[output + a.outputs];
                }
                value = activate(gate) * up;
            } else {
                value = total(shared, row, input) + (a.bias != nullptr ? a.bias[output] : 0.0f);
            }
            u64 to = static_cast<u64>(input) * a.stride + output;
            if (a.float_output) {
                static_cast<float*>(a.output)[to] = value;
            } else {
                static_cast<bf16*>(a.output)[to] = to_bf16(value);
            }
        }
    }

    // What follows the products of a chunk: at the end of a tile, the sum over the warps.
    __device__ __forceinline__ void finish(float* shared, const Cursor& at) {
        if (at.chunk + 1 < chunks) {
            return;
        }
        write_sums(shared);
        clear();
        __syncthreads();
        store(shared, at.tile);
        __syncthreads();
    }

    template <u32 STAGE>
    __device__ __forceinline__ void turn(float* shared, Cursor& work, Cursor& load, u32 ahead) {
        if constexpr (!AHEAD) {
            load_inputs(0, work);
        }
        multiply(STAGE, AHEAD ? STAGE : 0);
        if (ahead > 0) {
            load_weights(STAGE, load);
            if constexpr (AHEAD) {
                load_inputs(STAGE, load);
            }
            load.advance(chunks);
        }
        finish(shared, work);
        work.advance(chunks);
    }

    __device__ __forceinline__ void run(float* shared) {
        u32 tiles = ceiling_divide(a.outputs, OUTPUTS);
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
                load_inputs(0, first);
            }
            if (turns > 1) {
                load_inputs(1, second);
            }
        }
        Cursor load = second;
        load.advance(chunks);
        for (u32 turn_index = 0; turn_index < turns; turn_index += 2) {
            u32 left = turns - turn_index;
            turn<0>(shared, work, load, left > 2 ? 1 : 0);
            if (left > 1) {
                turn<1>(shared, work, load, left > 3 ? 1 : 0);
            }
        }
    }
};

extern __shared__ float shared_sums[];

#define DEFINE(NAME, INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, PER_MULTIPROCESSOR)                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) product_##NAME(ProductArguments a) { \
        let_next_start();                                                                                             \
        Product<INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, false>(a).run(shared_sums);                                    \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) gated_##NAME(ProductArguments a) {   \
        let_next_start();                                                                                             \
        Product<INPUT_TILES, ROW_TILES, BLOCKS, AHEAD, true>(a).run(shared_sums);                                     \
    }

DEFINE(8, 1, 1, 4, true, 2)
DEFINE(16, 2, 1, 2, true, 2)
DEFINE(32, 4, 2, 2, false, 1)
DEFINE(64, 8, 2, 2, false, 1)
