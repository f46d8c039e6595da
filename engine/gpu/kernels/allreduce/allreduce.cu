// The sum of a message over all ranks, on every rank: `one_shot` sends everything to everyone, `two_shot` has each rank
// sum a part and send the result. README.md has the bytes and the protocol.
#include "message.cuh"

struct ReduceArguments {
    Group group;
    u8* input;
    // May be the input.
    u8* output;
    u64 bytes;
    // Input and output begin at multiples of sixteen bytes.
    u32 aligned;
    u32 reserved;
};

constexpr u32 LARGEST_BLOCK = 384;

// Every thread's packets, `first + k * step`.
struct Threads {
    u32 first;
    u32 step;

    __device__ __forceinline__ Threads() : first(blockIdx.x * blockDim.x + threadIdx.x), step(gridDim.x * blockDim.x) {}
};

// Needs `ranks` times the message in half a window.
template <typename Element>
__device__ __forceinline__ void one_shot(const ReduceArguments& a) {
    constexpr u32 BYTES = Format<Element>::BYTES;
    let_next_start();
    wait_for_previous();
    Call call(a.group);
    if (call.dead) {
        return;
    }
    const Message input{a.input, a.bytes, a.aligned != 0}, output{a.output, a.bytes, a.aligned != 0};
    const Threads threads;
    const u32 packets = static_cast<u32>((a.bytes + PACKET - 1) / PACKET);
    Vector16 own[FLIGHT];
    for (u32 at = threads.first; at < packets; at += threads.step * FLIGHT) {
        Flight flight(at, threads.step, packets);
        load<BYTES>(input, 0, flight, own);
        send_to_all(a.group, call, static_cast<u64>(a.group.rank) * packets, flight, own);
    }
    count_call(a.group);
    for (u32 at = threads.first; at < packets; at += threads.step * FLIGHT) {
        Flight flight(at, threads.step, packets);
        load<BYTES>(input, 0, flight, own);
        sum<Element>(a.group, call, packets, 0, flight, own);
        store<BYTES>(output, 0, flight, own);
    }
}

// Rank `owner` sums the packets from `owner * chunk` on, `chunk` of them, fewer at the end. The first `ranks * chunk`
// slots of a half take what is to be summed, as many more take the sums.
template <typename Element>
__device__ __forceinline__ void two_shot(const ReduceArguments& a) {
    constexpr u32 BYTES = Format<Element>::BYTES;
    let_next_start();
    wait_for_previous();
    Call call(a.group);
    if (call.dead) {
        return;
    }
    const Message input{a.input, a.bytes, a.aligned != 0}, output{a.output, a.bytes, a.aligned != 0};
    const Threads threads;
    const u32 ranks = a.group.ranks, rank = a.group.rank;
    const u32 packets = static_cast<u32>((a.bytes + PACKET - 1) / PACKET), chunk = ceiling_divide(packets, ranks);
    auto size = [&](u32 owner) {
        u32 first = owner * chunk;
        return first >= packets ? 0 : packets - first < chunk ? packets - first : chunk;
    };
    auto other = [&](u32 next) { return rank + next < ranks ? rank + next : rank + next - ranks; };
    Vector16 own[FLIGHT];
    for (u32 next = 1; next < ranks; ++next) {
        u32 owner = other(next), end = size(owner);
        for (u32 at = threads.first; at < end; at += threads.step * FLIGHT) {
            Flight flight(at, threads.step, end);
            load<BYTES>(input, owner * chunk, flight, own);
            send(call.slot(a.group, owner, static_cast<u64>(rank) * chunk + at), flight, own);
        }
    }
    count_call(a.group);
    const u64 sums = static_cast<u64>(ranks) * chunk;
    for (u32 at = threads.first, end = size(rank); at < end; at += threads.step * FLIGHT) {
        Flight flight(at, threads.step, end);
        load<BYTES>(input, rank * chunk, flight, own);
        sum<Element>(a.group, call, chunk, 0, flight, own);
        send_to_all(a.group, call, sums + static_cast<u64>(rank) * chunk, flight, own);
        store<BYTES>(output, rank * chunk, flight, own);
    }
    for (u32 next = 1; next < ranks; ++next) {
        u32 owner = other(next), end = size(owner);
        for (u32 at = threads.first; at < end; at += threads.step * FLIGHT) {
            Flight flight(at, threads.step, end);
            u8* slot = call.slot(a.group, rank, sums + static_cast<u64>(owner) * chunk + at);
            receive(a.group, call, owner, slot, static_cast<u64>(threads.step) * PACKET, flight.count, own);
            store<BYTES>(output, owner * chunk, flight, own);
        }
    }
}

#define REDUCE_KERNELS(NAME, ELEMENT)                                                                    \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK)                                          \
        one_shot_##NAME(const __grid_constant__ ReduceArguments arguments) {                             \
        one_shot<ELEMENT>(arguments);                                                                    \
    }                                                                                                    \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK)                                          \
        two_shot_##NAME(const __grid_constant__ ReduceArguments arguments) {                             \
        two_shot<ELEMENT>(arguments);                                                                    \
    }

REDUCE_KERNELS(bf16, bf16)
REDUCE_KERNELS(f16, f16)
REDUCE_KERNELS(f32, float)
