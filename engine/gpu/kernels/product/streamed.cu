// Products of few rows of activations with bf16 weights, as in product.cu, where the bulk copy engine brings the weights
// to shared memory: one warp orders them, far ahead of the eight that multiply, so that memory is never idle and no
// register waits for it.
#include "bulk.cuh"
#include "common.cuh"

#if ARCHWAY_HAS_TMA

// Launches whose tickets are told apart. A slot is free again long before it comes round.
constexpr u32 LAUNCHES = 32768;
// Tiles are dealt to blocks in so many classes. The blocks of a class begin at the same column, those of others elsewhere:
// rows lie a power of two apart, and blocks that all read the same columns would crowd the same memory channels.
constexpr u32 CLASSES = 4;
// Tiles dealt beyond a block's first. Zero between launches: who draws the last ticket of a class puts it back.
__device__ u32 tickets[LAUNCHES][CLASSES];

// The eight multiplying warps alone.
__device__ __forceinline__ void consumers_meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Places of a stage in shared memory, in their order of use.
struct Turn {
    u32 place = 0;
    u32 parity = 0;

    template <u32 STAGES>
    __device__ __forceinline__ void next() {
        if (++place == STAGES) {
            place = 0;
            parity ^= 1;
        }
    }
};

// Lanes of a multiplying warp that say that a stage is read: one, after the warp has met. A race checker knows the order
// through a barrier only of the lanes that arrive themselves; for it, and in no record, all of them do.
#if ARCHWAY_HAS_EVERY_LANE_ARRIVES
constexpr u32 ARRIVALS = WARP;
#else
constexpr u32 ARRIVALS = 1;
#endif

// A stage is COLUMNS columns of a tile of 16 rows, of which each warp multiplies its share.
template <u32 INPUT_TILES, u32 COLUMNS, u32 STAGES, bool GATED>
struct Streamed {
    static constexpr u32 ROWS = 16;
    using Tile = Epilogue<ROWS, 8 * INPUT_TILES, GATED>;
    // Without padding: the copy engine writes rows that start off a line of 128 bytes more slowly.
    static constexpr u32 ROW_BYTES = COLUMNS * 2;
    static constexpr u32 STAGE_BYTES = ROWS * ROW_BYTES;
    static constexpr u32 SHARE = COLUMNS / WARPS;
    static constexpr u32 BLOCKS = SHARE / BLOCK;
    static_assert(BLOCKS % 2 == 0, "blocks are read in pairs");

    const ProductArguments& a;
    u8* stages;
    float* sums_of_warps;
    u64* full;
    u64* empty;
    // The warps' sums have been read.
    u64* summed;
    // Of each stage: the tile, or NONE behind the last.
    u32* tile_of;
    u32 chunks;
    u32 tiles;
    float (&factors)[8 * INPUT_TILES];

    __device__ __forceinline__ u32 own_class() const {
        return blockIdx.x % CLASSES;
    }

    // The class decides, so sums do not depend on which block takes a tile.
    __device__ __forceinline__ u32 first_chunk() const {
        return own_class() * chunks / CLASSES;
    }

    __device__ __forceinline__ u32 chunk_after(u32 chunk) const {
        return chunk + 1 < chunks ? chunk + 1 : 0;
    }

    // Numbers of a class below `end`.
    __device__ __forceinline__ u32 in_class(u32 end) const {
        return (end + CLASSES - 1 - own_class()) / CLASSES;
    }

    // Every block of a class draws once in vain, so the class draws as often as it has tiles.
    __device__ __forceinline__ u32 draw() const {
        u32* ticket = &tickets[a.launch % LAUNCHES][own_class()];
        u32 drawn = atomicAdd(ticket, 1);
        if (drawn + 1 == in_class(tiles)) {
            *ticket = 0;
        }
        return (in_class(gridDim.x) + drawn) * CLASSES + own_class();
    }

