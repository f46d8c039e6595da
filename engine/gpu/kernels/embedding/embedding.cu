// Rows of a table of any weight format, by token: `output[row] = table[token[row] - first]`, zero outside of the table. A
// token with the mark CHOSEN is the place of one among the choices.
#include "formats.cuh"
#include "step.cuh"

struct EmbeddingArguments {
    const u32* tokens;
    const u32* choices;
    const u8* table;
    bf16* output;
    u32 first;
    u32 table_rows;
    u32 columns;
    u32 rows;
    // `[columns]`, or null: what products need of the norm of the rows is left too (../product/README.md).
    const float* norm;
    // `[rows, columns]`: rows times the norm's weight.
    bf16* scaled;
    // `[rows, columns / SQUARES]`: sums of squares.
    float* squares;
};

// Neighbours whose squares are summed at once: two threads'. The twin of one in ../product/common.cuh.
constexpr u32 SQUARES = 16;

// Eight columns of the norm's weight.
struct NormPiece {
    float values[8];

    __device__ __forceinline__ NormPiece(const EmbeddingArguments& arguments, u32 column) {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            values[i] = arguments.norm != nullptr && column < arguments.columns ? arguments.norm[column + i] : 0.0f;
        }
    }
};

// Eight columns of a row, as rounded, and what the norm needs of them.
__device__ __forceinline__ void begin_norm(
    const EmbeddingArguments& arguments, u32 column, const Vector16& rounded, const NormPiece& norm) {
    u64 at = static_cast<u64>(blockIdx.x) * arguments.columns + column;
    float values[8], squares = 0.0f;
    unpack(rounded, values);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        squares += values[i] * values[i];
        values[i] *= norm.values[i];
    }
    store16(arguments.scaled + at, pack(values));
    squares += __shfl_xor_sync(3u << (threadIdx.x % WARP & ~1u), squares, 1);
    if (column % SQUARES == 0) {
        arguments.squares[at / SQUARES] = squares;
    }
}

template <typename Format>
__device__ __forceinline__ void embed(const EmbeddingArguments& arguments) {
    let_next_start();
    // No kernel of the pass writes either.
    u32 row = blockIdx.x, token = arguments.tokens[row], column = threadIdx.x * 8;
    NormPiece norm(arguments, column);
    wait_for_previous();
    if (token & CHOSEN) {
        token = arguments.choices[token & ~CHOSEN];
    }
    u32 entry = token - arguments.first;
    bool inside = entry < arguments.table_rows;
    const u8* from = arguments.table + entry * row_bytes<Format>(arguments.columns);
    bf16* to = arguments.output + static_cast<u64>(row) * arguments.columns;
    while (column < arguments.columns) {
        float values[8] = {};
        if (inside) {
            Format::read(from, column, values);
        }
        Vector16 rounded = pack(values);
        store16(to + column, rounded);
        if (arguments.norm != nullptr) {
            begin_norm(arguments, column, rounded, norm);
        }
        column += blockDim.x * 8;
        norm = NormPiece(arguments, column);
    }
}

#define DEFINE(NAME, FORMAT)                                                                             \
    extern "C" __global__ void __launch_bounds__(512) embedding_##NAME(EmbeddingArguments arguments) { \
        embed<FORMAT>(arguments);                                                                        \
    }
FOR_EACH_FORMAT(DEFINE)
