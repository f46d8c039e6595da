// Messages of any length and place as packets, in each format.
#pragma once

#include "packet.cuh"

// IEEE half precision as bits.
struct f16 {
    u16 bits;
};

// How a packet holds elements: PER_PACKET of them, widened to f32 for sums and rounded to nearest even.
template <typename Element>
struct Format;

template <>
struct Format<bf16> {
    static constexpr u32 PER_PACKET = 8;
    static constexpr u32 BYTES = 2;

    __device__ __forceinline__ static void widen(const Vector16& packet, float (&values)[8]) {
        unpack(packet, values);
    }

    __device__ __forceinline__ static Vector16 narrow(const float (&values)[8]) {
        return pack(values);
    }
};

template <>
struct Format<f16> {
    static constexpr u32 PER_PACKET = 8;
    static constexpr u32 BYTES = 2;

    __device__ __forceinline__ static void widen(const Vector16& packet, float (&values)[8]) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            values[2 * i] = half_to_float(static_cast<u16>(packet.words[i]));
            values[2 * i + 1] = half_to_float(static_cast<u16>(packet.words[i] >> 16));
        }
    }

    __device__ __forceinline__ static Vector16 narrow(const float (&values)[8]) {
        Vector16 packet;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                : "=r"(packet.words[i])
                : "f"(values[2 * i + 1]), "f"(values[2 * i]));
        }
        return packet;
    }
};

template <>
struct Format<float> {
    static constexpr u32 PER_PACKET = 4;
    static constexpr u32 BYTES = 4;

    __device__ __forceinline__ static void widen(const Vector16& packet, float (&values)[4]) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            values[i] = __uint_as_float(packet.words[i]);
        }
    }

    __device__ __forceinline__ static Vector16 narrow(const float (&values)[4]) {
        Vector16 packet;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            packet.words[i] = __float_as_uint(values[i]);
        }
        return packet;
    }
};

// A packet at the end of a message, or of a message that does not begin at a multiple of sixteen bytes: element by
// element, with zeros after the end.
template <u32 BYTES>
__device__ __forceinline__ Vector16 load_piece(const u8* from, u32 bytes) {
    Vector16 packet = {};
#pragma unroll
    for (u32 at = 0; at < PACKET; at += BYTES) {
        if (at < bytes) {
            u32 bits = BYTES == 4 ? *reinterpret_cast<const u32*>(from + at)
                                  : static_cast<u32>(*reinterpret_cast<const u16*>(from + at)) << (8 * (at % 4));
            packet.words[at / 4] |= bits;
        }
    }
    return packet;
}

template <u32 BYTES>
__device__ __forceinline__ void store_piece(u8* to, u32 bytes, const Vector16& packet) {
#pragma unroll
    for (u32 at = 0; at < PACKET; at += BYTES) {
        if (at < bytes) {
            if (BYTES == 4) {
                *reinterpret_cast<u32*>(to + at) = packet.words[at / 4];
            } else {
                *reinterpret_cast<u16*>(to + at) = static_cast<u16>(packet.words[at / 4] >> (8 * (at % 4)));
            }
        }
    }
}

// Packets that a thread has in flight at most.
constexpr u32 FLIGHT = 4;

// What a kernel reads or writes: a whole message, or one row.
struct Message {
    u8* begin;
    u64 bytes;
    // Begins at a multiple of sixteen bytes.
    bool aligned;

    // Whether all packets up to `last` can be read and written whole.
    __device__ __forceinline__ bool whole(u64 last) const {
        return aligned && (last + 1) * PACKET <= bytes;
    }

    __device__ __forceinline__ u32 left(u64 packet) const {
        u64 rest = bytes - packet * PACKET;
        return rest < PACKET ? static_cast<u32>(rest) : PACKET;
    }
};

// Packets of one thread: `count` of them, at most `most`, the first at `at`, `step` apart.
struct Flight {
    u32 at;
    u32 step;
    u32 count;

    __device__ __forceinline__ Flight(u32 at, u32 step, u32 end, u32 most = FLIGHT) : at(at), step(step), count(0) {
        if (at < end) {
            u32 left = most == 1 ? 1 : ceiling_divide(end - at, step);
            count = left < most ? left : most;
        }
    }

    __device__ __forceinline__ u64 packet(u32 number) const {
        return at + static_cast<u64>(number) * step;
    }
};