    // Orders every stage of the block's tiles, as soon as its place is free.
    __device__ __forceinline__ void produce() const {
        u32 lane = threadIdx.x % WARP;
        Turn turn = {0, 1};
        for (u32 tile = blockIdx.x; tile < tiles;) {
            // Used after the tile's last order, long after it has come.
            u32 next = lane == 0 ? draw() : 0;
            // A lane per row.
            const bf16* row = a.weight + static_cast<u64>(Tile::weight_row(a, tile, lane % ROWS)) * a.columns;
            for (u32 done = 0, chunk = first_chunk(); done < chunks; ++done, chunk = chunk_after(chunk)) {
                u32 first = chunk * COLUMNS;
                u32 bytes = (a.columns - first < COLUMNS ? a.columns - first : COLUMNS) * 2;
                barrier_wait(empty + turn.place, turn.parity);
                if (lane == 0) {
                    tile_of[turn.place] = tile;
                    barrier_expect(full + turn.place, ROWS * bytes);
                }
                __syncwarp();
                if (lane < ROWS) {
                    bulk_copy(stages + turn.place * STAGE_BYTES + lane * ROW_BYTES, row + first, bytes, full + turn.place);
                }
                turn.next<STAGES>();
            }
            tile = __shfl_sync(ALL_LANES, next, 0);
        }
        barrier_wait(empty + turn.place, turn.parity);
        if (lane == 0) {
            tile_of[turn.place] = NONE;
            barrier_arrive(full + turn.place);
        }
    }

    __device__ __forceinline__ u32 own_columns() const {
        return threadIdx.x / WARP * SHARE + 8 * (threadIdx.x % 4);
    }

    __device__ __forceinline__ void load(Vector16 (&inputs)[BLOCKS][INPUT_TILES], u32 chunk) const {
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
            load_inputs(a, inputs[block], chunk * COLUMNS + own_columns() + block * BLOCK);
        }
    }

    // The weights of two neighbouring blocks, a lane's 16 bytes of rows `group` and `group + 8` of each. Rows start in the
    // same bank, so every other row is read the other way round: no two groups of a quarter of a warp meet.
    __device__ __forceinline__ void read_pair(Vector16 (&low)[2], Vector16 (&high)[2], const u8* from, u32 column) const {
        bool odd = threadIdx.x / 4 % 2 == 1;
        Vector16 read[2][2] = {};
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            u32 block = odd ? 1 - i : i;
            if (column + block * BLOCK < a.columns) {
                read[i][0] = load16(from + block * BLOCK * 2);
                read[i][1] = load16(from + 8 * ROW_BYTES + block * BLOCK * 2);
            }
        }
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
#pragma unroll
            for (u32 word = 0; word < 4; ++word) {
                low[i].words[word] = odd ? read[1 - i][0].words[word] : read[i][0].words[word];
                high[i].words[word] = odd ? read[1 - i][1].words[word] : read[i][1].words[word];
            }
        }
    }

    __device__ __forceinline__ void multiply_stage(
        Sums (&sums)[INPUT_TILES], Sums (&odd)[INPUT_TILES], const Vector16 (&inputs)[BLOCKS][INPUT_TILES], u32 place, u32 chunk) const {
        const u8* from = stages + place * STAGE_BYTES + threadIdx.x % WARP / 4 * ROW_BYTES + own_columns() * 2;
#pragma unroll
        for (u32 block = 0; block < BLOCKS; block += 2) {
            Vector16 low[2], high[2];
            read_pair(low, high, from + block * BLOCK * 2, chunk * COLUMNS + own_columns() + block * BLOCK);
            multiply(sums, odd, low[0], high[0], inputs[block]);
            multiply(sums, odd, low[1], high[1], inputs[block + 1]);
        }
    }

    // A tile has no more outputs than there are threads.
    __device__ __forceinline__ Before before_tile(u32 tile) const {
        static_assert(Tile::OUTPUTS * 8 * INPUT_TILES <= THREADS, "a thread stores once");
        Before before;
        u32 row, input, output;
        if (!GATED && a.residual != nullptr && Tile::place(a, tile, threadIdx.x, row, input, output)) {
            before.load(a, input, output);
        }
        return before;
    }

    __device__ __forceinline__ void consume() const {
        u32 parity = 1;
        Turn turn;
        Vector16 inputs[BLOCKS][INPUT_TILES];
        load(inputs, first_chunk());
        Tile::prepare(a, factors);
        for (;;) {
            barrier_wait(full + turn.place, turn.parity);
            u32 tile = tile_of[turn.place];
            if (tile == NONE) {
                return;
            }
            Before before = before_tile(tile);
            Sums sums[1][INPUT_TILES] = {}, odd[INPUT_TILES] = {};
            for (u32 done = 0, chunk = first_chunk(); done < chunks; ++done) {
                barrier_wait(full + turn.place, turn.parity);
                multiply_stage(sums[0], odd, inputs, turn.place, chunk);
                __syncwarp();
                if (threadIdx.x % WARP < ARRIVALS) {
                    barrier_arrive(empty + turn.place);
                }
                turn.next<STAGES>();
                // The next stage's inputs come from a cache, before its weights are waited for.
                chunk = chunk_after(chunk);
                load(inputs, chunk);
            }
#pragma unroll
            for (u32 input = 0; input < INPUT_TILES; ++input) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    sums[0][input].values[i] += odd[input].values[i];
                }
            }
            barrier_wait(summed, parity);
            parity ^= 1;
            Tile::write(sums_of_warps, sums);
            consumers_meet();
            Tile::store(a, sums_of_warps, factors, tile, [&](u32, u32) { return before; });
            __syncwarp();
            if (threadIdx.x % WARP < ARRIVALS) {
                barrier_arrive(summed);
            }
        }
    }

    __device__ __forceinline__ void run() const {
        if (threadIdx.x == 0) {
            for (u32 place = 0; place < STAGES; ++place) {
                barrier_init(full + place, 1);
                barrier_init(empty + place, WARPS * ARRIVALS);
            }
            barrier_init(summed, WARPS * ARRIVALS);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        if (threadIdx.x >= THREADS) {
            // Weights depend on no kernel.
            produce();
            wait_for_previous();
        } else {
            wait_for_previous();
            consume();
        }
    }
};

