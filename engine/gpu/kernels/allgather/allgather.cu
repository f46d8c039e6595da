// Every rank's columns side by side on every rank, or one rank's message on all. README.md has the bytes.
#include "message.cuh"

struct GatherArguments {
    Group group;
    // This rank's part, `[rows, own width]`.
    u8* input;
    // `[rows, total]`.
    u8* output;
    u32 rows;
    // Columns of a rank's part, fewer or none on the last ranks; both in units of two bytes.
    u32 width;
    u32 total;
    // The rank whose message goes to all, which is the whole output; `ranks` where the parts lie side by side.
    u32 only;
    // Packets of every part that this call carries.
    u32 first;
    u32 count;
    // Both matrices begin at multiples of sixteen bytes, and so does every part of every row.
    u32 aligned;
    u32 reserved;
};

constexpr u32 LARGEST_BLOCK = 384;
constexpr u32 UNIT = 2;
constexpr u32 UNITS = PACKET / UNIT;

__device__ __forceinline__ u32 own_width(const GatherArguments& a, u32 rank) {
    u32 before = rank * a.width;
    u32 left = before < a.total ? a.total - before : 0;
    return a.only < a.group.ranks || a.width < left ? a.width : left;
}

// A packet of this rank's part, zeros after its end.
__device__ __forceinline__ Vector16 own_packet(const Message& part, u64 packet) {
    Vector16 nothing = {};
    if (packet * PACKET >= part.bytes) {
        return nothing;
    }
    const u8* from = part.begin + packet * PACKET;
    return part.whole(packet) ? load16(from) : load_piece<UNIT>(from, part.left(packet));
}

// Puts a packet of `rank`'s part to its columns.
__device__ __forceinline__ void place(const GatherArguments& a, u32 rank, u32 packet, const Vector16& values) {
    const u32 own = own_width(a, rank), units = a.rows * own;
    const u64 offset = a.only < a.group.ranks ? 0 : static_cast<u64>(rank) * a.width;
    auto to = [&](u32 unit) {
        u32 row = unit / own;
        return a.output + UNIT * (static_cast<u64>(row) * a.total + offset + (unit - row * own));
    };
    const u32 begin = packet * UNITS;
    if (a.aligned != 0) {
        if (begin < units) {
            store16(to(begin), values);
        }
        return;
    }
#pragma unroll
    for (u32 i = 0; i < UNITS; ++i) {
        if (begin + i < units) {
            *reinterpret_cast<u16*>(to(begin + i)) = static_cast<u16>(values.words[i / 2] >> (16 * (i % 2)));
        }
    }
}

// Packets that a rank sends in this call: one at least, because every call exchanges one.
__device__ __forceinline__ u32 sent(const GatherArguments& a, u32 rank) {
    return a.only == rank || a.only >= a.group.ranks ? a.count : 1;
}

// Needs `ranks` times `count` packets in half a window.
extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK) all_gather(const __grid_constant__ GatherArguments a) {
    let_next_start();
    wait_for_previous();
    Call call(a.group);
    if (call.dead) {
        return;
    }
    const u32 rank = a.group.rank, ranks = a.group.ranks;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    const Message part{a.input, static_cast<u64>(UNIT) * a.rows * own_width(a, rank), a.aligned != 0};
    Vector16 packets[FLIGHT];
    for (u32 at = thread, end = sent(a, rank); at < end; at += step * FLIGHT) {
        Flight flight(at, step, end);
#pragma unroll
        for (u32 i = 0; i < FLIGHT; ++i) {
            if (i < flight.count) {
                packets[i] = own_packet(part, a.first + flight.packet(i));
            }
        }
        send_to_all(a.group, call, static_cast<u64>(rank) * a.count, flight, packets);
    }
    count_call(a.group);
    if (a.only >= ranks) {
        for (u32 at = thread; at < a.count; at += step) {
            place(a, rank, a.first + at, own_packet(part, a.first + at));
        }
    }
    for (u32 next = 1; next < ranks; ++next) {
        u32 source = rank + next < ranks ? rank + next : rank + next - ranks;
        for (u32 at = thread, end = sent(a, source); at < end; at += step * FLIGHT) {
            Flight flight(at, step, end);
            u8* slot = call.slot(a.group, rank, static_cast<u64>(source) * a.count + at);
            receive(a.group, call, source, slot, static_cast<u64>(step) * PACKET, flight.count, packets);
#pragma unroll
            for (u32 i = 0; i < FLIGHT; ++i) {
                if (i < flight.count && (a.only >= ranks || a.only == source)) {
                    place(a, source, a.first + static_cast<u32>(flight.packet(i)), packets[i]);
                }
            }
        }
    }
}
