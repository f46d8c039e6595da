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
};

template <typename Format>
__device__ __forceinline__ void embed(const EmbeddingArguments& arguments) {
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.x, token = arguments.tokens[row];
    if (token & CHOSEN) {
        token = arguments.choices[token & ~CHOSEN];
    }
    u32 entry = token - arguments.first;
    bool inside = entry < arguments.table_rows;
    const u8* from = arguments.table + entry * row_bytes<Format>(arguments.columns);
    bf16* to = arguments.output + static_cast<u64>(row) * arguments.columns;
    for (u32 column = threadIdx.x * 8; column < arguments.columns; column += blockDim.x * 8) {
        float values[8] = {};
        if (inside) {
            Format::read(from, column, values);
        }
        store16(to + column, pack(values));
    }
}

#define DEFINE(NAME, FORMAT)                                                                             \
    extern "C" __global__ void __launch_bounds__(256) embedding_##NAME(EmbeddingArguments arguments) { \
        embed<FORMAT>(arguments);                                                                        \
    }
FOR_EACH_FORMAT(DEFINE)