extern __shared__ __align__(128) u8 storage[];

template <u32 INPUT_TILES, u32 COLUMNS, u32 STAGES, bool GATED>
__device__ __forceinline__ void streamed(const ProductArguments& a) {
    using Kernel = Streamed<INPUT_TILES, COLUMNS, STAGES, GATED>;
    __shared__ __align__(8) u64 full[STAGES];
    __shared__ __align__(8) u64 empty[STAGES];
    __shared__ __align__(8) u64 summed;
    __shared__ u32 tile_of[STAGES];
    __shared__ float factors[8 * INPUT_TILES];
    let_next_start();
    float* sums = reinterpret_cast<float*>(storage + STAGES * Kernel::STAGE_BYTES);
    u32 tiles = ceiling_divide(a.outputs, Kernel::Tile::OUTPUTS);
    Kernel{a, storage, sums, full, empty, &summed, tile_of, ceiling_divide(a.columns, COLUMNS), tiles, factors}.run();
}

#define DEFINE(NAME, INPUT_TILES, COLUMNS, STAGES, PER_MULTIPROCESSOR)                                             \
    extern "C" __global__ void __launch_bounds__(THREADS + WARP, PER_MULTIPROCESSOR)                             \
        streamed_##NAME(ProductArguments a) {                                                                      \
        streamed<INPUT_TILES, COLUMNS, STAGES, false>(a);                                                          \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS + WARP, PER_MULTIPROCESSOR)                             \
        streamed_gated_##NAME(ProductArguments a) {                                                                \
        streamed<INPUT_TILES, COLUMNS, STAGES, true>(a);                                                           \
    }

// Two blocks have memory on a multiprocessor. Registers are for three, so that a block of attention stands beside them.
DEFINE(8, 1, 1024, 3, 3)
DEFINE(16, 2, 512, 5, 3)

#endif
