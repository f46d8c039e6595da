// The sum of a message over all ranks, then `residual += sum; output = rms_norm(residual)`, in one kernel. The result has
// the bits of the same steps one after the other: the sum is rounded to the element's format before it is added.
#include "message.cuh"
#include "quantise.cuh"
#include "reduce.cuh"

struct ReduceNormArguments {
    Group group;
    // This rank's share, `[rows, width]`; of two-shot partly overwritten with sums.
    u8* addend;
    u8* residual;
    const float* weight;
    // `[rows, width]`: elements, bytes of fp8, or half bytes of fp4.
    u8* output;
    // Of quantised outputs, what it means is said in quantise.cuh.
    float* scale;
    u8* block_scales;
    u32 rows;
    u32 width;
    float epsilon;
    // Every row of every buffer begins at a multiple of sixteen bytes.
    u32 aligned;
};

// A wide row is FLIGHT packets of each thread at most, a narrow one a packet of each; the registers of a multiprocessor
// are for this many threads.
constexpr u32 LARGEST_BLOCK = 384;
constexpr u32 LARGEST_NARROW_BLOCK = 896;

// Rows of a matrix as messages. The threads of a block share a row: thread t has packets t, t + blockDim.x and so on,
// PIECES at most. Where that is one, all packets are whole and aligned.
template <typename Element, u32 PIECES>
struct Rows {
    static constexpr bool WHOLE = PIECES == 1;
    u32 packets;
    u64 bytes;
    bool aligned;

    __device__ __forceinline__ explicit Rows(const ReduceNormArguments& a)
        : packets(ceiling_divide(a.width, Format<Element>::PER_PACKET)),
          bytes(static_cast<u64>(a.width) * Format<Element>::BYTES),
          aligned(a.aligned != 0) {}

    __device__ __forceinline__ Message of(u8* matrix, u32 row) const {
        return Message{matrix + row * bytes, bytes, aligned};
    }

    __device__ __forceinline__ Flight flight() const {
        return Flight(threadIdx.x, blockDim.x, packets, PIECES);
    }

    __device__ __forceinline__ void load(u8* matrix, u32 row, Vector16 (&values)[PIECES]) const {
        ::load<Format<Element>::BYTES, WHOLE>(of(matrix, row), 0, flight(), values);
    }

    __device__ __forceinline__ void store(u8* matrix, u32 row, const Vector16 (&values)[PIECES]) const {
        ::store<Format<Element>::BYTES, WHOLE>(of(matrix, row), 0, flight(), values);
    }
};

// The weights of a thread's columns. Narrow rows have them in registers before they wait for packets; wide ones read
// them when they are needed.
template <u32 PER_PACKET, u32 PIECES>
struct Weights {
    float values[PIECES == 1 ? PER_PACKET : 1];

    __device__ __forceinline__ explicit Weights(const ReduceNormArguments& a) {
        if (PIECES == 1 && threadIdx.x * PER_PACKET < a.width) {
#pragma unroll
            for (u32 i = 0; i < PER_PACKET; i += 4) {
                Vector16 four = load16(a.weight + threadIdx.x * PER_PACKET + i);
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    values[(i + k) % (sizeof(values) / 4)] = __uint_as_float(four.words[k]);
                }
            }
        }
    }

    __device__ __forceinline__ float at(const ReduceNormArguments& a, u32 column, u32 i) const {
        return PIECES == 1 ? values[i % (sizeof(values) / 4)] : a.weight[column];
    }
};

