// Products with weights of any stored format, for any number of rows and for widths that product.cu does not take, and
// conversion of whole matrices to bf16. A weight is converted where it is read; arithmetic is f32.
#include "formats.cuh"
#include "reduce.cuh"

struct QuantisedArguments {
    // `[outputs, columns]` in its format.
    const u8* weight;
    // `[count, columns]`
    const bf16* input;
    const float* bias;
    // bf16 or f32, `[count, outputs]` with `stride` elements from row to row.
    void* output;
    u32 outputs;
    u32 columns;
    u32 count;
    u32 stride;
    u32 float_output;
    u32 reserved;
};

constexpr u32 WARPS = 4;
constexpr u32 MOST_INPUTS = 8;
// Columns that a warp takes at once, and how often it does before it waits for the kernel before it.
constexpr u32 STEP = WARP * 8;
constexpr u32 AHEAD = 3;

template <u32 INPUTS>
__device__ __forceinline__ void multiply_piece(
    const QuantisedArguments& a, float (&sums)[INPUTS], const float (&weights)[8], u32 first, u32 column) {
#pragma unroll
    for (u32 i = 0; i < INPUTS; ++i) {
        if (first + i < a.count) {
            float values[8];
            unpack(load16(a.input + static_cast<u64>(first + i) * a.columns + column), values);
#pragma unroll
            for (u32 k = 0; k < 8; ++k) {
                sums[i] += weights[k] * values[k];
            }
        }
    }
}

// An output per warp, for `INPUTS` rows of activations from `blockIdx.y * INPUTS` on.
template <typename Format, u32 INPUTS>
__device__ __forceinline__ void multiply(const QuantisedArguments& a) {
    let_next_start();
    u32 lane = threadIdx.x % WARP, output = blockIdx.x * WARPS + threadIdx.x / WARP, first = blockIdx.y * INPUTS;
    const u8* row = a.weight + (output < a.outputs ? output : 0) * row_bytes<Format>(a.columns);
    // Weights depend on no kernel.
    float ahead[AHEAD][8];
#pragma unroll
    for (u32 i = 0; i < AHEAD; ++i) {
        if (lane * 8 + i * STEP < a.columns) {
            Format::read(row, lane * 8 + i * STEP, ahead[i]);
        }
    }
    wait_for_previous();
    if (output >= a.outputs) {
        return;
    }
    float sums[INPUTS] = {};
#pragma unroll
    for (u32 i = 0; i < AHEAD; ++i) {
        if (lane * 8 + i * STEP < a.columns) {
            multiply_piece(a, sums, ahead[i], first, lane * 8 + i * STEP);
        }
    }
#pragma unroll 2
    for (u32 column = lane * 8 + AHEAD * STEP; column < a.columns; column += STEP) {
        float weights[8];
        Format::read(row, column, weights);
        multiply_piece(a, sums, weights, first, column);
    }
    float bias = a.bias != nullptr ? a.bias[output] : 0.0f;
#pragma unroll
    for (u32 i = 0; i < INPUTS; ++i) {
        float sum = warp_sum(sums[i]) + bias;
        if (lane == 0 && first + i < a.count) {
            u64 to = static_cast<u64>(first + i) * a.stride + output;
            if (a.float_output) {
                static_cast<float*>(a.output)[to] = sum;
            } else {
                static_cast<bf16*>(a.output)[to] = to_bf16(sum);
            }
        }
    }
}

struct DequantiseArguments {
    const u8* weight;
    // `[rows, columns]`
    bf16* output;
    u32 rows;
    u32 columns;
};

template <typename Format>
__device__ __forceinline__ void dequantise(const DequantiseArguments& a) {
    let_next_start();
    wait_for_previous();
    u32 pieces = a.columns / 8;
    u64 index = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= static_cast<u64>(a.rows) * pieces) {
        return;
    }
    u64 row = index / pieces;
    u32 column = static_cast<u32>(index % pieces) * 8;
    float values[8];
    Format::read(a.weight + row * row_bytes<Format>(a.columns), column, values);
    store16(a.output + row * a.columns + column, pack(values));
}

#define DEFINE(NAME, FORMAT)                                                                                      \
    extern "C" __global__ void __launch_bounds__(WARPS* WARP) quantised_one_##NAME(QuantisedArguments a) {     \
        multiply<FORMAT, 1>(a);                                                                                   \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS* WARP) quantised_##NAME(QuantisedArguments a) {         \
        multiply<FORMAT, MOST_INPUTS>(a);                                                                         \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) dequantise_##NAME(DequantiseArguments a) {               \
        dequantise<FORMAT>(a);                                                                                    \
    }
FOR_EACH_FORMAT(DEFINE)
