// Products of few rows of activations with weights in blocks of one format, ARCHWAY_FORMAT, and conversion of whole matrices
// to bf16. The tensor cores multiply quanta, which bf16 holds exactly; what a layer does before and after a product is part
// of it: RMS norm of the input, activation of gates, the sum with the residual stream.
//
// A block of threads has a tile of 16 rows of the weight; its warps cut the columns among them, so that the first blocks of
// all warps can be under way, in registers, before the kernel waits for the one before it: weights depend on no kernel.
// A row's sums are made in the same order however many rows of activations there are.
#include "blocks.cuh"
#include "matrix.cuh"
#include "reduce.cuh"

#define JOIN_NAMES(LEFT, RIGHT) LEFT##RIGHT
#define NAME_WITH(LEFT, RIGHT) JOIN_NAMES(LEFT, RIGHT)
using Stored = NAME_WITH(Blocks, ARCHWAY_FORMAT);

struct QuantisedArguments {
    // `[outputs, columns]` in its format; gated: `[2 * outputs, columns]`, gates first.
    const u8* weight;
    // `[rows, columns]`
    const bf16* input;
    // One per row of the weight, or null.
    const float* bias;
    // bf16 or f32, `[count, outputs]` with `stride` elements from row to row.
    void* output;
    // `[columns]`: the input is normalised and multiplied with this; null for none.
    const float* norm;
    // Row `i` of the activations is row `rows[i]` of the input, or `i` where this is null.
    const u32* rows;
    u32 outputs;
    u32 columns;
    u32 count;
    u32 stride;
    u32 float_output;
    // 0 for none, 1 for SiLU, 2 for GELU with the hyperbolic tangent.
    u32 gate;
    // The product, rounded to bf16, is added to the output, which is bf16: a residual stream.
    u32 add;
    float epsilon;

    __device__ __forceinline__ float activate(float value) const {
        float inner = gate == 1 ? value : 1.595769f * (value + 0.044715f * value * value * value);
        return value / (1.0f + __expf(-inner));
    }
};

constexpr u32 TILE_ROWS = 16;
// Columns of a block of the weight.
constexpr u32 BLOCK = 32;
// So many threads find registers on a multiprocessor: those of a block, and some of the next product's.
constexpr u32 RESIDENT_THREADS = Stored::RESIDENT_THREADS;
static_assert(RESIDENT_THREADS >= 512, "as many warps as a row of 1,536 columns needs: src/kernels/quantised.rs");
// Sums of a warp: of eight rows of activations times a tile's rows.
constexpr u32 OF_WARP = TILE_ROWS * 8;

// Blocks of columns that a warp has under way, for TILES times eight rows of activations.
template <u32 TILES>
constexpr u32 AHEAD_OF = TILES == 1 ? Stored::AHEAD : Stored::AHEAD - 1;

// The rows of activations in AHEAD blocks of columns, as the right side of the tensor cores' product.
template <u32 TILES>
struct RightBlocks {
    static constexpr u32 AHEAD = AHEAD_OF<TILES>;
    BlockWords words[AHEAD][TILES];
    // Over the columns of a block, of the lane's two rows; zero where the format has no minimum.
    float sums[AHEAD][TILES][2];

    // Where the format has a minimum: a product with ones, so that every lane has the sums of the rows that it sums up.
    __device__ __forceinline__ void sum_up() {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile) {
                Sums ones = {};
                if constexpr (Stored::HAS_MINIMUM) {
                    LeftTile left = {{ONES, ONES, ONES, ONES}};
                    multiply_add(ones, left, words[i][tile][0][0], words[i][tile][0][1]);
                    multiply_add(ones, left, words[i][tile][1][0], words[i][tile][1][1]);
                }
                sums[i][tile][0] = ones.values[0];
                sums[i][tile][1] = ones.values[1];
            }
        }
    }
};

template <u32 TILES>
struct Quantised {
    static constexpr u32 AHEAD = AHEAD_OF<TILES>;

