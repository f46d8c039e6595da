// What both kinds of product share: the arguments, and what follows the sums of a block's warps.
#pragma once

#include "matrix.cuh"
#include "tokens.cuh"

// The RMS norm between two products has no kernel of its own: `weight * (h * norm / root(h)) = (weight * (h * norm)) /
// root(h)`. The product in front of it adds to the residual stream, gives `h * norm` and sums of squares of h; the product
// behind it reads `h * norm` and multiplies its sums by the inverse root.
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
    // Of the streamed kernels: no two launches that may overlap have the same.
    u32 launch;
    // Of the norm of the input.
    float epsilon;
    // `[count, outputs]`, or null: the product is added to it, and the output is the sum times `norm`, bf16 without gaps.
    bf16* residual;
    // `[outputs]`
    const float* norm;
    // `[count, outputs / SQUARES]`: of the sums, as rounded, every SQUARES neighbours' squares.
    float* squares;
    // The same of the rows that the input was made of, `[.., columns / SQUARES]`, or null where it is not to be scaled.
    const float* input_squares;
    // Rows of `input`, and of those, that are multiplied, or null for the first ones. No kernel of the pass writes them.
    const u32* input_rows;
    // Of the streamed kernels with f32 outputs that have `choice.best`: the largest of each row is chosen.
    Choice choice;
};

// Columns that a lane's 16 bytes of each of four places cover.
constexpr u32 BLOCK = 32;
// Neighbouring outputs whose squares are summed at once.
constexpr u32 SQUARES = 16;

// What a row's products are multiplied by, of `lane`s of a warp that all ask for the same row.
__device__ __forceinline__ float norm_factor(const ProductArguments& a, u32 row) {
    constexpr u32 AT_ONCE = 8;
    u32 slots = a.columns / SQUARES;
    const float* squares = a.input_squares + static_cast<u64>(a.input_rows != nullptr ? a.input_rows[row] : row) * slots;
    float sum = 0.0f;
    // A turn or two: copies of it would take registers that hold activations.
#pragma unroll 1
    for (u32 first = threadIdx.x % WARP; first < slots; first += AT_ONCE * WARP) {
        // All of them are on their way before the first is added.
        float values[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; ++i) {
            values[i] = first + i * WARP < slots ? squares[first + i * WARP] : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; ++i) {
            sum += values[i];
        }
    }
    return rsqrtf(warp_sum(sum) / static_cast<float>(a.columns) + a.epsilon);
}

// What is in the residual stream before a product is added, and the weight of the norm behind it.
struct Before {
    float residual = 0.0f;
    float norm = 0.0f;

    __device__ __forceinline__ void load(const ProductArguments& a, u32 input, u32 output) {
        residual = to_float(a.residual[static_cast<u64>(input) * a.outputs + output]);
        norm = a.norm[output];
    }
};

// The sums of WARPS warps, which cut the summed dimension among them, over a tile of ROWS rows of the weight and INPUTS rows of
// activations, in shared memory.
template <u32 ROWS, u32 INPUTS, bool GATED, u32 WARPS>
struct Epilogue {
    static constexpr u32 OUTPUTS = GATED ? ROWS / 2 : ROWS;
    // One more than the inputs: rows start in different banks.
    static constexpr u32 STRIDE = INPUTS + 1;
    static constexpr u32 OF_WARP = ROWS * STRIDE;
    static constexpr u32 FLOATS = WARPS * OF_WARP;

    // Row of the weight behind row `row` of a tile; the last one where there is none. Gated tiles have eight gates, then
    // what they gate, and so on.
    static __device__ __forceinline__ u32 weight_row(const ProductArguments& a, u32 tile, u32 row) {
        u32 output = tile * OUTPUTS + (GATED ? row / 16 * 8 + row % 8 : row);
        output = output < a.outputs ? output : a.outputs - 1;
        return GATED && row / 8 % 2 == 1 ? output + a.outputs : output;
    }