// Adds the residual to `sums`, stores it, and gives the row's output. All threads of the block.
template <typename Element, Output OUTPUT, u32 PIECES>
__device__ __forceinline__ void finish_row(
    const ReduceNormArguments& a, const Rows<Element, PIECES>& rows, u32 row, const Vector16 (&sums)[PIECES],
    Vector16 (&residual)[PIECES], const Weights<Format<Element>::PER_PACKET, PIECES>& weights, float* scratch) {
    constexpr u32 PER_PACKET = Format<Element>::PER_PACKET;
    const Flight flight = rows.flight();
    float values[PIECES][PER_PACKET];
    float squares = 0.0f;
#pragma unroll
    for (u32 piece = 0; piece < PIECES; ++piece) {
        if (piece < flight.count) {
            accumulate<Element>(values[piece], residual[piece], true);
            accumulate<Element>(values[piece], sums[piece], false);
            residual[piece] = Format<Element>::narrow(values[piece]);
            // What the next layer will read is what is normalised.
            Format<Element>::widen(residual[piece], values[piece]);
#pragma unroll
            for (u32 i = 0; i < PER_PACKET; ++i) {
                squares += values[piece][i] * values[piece][i];
            }
        }
    }
    rows.store(a.residual, row, residual);
    float factor = rsqrtf(block_sum(squares, scratch) / static_cast<float>(a.width) + a.epsilon);
#pragma unroll
    for (u32 piece = 0; piece < PIECES; ++piece) {
        u32 first = (threadIdx.x + piece * blockDim.x) * PER_PACKET;
#pragma unroll
        for (u32 i = 0; i < PER_PACKET; ++i) {
            bool inside = first + i < a.width;
            values[piece][i] = inside ? values[piece][i] * (factor * weights.at(a, first + i, i)) : 0.0f;
        }
    }
    if constexpr (OUTPUT == Output::ELEMENT) {
#pragma unroll
        for (u32 piece = 0; piece < PIECES; ++piece) {
            residual[piece] = Format<Element>::narrow(values[piece]);
        }
        rows.store(a.output, row, residual);
    } else {
        Quantised target{a.output, a.scale, a.block_scales, a.width, row};
        quantise_row<OUTPUT, PER_PACKET, PIECES>(target, values, scratch);
    }
}

// A row per block at a time. Needs `ranks` times the rows, each rounded up to whole packets, in half a window.
template <typename Element, Output OUTPUT, u32 PIECES>
__device__ __forceinline__ void one_shot_norm(const ReduceNormArguments& a) {
    __shared__ float scratch[LARGEST_NARROW_BLOCK / WARP];
    let_next_start();
    // No kernel writes weights, so they need not be waited for.
    const Weights<Format<Element>::PER_PACKET, PIECES> weights(a);
    wait_for_previous();
    const Rows<Element, PIECES> rows(a);
    const Flight flight = rows.flight();
    const u64 stride = static_cast<u64>(a.rows) * rows.packets;
    Vector16 own[PIECES], residual[PIECES];
    // The first row is under way while the sequence is read: one reading's time less before it is sent.
    rows.load(a.addend, blockIdx.x, own);
    Call call(a.group);
    if (call.dead) {
        return;
    }
    for (u32 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        if (row != blockIdx.x) {
            rows.load(a.addend, row, own);
        }
        send_to_all(a.group, call, a.group.rank * stride + static_cast<u64>(row) * rows.packets, flight, own);
    }
    count_call(a.group);
    for (u32 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        rows.load(a.addend, row, own);
        rows.load(a.residual, row, residual);
        sum<Element>(a.group, call, stride, static_cast<u64>(row) * rows.packets, flight, own);
        finish_row<Element, OUTPUT, PIECES>(a, rows, row, own, residual, weights, scratch);
    }
}