    const QuantisedArguments& a;
    u32 warp, warps, group, place;
    // Blocks of columns of this warp, and how many times AHEAD they are.
    u32 begin, end, blocks, chunks;
    // First row of activations of this block of threads.
    u32 first_row;
    // Of the input, for each of the lane's rows of activations; null where there is none.
    const bf16* source[TILES];
    // Sums of squares of the lane's columns.
    float squares[TILES];

    __device__ __forceinline__ explicit Quantised(const QuantisedArguments& arguments) : a(arguments) {
        warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
        group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
        blocks = a.columns / BLOCK;
        u32 each = ceiling_divide(blocks, warps);
        begin = warp * each;
        end = begin + each < blocks ? begin + each : blocks;
        chunks = ceiling_divide(each, AHEAD);
        first_row = blockIdx.y * 8 * TILES;
#pragma unroll
        for (u32 tile = 0; tile < TILES; ++tile) {
            u32 row = first_row + 8 * tile + group;
            bool there = row < a.count;
            u64 from = there && a.rows != nullptr ? a.rows[row] : row;
            source[tile] = there ? a.input + from * a.columns : nullptr;
            squares[tile] = 0.0f;
        }
    }

    __device__ __forceinline__ u32 block_of(u32 chunk, u32 i) const { return begin + chunk * AHEAD + i; }

    __device__ __forceinline__ u32 outputs_of_tile() const { return a.gate ? TILE_ROWS / 2 : TILE_ROWS; }