    // Of the first `inputs` rows of activations: the others are none.
    template <u32 ROW_TILES, u32 INPUT_TILES>
    static __device__ __forceinline__ void write(
        float* shared, const Sums (&sums)[ROW_TILES][INPUT_TILES], u32 inputs) {
        u32 group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
        float* mine = shared + threadIdx.x / WARP * OF_WARP;
#pragma unroll
        for (u32 row = 0; row < ROW_TILES; ++row) {
#pragma unroll
            for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    u32 at = 16 * row + 8 * (i / 2) + group;
                    u32 input = 8 * tile + 2 * place + i % 2;
                    if (input < inputs) {
                        mine[at * STRIDE + input] = sums[row][tile].values[i];
                    }
                }
            }
        }
    }

    // The same of products whose left tile is two tiles of inputs, `sums[half]` of eight rows of the weight each.
    static __device__ __forceinline__ void write_turned(float* shared, const Sums (&sums)[2]) {
        u32 group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
        float* mine = shared + threadIdx.x / WARP * OF_WARP;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                mine[(8 * half + 2 * place + i % 2) * STRIDE + 8 * (i / 2) + group] = sums[half].values[i];
            }
        }
    }

    // The warps' sums of a row of the tile and an input, in the order of the warps.
    static __device__ __forceinline__ float total(const float* shared, u32 row, u32 input) {
        float sum = 0.0f;
#pragma unroll
        for (u32 warp = 0; warp < WARPS; ++warp) {
            sum += shared[warp * OF_WARP + row * STRIDE + input];
        }
        return sum;
    }

    static __device__ __forceinline__ float activate(const ProductArguments& a, float gate) {
        float inner = a.activation == 0 ? gate : 1.595769f * (gate + 0.044715f * gate * gate * gate);
        return gate / (1.0f + __expf(-inner));
    }

    // What each row's products are multiplied by. To be done by the summing warps before they first meet.
    static __device__ __forceinline__ void prepare(const ProductArguments& a, float (&factors)[INPUTS]) {
        for (u32 row = threadIdx.x / WARP; row < INPUTS && row < a.count; row += WARPS) {
            float factor = a.input_squares != nullptr ? norm_factor(a, row) : 1.0f;
            if (threadIdx.x % WARP == 0) {
                factors[row] = factor;
            }
        }
    }

    // Adds to the residual stream. The SQUARES threads of neighbouring outputs call this together.
    static __device__ __forceinline__ void add(
        const ProductArguments& a, u32 input, u32 output, const Before& before, float value) {
        u64 at = static_cast<u64>(input) * a.outputs + output;
        bf16 rounded = to_bf16(before.residual + value);
        // What the next layer will read is what is normalised.
        float sum = to_float(rounded), squares = sum * sum;
        a.residual[at] = rounded;
        static_cast<bf16*>(a.output)[at] = to_bf16(sum * before.norm);
        u32 together = 0xffffu << (threadIdx.x % WARP / SQUARES * SQUARES);
#pragma unroll
        for (u32 distance = SQUARES / 2; distance > 0; distance /= 2) {
            squares += __shfl_xor_sync(together, squares, distance);
        }
        if (output % SQUARES == 0) {
            a.squares[at / SQUARES] = squares;
        }
    }

    // The thread's output in a tile at its turn `index`; false where it has none.
    static __device__ __forceinline__ bool place(
        const ProductArguments& a, u32 tile, u32 index, u32& row, u32& input, u32& output) {
        row = index % OUTPUTS;
        input = index / OUTPUTS;
        output = tile * OUTPUTS + row;
        return output < a.outputs && input < a.count;
    }

    // Stores the thread's outputs in a tile: those at `first`, and every `step` behind it. `before` says what is in the residual
    // stream at (input, output); `see` is told of each sum that is stored as such.
    template <typename Find, typename See>
    static __device__ __forceinline__ void store(
        const ProductArguments& a,
        const float* shared,
        const float (&factors)[INPUTS],
        u32 tile,
        u32 first,
        u32 step,
        const Find& before,
        const See& see) {
        u32 inputs_here = a.count < INPUTS ? a.count : INPUTS;
        // A turn or two: copies of it would only take room.
#pragma unroll 1
        for (u32 index = first; index < OUTPUTS * inputs_here; index += step) {
            u32 row, input, output;
            if (!place(a, tile, index, row, input, output)) {
                continue;
            }
            float value;
            if constexpr (GATED) {
                u32 gate_row = row / 8 * 16 + row % 8;
                float gate = total(shared, gate_row, input) * factors[input];
                float up = total(shared, gate_row + 8, input) * factors[input];
                if (a.bias != nullptr) {
                    gate += a.bias[output];
                    up += a.bias[output + a.outputs];
                }
                value = activate(a, gate) * up;
            } else {
                value = total(shared, row, input) * factors[input] + (a.bias != nullptr ? a.bias[output] : 0.0f);
                if (a.residual != nullptr) {
                    add(a, input, output, before(input, output), value);
                    continue;
                }
            }
            u64 to = static_cast<u64>(input) * a.stride + output;
            if (a.float_output) {
                static_cast<float*>(a.output)[to] = value;
                see(output, value);
            } else {
                static_cast<bf16*>(a.output)[to] = to_bf16(value);
            }
        }
    }
};

// The rows of the input that a lane reads: row `group` of each tile of 8. Where there is none it is another one: nobody stores
// what comes of it.
template <u32 INPUT_TILES>
struct InputRows {
    u32 rows[INPUT_TILES];

    __device__ __forceinline__ explicit InputRows(const ProductArguments& a) {
#pragma unroll
        for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
            u32 row = 8 * tile + threadIdx.x % WARP / 4;
            row = row < a.count ? row : a.count - 1;
            rows[tile] = a.input_rows != nullptr ? a.input_rows[row] : row;
        }
    }

    // 16 bytes of each from column `first` on; where there is none from another one, for weights of such a column are zeros.
    // So no load depends on a condition, which would have every few of them arrive before the next are asked for.
    __device__ __forceinline__ void load(const ProductArguments& a, Vector16 (&inputs)[INPUT_TILES], u32 first) const {
        u32 column = first < a.columns ? first : 0;
#pragma unroll
        for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
            inputs[tile] = load16(a.input + static_cast<u64>(rows[tile]) * a.columns + column);
        }
    }
};

// Two products of a tile of 16 rows: `low` and `high` are a lane's 16 bytes of rows `group` and `group + 8`. `odd` are the
// sums of the second product; where they are others than those of the first, neither waits for the other.
template <u32 INPUT_TILES>
__device__ __forceinline__ void multiply(
    Sums (&sums)[INPUT_TILES], Sums (&odd)[INPUT_TILES], const Vector16& low, const Vector16& high, const Vector16 (&inputs)[INPUT_TILES]) {
    LeftTile first = {{low.words[0], high.words[0], low.words[1], high.words[1]}};
    LeftTile second = {{low.words[2], high.words[2], low.words[3], high.words[3]}};
#pragma unroll
    for (u32 tile = 0; tile < INPUT_TILES; ++tile) {
        multiply_add(sums[tile], first, inputs[tile].words[0], inputs[tile].words[1]);
        multiply_add(odd[tile], second, inputs[tile].words[2], inputs[tile].words[3]);
    }
}
