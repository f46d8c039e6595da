// What ranks send each other: packets of sixteen bytes that show by their own value that they have arrived. How and why
// this is right is in allreduce/README.md.
#pragma once

#include "base.cuh"

constexpr u32 PACKET = 16;

// A word of a window in which nothing has arrived. As data it is a NaN in every format; who sends it sends another.
constexpr u32 EMPTY = 0xffffffffu;
constexpr u32 OTHER_NAN = 0xfffffffeu;

// How often a thread looks for packets before it looks at the clock, and before it looks at the host's memory.
constexpr u32 LOOKS_PER_CLOCK = 1024;
constexpr u32 LOOKS_PER_ABORT = 64 * LOOKS_PER_CLOCK;

// Faults that a test plants, to prove that the self-test finds them. No record has these features, so no kernel that is
// served has these faults: words of a packet in the wrong order, packets that are taken before they came, and a last rank
// that sends nothing.
#if ARCHWAY_HAS_FAULT_WRONG_OFFSET
constexpr u32 FAULT_OFFSET = 1;
#else
constexpr u32 FAULT_OFFSET = 0;
#endif
#if ARCHWAY_HAS_FAULT_STALE_FLAG
constexpr bool FAULT_STALE = true;
#else
constexpr bool FAULT_STALE = false;
#endif
#if ARCHWAY_HAS_FAULT_DROPPED_RANK
constexpr bool FAULT_DROPPED = true;
#else
constexpr bool FAULT_DROPPED = false;
#endif

// In this rank's own memory, beside its window.
struct __align__(8) Progress {
    // Calls that this rank has begun, times 65536.
    u32 sequence;
    // Not 0 once a call did not finish: windows are then in disorder, and no further call does anything.
    u32 dead;
};

// A group of ranks as one of them sees it.
struct Group {
    // Windows of all ranks, one after the other in rank order, mapped into this device.
    u8* windows;
    // Bytes from one window to the next.
    u64 window;
    Progress* progress;
    // In the host's memory: not 0 where all ranks shall end. One word for the whole group.
    u32* abort;
    // In the host's memory: whom this rank waited for in vain.
    u64* report;
    // Bytes of one of a window's two halves.
    u64 half;
    // How long a rank waits for another, in nanoseconds.
    u64 patience;
    u32 rank;
    u32 ranks;
    // Goes into the report: which call of the engine this is.
    u32 call;
    u32 reserved;
};

__device__ __forceinline__ u64 clock_nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// One call of a group.
struct Call {
    u64 offset;
    u64 until;
    u32 sequence;
    bool dead;

    // Which half of the windows is this call's, and whether anything still goes.
    __device__ __forceinline__ explicit Call(const Group& group) : until(0) {
        u32 count, over;
        asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(count), "=r"(over)
                     : "l"(group.progress)
                     : "memory");
        sequence = count >> 16;
        offset = (sequence & 1) * group.half;
        dead = over != 0;
    }

    // Where packet `index` of this call's half is in `rank`'s window.
    __device__ __forceinline__ u8* slot(const Group& group, u32 rank, u64 index) const {
        return group.windows + rank * group.window + offset + index * PACKET;
    }

    // Whether waiting for `source` is over without a packet. Tells the host, and with it the other ranks, why.
    __device__ __forceinline__ bool over(const Group& group, u32 source, u32 looks) {
        u64 now = clock_nanoseconds();
        until = until == 0 ? now + group.patience : until;
        u32 gone, stop = 0;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(gone) : "l"(&group.progress->dead) : "memory");
        if (looks % LOOKS_PER_ABORT == 0) {
            asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(stop) : "l"(group.abort) : "memory");
        }
        bool late = now >= until;
        if (late && gone == 0 && stop == 0) {
            u64 report = (1ull << 63) | (static_cast<u64>(source) << 56) | (static_cast<u64>(group.call & 0xffffffu) << 32)
                         | sequence;
            asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(group.report), "l"(report) : "memory");
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(group.abort), "r"(1u) : "memory");
        }
        dead = late || gone != 0 || stop != 0;
        if (dead) {
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&group.progress->dead), "r"(1u) : "memory");
        }
        return dead;
    }
};

// This block has read the sequence in all of its threads; once every block says so, the call is counted. The sum of what
// the blocks add is 65536, whatever their number, and stays below until the last has added: so nobody reads a new
// sequence in an old call.
__device__ __forceinline__ void count_call(const Group& group) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 share = blockIdx.x == 0 ? 0x10000u - (gridDim.x - 1) : 1u;
        asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(&group.progress->sequence), "r"(share) : "memory");
    }
}

__device__ __forceinline__ void send(u8* slot, const Vector16& packet) {
    u32 words[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 word = packet.words[(i + FAULT_OFFSET) % 4];
        words[i] = word == EMPTY ? OTHER_NAN : word;
    }
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(slot), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

__device__ __forceinline__ Vector16 look(const u8* slot) {
    Vector16 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "l"(slot)
                 : "memory");
    return v;
}

__device__ __forceinline__ bool arrived(const Vector16& packet) {
    return FAULT_STALE || packet.words[0] != EMPTY && packet.words[1] != EMPTY && packet.words[2] != EMPTY && packet.words[3] != EMPTY;
}

__device__ __forceinline__ void clear(u8* slot) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(slot), "r"(EMPTY) : "memory");
}

// Waits for the first `count` of COUNT packets of `source`, `step` bytes apart, and leaves their slots empty. After a
// failure the packets are what was there.
template <u32 COUNT>
__device__ __forceinline__ void receive(
    const Group& group, Call& call, u32 source, u8* first, u64 step, u32 count, Vector16 (&packets)[COUNT]) {
    for (u32 looks = 1;; ++looks) {
        bool all = true;
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            if (i < count) {
                packets[i] = look(first + i * step);
            }
        }
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            all = all && (i >= count || arrived(packets[i]));
        }
        if (all || call.dead || (looks % LOOKS_PER_CLOCK == 0 && call.over(group, source, looks))) {
            break;
        }
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        if (i < count) {
            clear(first + i * step);
        }
    }
}