    // Blocks that are not there are the last one again: their columns are zero.
    __device__ __forceinline__ void load_weights(typename Stored::Raw (&raw)[AHEAD][2], u32 tile, u32 chunk) const {
        u64 row_bytes = static_cast<u64>(a.columns / (Stored::BYTES > 100 ? 256 : BLOCK)) * Stored::BYTES;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            u32 output = tile * outputs_of_tile() + group + (a.gate ? 0 : 8 * half);
            output = output < a.outputs ? output : a.outputs - 1;
            const u8* row = a.weight + (output + (a.gate ? half * a.outputs : 0)) * row_bytes;
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                u32 block = block_of(chunk, i);
                raw[i][half] = Stored::load(row, block < end ? block : blocks - 1, place);
            }
        }
    }

    // Column of the lane's first of four in step `step` of a block.
    __device__ __forceinline__ u32 column(u32 block, u32 step) const { return block * BLOCK + 16 * step + 4 * place; }

    // The norm's weights depend on no kernel.
    __device__ __forceinline__ void prefetch_factors() const {
        u32 first = begin * BLOCK + 4 * (threadIdx.x % WARP);
        for (u32 column = first; a.norm != nullptr && column < end * BLOCK; column += 4 * WARP) {
            asm volatile("prefetch.global.L1 [%0];" ::"l"(a.norm + column));
        }
    }

    __device__ __forceinline__ void load_rows(RightBlocks<TILES>& right, u32 chunk) {
        Vector8 values[AHEAD][TILES][2];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile) {
                u32 block = block_of(chunk, i);
                bool there = source[tile] != nullptr && block < end;
#pragma unroll
                for (u32 step = 0; step < 2; ++step) {
                    Vector8 none = {};
                    const bf16* from = source[tile] + column(block, step);
                    values[i][tile][step] = there ? *reinterpret_cast<const Vector8*>(from) : none;
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile) {
#pragma unroll
                for (u32 step = 0; step < 2; ++step) {
                    u32 block = block_of(chunk, i) < end ? block_of(chunk, i) : 0;
                    pair_up(right.words[i][tile][step], values[i][tile][step], squares[tile], column(block, step));
                }
            }
        }
        right.sum_up();
    }

    // Four columns as two words, the first and third in one; with a norm times its weights, and squared for it.
    __device__ __forceinline__ void pair_up(
        u32 (&words)[2], const Vector8& values, float& squared, u32 column) const {
        if (a.norm == nullptr) {
            words[0] = __byte_perm(values.words[0], values.words[1], 0x5410);
            words[1] = __byte_perm(values.words[0], values.words[1], 0x7632);
            return;
        }
        Vector16 factors = load16(a.norm + column);
        float four[4] = {
            low_float(values.words[0]), high_float(values.words[0]), low_float(values.words[1]),
            high_float(values.words[1])};
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            squared += four[i] * four[i];
            four[i] *= __uint_as_float(factors.words[i]);
        }
        words[0] = to_pair(four[0], four[2]);
        words[1] = to_pair(four[1], four[3]);
    }

    __device__ __forceinline__ void multiply(
        Sums (&sums)[TILES], const typename Stored::Raw (&raw)[AHEAD][2], const RightBlocks<TILES>& right, u32 chunk) const {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            u32 block = block_of(chunk, i) < end ? block_of(chunk, i) : blocks - 1;
            BlockWords low, high;
            Stored::words(low, raw[i][0], place, block);
            Stored::words(high, raw[i][1], place, block);
            BlockScale scales[2] = {Stored::scale(raw[i][0], block), Stored::scale(raw[i][1], block)};
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile) {
                Sums part = {};
#pragma unroll
                for (u32 step = 0; step < 2; ++step) {
                    LeftTile left = {{low[step][0], high[step][0], low[step][1], high[step][1]}};
                    multiply_add(part, left, right.words[i][tile][step][0], right.words[i][tile][step][1]);
                    if (step == 1 || Stored::TWO_FACTORS) {
#pragma unroll
                        for (u32 k = 0; k < 4; ++k) {
                            sums[tile].values[k] += scales[k / 2].factor[step] * part.values[k];
                        }
                        part = Sums{};
                    }
                }
                if constexpr (Stored::HAS_MINIMUM) {
#pragma unroll
                    for (u32 k = 0; k < 4; ++k) {
                        sums[tile].values[k] += scales[k / 2].minimum * right.sums[i][tile][k % 2];
                    }
                }
            }
        }
    }

    // The warps' sums: `[warp][tile][row of the tile][row of activations]`.
    __device__ __forceinline__ void share(float* shared, const Sums (&sums)[TILES]) const {
#pragma unroll
        for (u32 tile = 0; tile < TILES; ++tile) {
            float* mine = shared + (warp * TILES + tile) * OF_WARP + 2 * place;
            *reinterpret_cast<float2*>(mine + 8 * group) = make_float2(sums[tile].values[0], sums[tile].values[1]);
            *reinterpret_cast<float2*>(mine + 8 * (group + 8)) = make_float2(sums[tile].values[2], sums[tile].values[3]);
        }
    }

    // The warps' sums of squares: `[warp][row of activations]`.
    __device__ __forceinline__ void share_squares(float* shared) const {
#pragma unroll
        for (u32 tile = 0; tile < TILES; ++tile) {
            float sum = squares[tile];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            if (place == 0) {
                shared[(warp * TILES + tile) * 8 + group] = sum;
            }
        }
    }

    // Element `at` of what a warp has, of all warps, in their order.
    template <u32 STRIDE>
    __device__ __forceinline__ float total(const float* shared, u32 at) const {
        float sum = 0.0f;
#pragma unroll 4
        for (u32 other = 0; other < warps; ++other) {
            sum += shared[other * STRIDE + at];
        }
        return sum;
    }

    // What element `at` of a tile's sums belongs to.
    struct Target {
        bool valid;
        u32 input, output;
        u64 to;
    };

    __device__ __forceinline__ Target target(u32 tile, u32 at) const {
        u32 row = at % OF_WARP / 8, input = first_row + at / OF_WARP * 8 + at % 8;
        u32 output = tile * outputs_of_tile() + row;
        bool valid = at < TILES * OF_WARP && input < a.count && row < outputs_of_tile() && output < a.outputs;
        return {valid, input, output, static_cast<u64>(input) * a.stride + output};
    }

    // `first` is what the thread's first element is added to.
    __device__ __forceinline__ void store(const float* shared, const float* shared_squares, u32 tile, bf16 first) const {
        for (u32 at = threadIdx.x; at < TILES * OF_WARP; at += blockDim.x) {
            Target place = target(tile, at);
            if (!place.valid) {
                continue;
            }
            float factor = 1.0f;
            if (a.norm != nullptr) {
                float sum = total<TILES * 8>(shared_squares, at / OF_WARP * 8 + at % 8);
                factor = rsqrtf(sum / static_cast<float>(a.columns) + a.epsilon);
            }
            bool biased = a.bias != nullptr;
            float value = total<TILES * OF_WARP>(shared, at) * factor + (biased ? a.bias[place.output] : 0.0f);
            if (a.gate) {
                float up = total<TILES * OF_WARP>(shared, at + OF_WARP / 2) * factor;
                value = a.activate(value) * (up + (biased ? a.bias[place.output + a.outputs] : 0.0f));
            }
            if (a.float_output) {
                static_cast<float*>(a.output)[place.to] = value;
                continue;
            }
            bf16* output = static_cast<bf16*>(a.output) + place.to;
            if (a.add) {
                value = to_float(at == threadIdx.x ? first : *output) + to_float(to_bf16(value));
            }
            *output = to_bf16(value);
        }
    }

    __device__ __forceinline__ bf16 before(u32 tile) const {
        Target place = target(tile, threadIdx.x);
        return a.add && place.valid ? static_cast<const bf16*>(a.output)[place.to] : bf16{0};
    }

    // `shared` has room for two tiles' sums, then for those of squares.
    __device__ __forceinline__ void run(float* shared) {
        u32 tiles = ceiling_divide(a.outputs, outputs_of_tile()), parity = 0;
        float* shared_squares = shared + 2 * warps * TILES * OF_WARP;
        typename Stored::Raw raw[AHEAD][2];
        load_weights(raw, blockIdx.x, 0);
        prefetch_factors();
        wait_for_previous();
        RightBlocks<TILES> right;
        load_rows(right, 0);
        for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            bf16 first = before(tile);
            Sums sums[TILES] = {};
            for (u32 chunk = 0; chunk < chunks; ++chunk) {
                // Those of the first tile's first chunk are there; where there is one chunk, they stay.
                if (chunks > 1 && (chunk > 0 || tile != blockIdx.x)) {
                    load_rows(right, chunk);
                }
                multiply(sums, raw, right, chunk);
                bool same = chunk + 1 < chunks;
                if (same || tile + gridDim.x < tiles) {
                    load_weights(raw, same ? tile : tile + gridDim.x, same ? chunk + 1 : 0);
                }
            }
            float* room = shared + parity * warps * TILES * OF_WARP;
            share(room, sums);
            if (a.norm != nullptr && tile == blockIdx.x) {
                share_squares(shared_squares);
            }
            // The next tile's sums go to the other room, so that one meeting a tile is enough.
            __syncthreads();
            store(room, shared_squares, tile, first);
            parity ^= 1;
        }
    }
};

extern __shared__ __align__(16) float storage[];

template <u32 TILES>
__device__ __forceinline__ void quantised(const QuantisedArguments& a) {
    let_next_start();
    Quantised<TILES>(a).run(storage);
}

// Up to eight rows of activations, and up to sixteen.
extern "C" __global__ void __launch_bounds__(RESIDENT_THREADS) quantised_8(QuantisedArguments a) {
    quantised<1>(a);
}

extern "C" __global__ void __launch_bounds__(RESIDENT_THREADS) quantised_16(QuantisedArguments a) {
    quantised<2>(a);
}

struct DequantiseArguments {
    const u8* weight;
    // `[rows, columns]`
    bf16* output;
    u32 rows;
    u32 columns;
};

extern "C" __global__ void __launch_bounds__(256) dequantise(DequantiseArguments a) {
    using Format = NAME_WITH(Format, ARCHWAY_FORMAT);
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
