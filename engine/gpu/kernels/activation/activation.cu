// `output = activation(left half of input) * right half of input`.
#include "base.cuh"

struct ActivationArguments {
    // `[rows, 2 * width]`
    const bf16* input;
    // `[rows, width]`
    bf16* output;
    u32 width;
    u32 rows;
};

__device__ __forceinline__ float logistic(float value) {
    return 1.0f / (1.0f + __expf(-value));
}

struct Silu {
    static __device__ __forceinline__ float apply(float value) {
        return value * logistic(value);
    }
};

// With the hyperbolic tangent: `(1 + tanh(x)) / 2` is the logistic function of `2 x`.
struct Gelu {
    static __device__ __forceinline__ float apply(float value) {
        return value * logistic(1.595769f * (value + 0.044715f * value * value * value));
    }
};

// `PIECE` columns per thread: eight where the width is a multiple of it, else one.
template <typename Activation, u32 PIECE>
__device__ __forceinline__ void activate(const ActivationArguments& arguments) {
    let_next_start();
    wait_for_previous();
    u32 pieces = arguments.width / PIECE;
    u64 index = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= static_cast<u64>(pieces) * arguments.rows) {
        return;
    }
    u64 row = index / pieces;
    u32 column = static_cast<u32>(index % pieces) * PIECE;
    const bf16* left = arguments.input + row * 2 * arguments.width + column;
    const bf16* right = left + arguments.width;
    bf16* output = arguments.output + row * arguments.width + column;
    if constexpr (PIECE == 8) {
        float gates[8], ups[8];
        unpack(load16(left), gates);
        unpack(load16(right), ups);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            gates[i] = Activation::apply(gates[i]) * ups[i];
        }
        store16(output, pack(gates));
    } else {
        *output = to_bf16(Activation::apply(to_float(*left)) * to_float(*right));
    }
}

#define DEFINE(NAME, ACTIVATION, PIECE)                                                        \
    extern "C" __global__ void __launch_bounds__(256) NAME(ActivationArguments arguments) { \
        activate<ACTIVATION, PIECE>(arguments);                                                \
    }
DEFINE(silu_multiply, Silu, 8)
DEFINE(silu_multiply_narrow, Silu, 1)
DEFINE(gelu_multiply, Gelu, 8)
DEFINE(gelu_multiply_narrow, Gelu, 1)