// Packets of `message` from packet `base` on. WHOLE: all of them are whole and aligned.
template <u32 BYTES, bool WHOLE = false, u32 COUNT>
__device__ __forceinline__ void load(const Message& message, u64 base, const Flight& flight, Vector16 (&packets)[COUNT]) {
    if (flight.count == 0) {
        return;
    }
    const u8* from = message.begin + (base + flight.at) * PACKET;
    u64 step = static_cast<u64>(flight.step) * PACKET;
    const bool whole = WHOLE || message.whole(base + flight.packet(flight.count - 1));
#pragma unroll
    for (u32 i = 0; whole && i < COUNT; ++i) {
        if (i < flight.count) {
            packets[i] = load16(from + i * step);
        }
    }
#pragma unroll
    for (u32 i = 0; !whole && i < COUNT; ++i) {
        if (i < flight.count) {
            packets[i] = load_piece<BYTES>(from + i * step, message.left(base + flight.packet(i)));
        }
    }
}

template <u32 BYTES, bool WHOLE = false, u32 COUNT>
__device__ __forceinline__ void store(
    const Message& message, u64 base, const Flight& flight, const Vector16 (&packets)[COUNT]) {
    if (flight.count == 0) {
        return;
    }
    u8* to = message.begin + (base + flight.at) * PACKET;
    u64 step = static_cast<u64>(flight.step) * PACKET;
    const bool whole = WHOLE || message.whole(base + flight.packet(flight.count - 1));
#pragma unroll
    for (u32 i = 0; whole && i < COUNT; ++i) {
        if (i < flight.count) {
            store16(to + i * step, packets[i]);
        }
    }
#pragma unroll
    for (u32 i = 0; !whole && i < COUNT; ++i) {
        if (i < flight.count) {
            store_piece<BYTES>(to + i * step, message.left(base + flight.packet(i)), packets[i]);
        }
    }
}

// Sends packets to slots of one rank, the flight's first at `slot`.
template <u32 COUNT>
__device__ __forceinline__ void send(u8* slot, const Flight& flight, const Vector16 (&packets)[COUNT]) {
    u64 step = static_cast<u64>(flight.step) * PACKET;
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        if (i < flight.count) {
            send(slot + i * step, packets[i]);
        }
    }
}

// Sends packets to slot `slot` and so on of every other rank, the next rank first.
template <u32 COUNT>
__device__ __forceinline__ void send_to_all(
    const Group& group, const Call& call, u64 slot, const Flight& flight, const Vector16 (&packets)[COUNT]) {
    if (FAULT_DROPPED && group.rank + 1 == group.ranks) {
        return;
    }
    for (u32 next = 1; next < group.ranks; ++next) {
        u32 target = group.rank + next < group.ranks ? group.rank + next : group.rank + next - group.ranks;
        send(call.slot(group, target, slot + flight.at), flight, packets);
    }
}

// `values += packet`, or `values = packet` for the first rank: every rank adds in rank order.
template <typename Element>
__device__ __forceinline__ void accumulate(
    float (&values)[Format<Element>::PER_PACKET], const Vector16& packet, bool first) {
    float more[Format<Element>::PER_PACKET];
    Format<Element>::widen(packet, more);
#pragma unroll
    for (u32 i = 0; i < Format<Element>::PER_PACKET; ++i) {
        values[i] = first ? more[i] : values[i] + more[i];
    }
}

// `packets` are this rank's; becomes the sum with those that every other rank `source` sends to slot
// `source * stride + base` and so on, rounded.
template <typename Element, u32 COUNT>
__device__ __forceinline__ void sum(
    const Group& group, Call& call, u64 stride, u64 base, const Flight& flight, Vector16 (&packets)[COUNT]) {
    float sums[COUNT][Format<Element>::PER_PACKET];
#pragma unroll 1
    for (u32 source = 0; source < group.ranks; ++source) {
        Vector16 next[COUNT];
        if (source == group.rank) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                next[i] = packets[i];
            }
        } else {
            u8* slot = call.slot(group, group.rank, source * stride + base + flight.at);
            receive(group, call, source, slot, static_cast<u64>(flight.step) * PACKET, flight.count, next);
        }
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            if (i < flight.count) {
                accumulate<Element>(sums[i], next[i], source == 0);
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        if (i < flight.count) {
            packets[i] = Format<Element>::narrow(sums[i]);
        }
    }
}
