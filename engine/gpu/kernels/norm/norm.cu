// RMS norm: `output = input / sqrt(mean(input^2) + epsilon) * weight`, alone, after the sum with the residual stream,
// and in place over blocks of columns.
#include "reduce.cuh"

struct NormArguments {
    const bf16* input;
    // Of the sum alone: overwritten with `residual + input`.
    bf16* residual;
    const float* weight;
    bf16* output;
    u32 width;
    float epsilon;
    u32 rows;
};

constexpr u32 LARGEST_BLOCK = 1024;

__device__ __forceinline__ float inverse_root(float squares, u32 width, float epsilon) {
    return rsqrtf(squares / static_cast<float>(width) + epsilon);
}

// Of eight columns.
struct Weights {
    Vector16 halves[2];

    __device__ __forceinline__ void load(const float* weight) {
        halves[0] = load16(weight);
        halves[1] = load16(weight + 4);
    }

    __device__ __forceinline__ void scale(float (&values)[8], float factor) const {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            values[i] *= factor * __uint_as_float(halves[i / 4].words[i % 4]);
        }
    }
};

// A row per block, of a multiple of eight columns. The row waits in shared memory in f32 between the two passes.
template <bool ADD>
__device__ __forceinline__ void norm(const NormArguments& arguments) {
    extern __shared__ Vector16 row_storage[];
    __shared__ float scratch[LARGEST_BLOCK / WARP];
    float(*row)[8] = reinterpret_cast<float(*)[8]>(row_storage);
    let_next_start();
    u64 first = static_cast<u64>(blockIdx.x) * arguments.width;
    u32 pieces = arguments.width / 8;
    // Of the thread's first piece, mostly its only one: no kernel writes them, so that they come while the others do.
    Weights weights = {};
    if (threadIdx.x < pieces) {
        weights.load(arguments.weight + 8 * threadIdx.x);
    }
    wait_for_previous();
    float squares = 0.0f;
    for (u32 piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
        float values[8];
        unpack(load16(arguments.input + first + 8 * piece), values);
        if (ADD) {
            float sums[8];
            unpack(load16(arguments.residual + first + 8 * piece), sums);
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                sums[i] += values[i];
            }
            Vector16 rounded = pack(sums);
            store16(arguments.residual + first + 8 * piece, rounded);
            // What the next layer will read is what is normalised.
            unpack(rounded, values);
        }
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            squares += values[i] * values[i];
            row[piece][i] = values[i];
        }
    }
    float factor = inverse_root(block_sum(squares, scratch), arguments.width, arguments.epsilon);
    for (u32 piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
        float values[8];
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            values[i] = row[piece][i];
        }
        if (piece != threadIdx.x) {
            weights.load(arguments.weight + 8 * piece);
        }
        weights.scale(values, factor);
        store16(arguments.output + first + 8 * piece, pack(values));
    }
}

extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK) rms_norm(NormArguments arguments) {
    norm<false>(arguments);
}

extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK) add_rms_norm(NormArguments arguments) {
    norm<true>(arguments);
}

struct BlocksArguments {
    bf16* buffer;
    const float* weight;
    u32 row;
    u32 offset;
    u32 count;
    u32 stride;
    u32 width;
    u32 rows;
    float epsilon;
};

// A block of columns per warp, of any width.
extern "C" __global__ void __launch_bounds__(128) rms_norm_blocks(BlocksArguments arguments) {
    let_next_start();
    wait_for_previous();
    u32 index = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (index >= arguments.rows * arguments.count) {
        return;
    }
    u32 row = index / arguments.count, block = index % arguments.count;
    bf16* values = arguments.buffer + static_cast<u64>(row) * arguments.row + arguments.offset + block * arguments.stride;
    float squares = 0.0f;
    for (u32 column = lane; column < arguments.width; column += WARP) {
        float value = to_float(values[column]);
        squares += value * value;
    }
    float factor = inverse_root(warp_sum(squares), arguments.width, arguments.epsilon);
    for (u32 column = lane; column < arguments.width; column += WARP) {
        values[column] = to_bf16(to_float(values[column]) * factor * arguments.weight[column]);
    }
}
