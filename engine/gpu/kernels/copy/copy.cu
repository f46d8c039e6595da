// What moves rows without arithmetic, and the sum of two buffers. `PIECE` elements per thread: eight where every width
// and offset is a multiple of it, else one.
#include "formats.cuh"
#include "step.cuh"

struct GatherArguments {
    const u32* rows;
    const bf16* input;
    bf16* output;
    u32 width;
    u32 count;
};

template <u32 PIECE>
__device__ __forceinline__ void copy_piece(const bf16* from, bf16* to) {
    if constexpr (PIECE == 8) {
        store16(to, load16(from));
    } else {
        *to = *from;
    }
}

// The columns of a row are dealt to the blocks of a column of the grid.
template <u32 PIECE>
__device__ __forceinline__ u32 first_column() {
    return (blockIdx.y * blockDim.x + threadIdx.x) * PIECE;
}

template <u32 PIECE>
__device__ __forceinline__ u32 columns_at_once() {
    return gridDim.y * blockDim.x * PIECE;
}

// `output[k] = input[rows[k]]`
template <u32 PIECE>
__device__ __forceinline__ void gather(const GatherArguments& arguments) {
    let_next_start();
    wait_for_previous();
    u32 from = arguments.rows[blockIdx.x];
    const bf16* input = arguments.input + static_cast<u64>(from) * arguments.width;
    bf16* output = arguments.output + static_cast<u64>(blockIdx.x) * arguments.width;
    for (u32 column = first_column<PIECE>(); column < arguments.width; column += columns_at_once<PIECE>()) {
        copy_piece<PIECE>(input + column, output + column);
    }
}

struct ColumnsArguments {
    const bf16* source;
    bf16* target;
    u32 width;
    u32 target_width;
    u32 offset;
    u32 rows;
};

// Whole rows into a column range of wider rows.
template <u32 PIECE>
__device__ __forceinline__ void copy_columns(const ColumnsArguments& arguments) {
    let_next_start();
    wait_for_previous();
    const bf16* source = arguments.source + static_cast<u64>(blockIdx.x) * arguments.width;
    bf16* target = arguments.target + static_cast<u64>(blockIdx.x) * arguments.target_width + arguments.offset;
    for (u32 column = first_column<PIECE>(); column < arguments.width; column += columns_at_once<PIECE>()) {
        copy_piece<PIECE>(source + column, target + column);
    }
}

struct AddArguments {
    const bf16* addend;
    bf16* target;
    u64 elements;
};

// `target += addend`
template <u32 PIECE>
__device__ __forceinline__ void add(const AddArguments& arguments) {
    let_next_start();
    wait_for_previous();
    u64 index = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) * PIECE;
    if (index >= arguments.elements) {
        return;
    }
    if constexpr (PIECE == 8) {
        float sums[8], addends[8];
        unpack(load16(arguments.target + index), sums);
        unpack(load16(arguments.addend + index), addends);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            sums[i] += addends[i];
        }
        store16(arguments.target + index, pack(sums));
    } else {
        arguments.target[index] = to_bf16(to_float(arguments.target[index]) + to_float(arguments.addend[index]));
    }
}

struct ToFloatArguments {
    const bf16* source;
    float* target;
    u64 elements;
};

extern "C" __global__ void __launch_bounds__(256) widen(ToFloatArguments arguments) {
    let_next_start();
    wait_for_previous();
    u64 index = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index < arguments.elements) {
        arguments.target[index] = to_float(arguments.source[index]);
    }
}

#define DEFINE_COPY(NAME, ARGUMENTS, BODY)                                                        \
    extern "C" __global__ void __launch_bounds__(256) NAME(ARGUMENTS arguments) {              \
        BODY<8>(arguments);                                                                       \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) NAME##_narrow(ARGUMENTS arguments) {     \
        BODY<1>(arguments);                                                                       \
    }
DEFINE_COPY(gather_rows, GatherArguments, gather)
DEFINE_COPY(copy_into_columns, ColumnsArguments, copy_columns)
DEFINE_COPY(add_in_place, AddArguments, add)