// Each rank sums a range of columns, `chunk` packets of every row. The first half of the slots takes what is to be summed,
// the second the sums. A rank's own sums wait in its addend.
template <typename Element, Output OUTPUT>
__device__ __forceinline__ void two_shot_norm(const ReduceNormArguments& a) {
    constexpr u32 BYTES = Format<Element>::BYTES;
    __shared__ float scratch[LARGEST_BLOCK / WARP];
    let_next_start();
    wait_for_previous();
    Call call(a.group);
    if (call.dead) {
        return;
    }
    const u32 ranks = a.group.ranks, rank = a.group.rank;
    const Rows<Element, FLIGHT> rows(a);
    const Weights<Format<Element>::PER_PACKET, FLIGHT> weights(a);
    const u32 chunk = ceiling_divide(rows.packets, ranks);
    const u64 stride = static_cast<u64>(a.rows) * chunk, sums = ranks * stride;
    auto part = [&](u32 owner) {
        u32 first = owner * chunk, end = first >= rows.packets ? 0 : rows.packets - first;
        return Flight(threadIdx.x, blockDim.x, end < chunk ? end : chunk);
    };
    Vector16 own[FLIGHT], residual[FLIGHT];
    for (u32 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        for (u32 owner = 0; owner < ranks; ++owner) {
            if (owner != rank) {
                const Flight flight = part(owner);
                load<BYTES>(rows.of(a.addend, row), owner * chunk, flight, own);
                u64 slot = rank * stride + static_cast<u64>(row) * chunk + flight.at;
                send(call.slot(a.group, owner, slot), flight, own);
            }
        }
    }
    count_call(a.group);
    for (u32 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const Flight flight = part(rank);
        const u64 slot = static_cast<u64>(row) * chunk;
        load<BYTES>(rows.of(a.addend, row), rank * chunk, flight, own);
        sum<Element>(a.group, call, stride, slot, flight, own);
        send_to_all(a.group, call, sums + rank * stride + slot, flight, own);
        store<BYTES>(rows.of(a.addend, row), rank * chunk, flight, own);
    }
    for (u32 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        rows.load(a.residual, row, residual);
        // Other ranks' sums to where the rank's own are: each thread then reads whole rows in its own order.
        for (u32 owner = 0; owner < ranks; ++owner) {
            const Flight theirs = part(owner);
            if (owner != rank && theirs.count > 0) {
                u64 slot = sums + owner * stride + static_cast<u64>(row) * chunk + theirs.at;
                receive(a.group, call, owner, call.slot(a.group, rank, slot), static_cast<u64>(blockDim.x) * PACKET,
                        theirs.count, own);
                store<BYTES>(rows.of(a.addend, row), owner * chunk, theirs, own);
            }
        }
        __syncthreads();
        rows.load(a.addend, row, own);
        finish_row<Element, OUTPUT, FLIGHT>(a, rows, row, own, residual, weights, scratch);
    }
}

#define NORM_KERNELS(NAME, ELEMENT, OUTPUT)                                                              \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK)                                          \
        one_shot_norm_##NAME(const __grid_constant__ ReduceNormArguments arguments) {                    \
        one_shot_norm<ELEMENT, OUTPUT, FLIGHT>(arguments);                                               \
    }                                                                                                    \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK)                                          \
        two_shot_norm_##NAME(const __grid_constant__ ReduceNormArguments arguments) {                    \
        two_shot_norm<ELEMENT, OUTPUT>(arguments);                                                       \
    }

// Rows of a packet of each thread: what decoding is made of.
#define NARROW_KERNEL(NAME, ELEMENT, OUTPUT)                                                             \
    extern "C" __global__ void __launch_bounds__(LARGEST_NARROW_BLOCK)                                   \
        one_shot_norm_narrow_##NAME(const __grid_constant__ ReduceNormArguments arguments) {             \
        one_shot_norm<ELEMENT, OUTPUT, 1>(arguments);                                                    \
    }

NORM_KERNELS(bf16, bf16, Output::ELEMENT)
NORM_KERNELS(f16, f16, Output::ELEMENT)
NORM_KERNELS(f32, float, Output::ELEMENT)
NORM_KERNELS(bf16_fp8_tensor, bf16, Output::FP8_TENSOR)
NORM_KERNELS(f16_fp8_tensor, f16, Output::FP8_TENSOR)
NORM_KERNELS(bf16_fp8_token, bf16, Output::FP8_TOKEN)
NORM_KERNELS(f16_fp8_token, f16, Output::FP8_TOKEN)
NORM_KERNELS(bf16_nvfp4, bf16, Output::NVFP4)
NORM_KERNELS(f16_nvfp4, f16, Output::NVFP4)
NARROW_KERNEL(bf16, bf16, Output::ELEMENT)
NARROW_KERNEL(f16, f16, Output::ELEMENT)
NARROW_KERNEL(bf16_fp8_tensor, bf16, Output::FP8_TENSOR)
NARROW_KERNEL(bf16_fp8_token, bf16, Output::FP8_TOKEN)
