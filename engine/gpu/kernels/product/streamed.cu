// Products of few rows of activations with bf16 weights, as in product.cu, where the bulk copy engine brings the weights
// to shared memory: one warp orders them, far ahead of the eight that multiply, so that memory is never idle and no
// register waits for it.
#include "common.cuh"

#if ARCHWAY_HAS_TMA

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void barrier_wait(u64* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void bulk_copy(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// The eight multiplying warps alone.
__device__ __forceinline__ void consumers_meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// A stage is COLUMNS columns of a tile of 16 rows, of which each warp multiplies its share.
template <u32 INPUT_TILES, u32 COLUMNS, u32 STAGES, bool GATED>
struct Streamed {
    static constexpr u32 ROWS = 16;
    using Tile = Epilogue<ROWS, 8 * INPUT_TILES, GATED>;
    // Rows start 64 bytes apart in the banks, so that no two groups of a quarter of a warp meet.
    static constexpr u32 ROW_BYTES = COLUMNS * 2 + 64;
    static constexpr u32 STAGE_BYTES = ROWS * ROW_BYTES;
    static constexpr u32 SHARE = COLUMNS / WARPS;
    static constexpr u32 BLOCKS = SHARE / BLOCK;

    const ProductArguments& a;
    u8* stages;
    float* sums_of_warps;
    u64* full;
    u64* empty;
    u32 chunks;
    u32 tiles;

    // Orders every stage of the block's tiles, as soon as its place is free.
    __device__ __forceinline__ void produce() const {
        u32 lane = threadIdx.x % WARP, turn = 0;
        for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            // A lane per row.
            const bf16* row = a.weight + static_cast<u64>(Tile::weight_row(a, tile, lane % ROWS)) * a.columns;
            for (u32 chunk = 0; chunk < chunks; ++chunk, ++turn) {
                u32 place = turn % STAGES, first = chunk * COLUMNS;
                u32 bytes = (a.columns - first < COLUMNS ? a.columns - first : COLUMNS) * 2;
                if (turn >= STAGES) {
                    barrier_wait(empty + place, turn / STAGES + 1 & 1);
                }
                if (lane == 0) {
                    barrier_expect(full + place, ROWS * bytes);
                }
                __syncwarp();
                if (lane < ROWS) {
                    bulk_copy(stages + place * STAGE_BYTES + lane * ROW_BYTES, row + first, bytes, full + place);
                }
            }
        }
    }

    __device__ __forceinline__ void load(Vector16 (&inputs)[BLOCKS][INPUT_TILES], u32 chunk) const {
        u32 first = chunk * COLUMNS + threadIdx.x / WARP * SHARE + 8 * (threadIdx.x % 4);
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
            load_inputs(a, inputs[block], first + block * BLOCK);
        }
    }

    __device__ __forceinline__ void consume() const {
        u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = lane / 4, turn = 0, parity = 0;
        u32 share = warp * SHARE + 8 * (lane % 4);
        Vector16 inputs[BLOCKS][INPUT_TILES];
        load(inputs, 0);
        for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            Sums sums[1][INPUT_TILES] = {}, odd[INPUT_TILES] = {};
            for (u32 chunk = 0; chunk < chunks; ++chunk, ++turn) {
                u32 place = turn % STAGES;
                barrier_wait(full + place, turn / STAGES & 1);
                const u8* from = stages + place * STAGE_BYTES + group * ROW_BYTES + share * 2;
#pragma unroll
                for (u32 block = 0; block < BLOCKS; ++block) {
                    Vector16 low = {}, high = {};
                    if (chunk * COLUMNS + share + block * BLOCK < a.columns) {
                        low = load16(from + block * BLOCK * 2);
                        high = load16(from + 8 * ROW_BYTES + block * BLOCK * 2);
                    }
                    multiply(sums[0], odd, low, high, inputs[block]);
                }
                __syncwarp();
                if (lane == 0) {
                    barrier_arrive(empty + place);
                }
                // The next stage's inputs come from a cache, before its weights are waited for.
                load(inputs, chunk + 1 < chunks ? chunk + 1 : 0);
            }
#pragma unroll
            for (u32 input = 0; input < INPUT_TILES; ++input) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    sums[0][input].values[i] += odd[input].values[i];
                }
            }
            float* shared = sums_of_warps + parity * Tile::FLOATS;
            Tile::write(shared, sums);
            consumers_meet();
            Tile::store(a, shared, tile);
            parity ^= 1;
        }
    }

    __device__ __forceinline__ void run() const {
        if (threadIdx.x == 0) {
            for (u32 place = 0; place < STAGES; ++place) {
                barrier_init(full + place, 1);
                barrier_init(empty + place, WARPS);
            }
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
    let_next_start();
    float* sums = reinterpret_cast<float*>(storage + STAGES * Kernel::STAGE_BYTES);
    u32 tiles = ceiling_divide(a.outputs, Kernel::Tile::OUTPUTS);
    Kernel{a, storage, sums, full, empty, ceiling_divide(a.columns, COLUMNS), tiles}.run();
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

DEFINE(8, 1, 1024, 3, 2)
DEFINE(16, 2, 1024, 2, 2)

#endif
