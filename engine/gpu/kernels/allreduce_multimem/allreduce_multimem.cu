// The sum of a message over all ranks by memory that does it: what is read through the group's multicast address is the sum
// of what every rank has there, what is written goes to every rank. `multimem_simulated` is the same kernel with a loop over
// the ranks in place of those two instructions, for machines without multicast. README.md has the protocol.
#include "message.cuh"

struct MultimemArguments {
    Group group;
    u8* input;
    // May be the input.
    u8* output;
    // Of all ranks' buffers at once; not read by the simulated kernels.
    u8* multicast;
    // This rank's buffer is so many bytes behind its window's begin.
    u64 buffer;
    u64 bytes;
    // Input and output begin at multiples of sixteen bytes.
    u32 aligned;
    u32 reserved;
};

constexpr u32 LARGEST_BLOCK = 384;
constexpr u32 MOST_RANKS = 16;

// Behind `Progress`, in the same memory: how often this rank met the others in these kernels, blocks that have come, and how
// often each other rank said that it had.
struct Meetings {
    u32 count;
    u32 arrived;
    u32 unused[12];
    u32 said[MOST_RANKS];
};

__device__ __forceinline__ Meetings* meetings_of(const Group& group, u32 rank) {
    u64 offset = reinterpret_cast<u8*>(group.progress) - group.windows - static_cast<u64>(group.rank) * group.window;
    return reinterpret_cast<Meetings*>(group.windows + rank * group.window + offset + sizeof(Progress));
}

__device__ __forceinline__ u32 load_relaxed(const u32* from) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Orders accesses through a rank's own address and through the multicast address of the same memory.
template <bool SIMULATED>
__device__ __forceinline__ void fence_system() {
#if ARCHWAY_MAY_HAVE_MULTICAST
    if (!SIMULATED) {
        asm volatile("fence.proxy.alias;" ::: "memory");
    }
#endif
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

// Returns, in every thread, when all blocks of all ranks have come here for the `number`th time; false when it is over. What
// any of them wrote before is seen by all afterwards.
template <bool SIMULATED>
__device__ __forceinline__ bool meet(const Group& group, Call& call, u32 number) {
    Meetings* own = meetings_of(group, group.rank);
    fence_system<SIMULATED>();
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(&own->arrived) : "memory");
        if (before + 1 == gridDim.x) {
            // The last block of this rank: nobody adds again before all ranks have come.
            asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(&own->arrived) : "memory");
            fence_system<SIMULATED>();
            for (u32 rank = 0; rank < group.ranks; ++rank) {
                u32* place = meetings_of(group, rank)->said + group.rank;
                asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(place), "r"(number) : "memory");
            }
        }
    }
    if (threadIdx.x < group.ranks) {
        for (u32 looks = 1;; ++looks) {
            u32 said;
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(said) : "l"(own->said + threadIdx.x) : "memory");
            // A rank may have come to the next meeting already.
            bool came = static_cast<i32>(said - number) >= 0;
            if (came || call.dead || (looks % LOOKS_PER_CLOCK == 0 && call.over(group, threadIdx.x, looks))) {
                break;
            }
        }
    }
    bool over = __syncthreads_or(call.dead ? 1 : 0) != 0;
    fence_system<SIMULATED>();
    return !over;
}

// The sum of a packet of all ranks' buffers, in f32, rounded once.
template <typename Element, bool SIMULATED>
__device__ __forceinline__ Vector16 load_sum(const MultimemArguments& a, u64 offset);

#if ARCHWAY_MAY_HAVE_MULTICAST
#define LOAD_SUM(ELEMENT, INSTRUCTION)                                                                   \
    template <>                                                                                          \
    __device__ __forceinline__ Vector16 load_sum<ELEMENT, false>(const MultimemArguments& a, u64 offset) { \
        Vector16 v;                                                                                      \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add." INSTRUCTION " {%0, %1, %2, %3}, [%4];" \
                     : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])            \
                     : "l"(a.multicast + offset)                                                         \
                     : "memory");                                                                        \
        return v;                                                                                        \
    }

LOAD_SUM(bf16, "acc::f32.v4.bf16x2")
LOAD_SUM(f16, "acc::f32.v4.f16x2")

template <>
__device__ __forceinline__ Vector16 load_sum<float, false>(const MultimemArguments& a, u64 offset) {
    float values[4];
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
                 : "l"(a.multicast + offset)
                 : "memory");
    return Format<float>::narrow(values);
}
#endif

// In rank order.
template <typename Element>
__device__ __forceinline__ Vector16 load_sum_simulated(const MultimemArguments& a, u64 offset) {
    float sum[Format<Element>::PER_PACKET];
    for (u32 rank = 0; rank < a.group.ranks; ++rank) {
        accumulate<Element>(sum, look(a.group.windows + rank * a.group.window + a.buffer + offset), rank == 0);
    }
    return Format<Element>::narrow(sum);
}

template <>
__device__ __forceinline__ Vector16 load_sum<bf16, true>(const MultimemArguments& a, u64 offset) {
    return load_sum_simulated<bf16>(a, offset);
}

template <>
__device__ __forceinline__ Vector16 load_sum<f16, true>(const MultimemArguments& a, u64 offset) {
    return load_sum_simulated<f16>(a, offset);
}

template <>
__device__ __forceinline__ Vector16 load_sum<float, true>(const MultimemArguments& a, u64 offset) {
    return load_sum_simulated<float>(a, offset);
}

__device__ __forceinline__ void store_relaxed(u8* to, const Vector16& v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.words[0]), "r"(v.words[1]),
                 "r"(v.words[2]), "r"(v.words[3])
                 : "memory");
}

// To every rank's buffer.
template <bool SIMULATED>
__device__ __forceinline__ void store_all(const MultimemArguments& a, u64 offset, const Vector16& v) {
#if ARCHWAY_MAY_HAVE_MULTICAST
    if (!SIMULATED) {
        asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(a.multicast + offset),
                     "f"(__uint_as_float(v.words[0])), "f"(__uint_as_float(v.words[1])), "f"(__uint_as_float(v.words[2])),
                     "f"(__uint_as_float(v.words[3]))
                     : "memory");
        return;
    }
#endif
    for (u32 rank = 0; rank < a.group.ranks; ++rank) {
        store_relaxed(a.group.windows + rank * a.group.window + a.buffer + offset, v);
    }
}

// Needs the message, rounded up to whole packets, in the buffer.
template <typename Element, bool SIMULATED>
__device__ __forceinline__ void multimem(const MultimemArguments& a) {
    constexpr u32 BYTES = Format<Element>::BYTES;
    let_next_start();
    wait_for_previous();
    const Group& group = a.group;
    Call call(group);
    if (call.dead) {
        return;
    }
    Meetings* meetings = meetings_of(group, group.rank);
    const u32 met = load_relaxed(&meetings->count);
    const Message input{a.input, a.bytes, a.aligned != 0}, output{a.output, a.bytes, a.aligned != 0};
    const u32 packets = static_cast<u32>((a.bytes + PACKET - 1) / PACKET), chunk = ceiling_divide(packets, group.ranks);
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    u8* own = group.windows + static_cast<u64>(group.rank) * group.window + a.buffer;
    Vector16 values[FLIGHT];
    for (u32 at = thread; at < packets; at += step * FLIGHT) {
        Flight flight(at, step, packets);
        load<BYTES>(input, 0, flight, values);
#pragma unroll
        for (u32 i = 0; i < FLIGHT; ++i) {
            if (i < flight.count) {
                store_relaxed(own + flight.packet(i) * PACKET, values[i]);
            }
        }
    }
    // Every thread of the grid has read the sequence and the number of meetings by the first meeting.
    count_call(group);
    if (!meet<SIMULATED>(group, call, met + 1)) {
        return;
    }
    const u32 first = group.rank * chunk, end = first >= packets ? 0 : packets - first < chunk ? packets - first : chunk;
    for (u32 at = thread; at < end; at += step * FLIGHT) {
        Flight flight(at, step, end);
#pragma unroll
        for (u32 i = 0; i < FLIGHT; ++i) {
            if (i < flight.count) {
                values[i] = load_sum<Element, SIMULATED>(a, (first + flight.packet(i)) * PACKET);
            }
        }
#pragma unroll
        for (u32 i = 0; i < FLIGHT; ++i) {
            if (i < flight.count) {
                store_all<SIMULATED>(a, (first + flight.packet(i)) * PACKET, values[i]);
            }
        }
    }
    if (!meet<SIMULATED>(group, call, met + 2)) {
        return;
    }
    if (thread == 0) {
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&meetings->count), "r"(met + 2) : "memory");
    }
    for (u32 at = thread; at < packets; at += step * FLIGHT) {
        Flight flight(at, step, packets);
#pragma unroll
        for (u32 i = 0; i < FLIGHT; ++i) {
            if (i < flight.count) {
                values[i] = look(own + flight.packet(i) * PACKET);
            }
        }
        store<BYTES>(output, 0, flight, values);
    }
}

#define MULTIMEM_KERNEL(NAME, ELEMENT, SIMULATED)                                                        \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK, 1)                                       \
        NAME(const __grid_constant__ MultimemArguments arguments) {                                      \
        multimem<ELEMENT, SIMULATED>(arguments);                                                         \
    }

#if ARCHWAY_MAY_HAVE_MULTICAST
MULTIMEM_KERNEL(multimem_bf16, bf16, false)
MULTIMEM_KERNEL(multimem_f16, f16, false)
MULTIMEM_KERNEL(multimem_f32, float, false)
#endif
MULTIMEM_KERNEL(multimem_simulated_bf16, bf16, true)
MULTIMEM_KERNEL(multimem_simulated_f16, f16, true)
MULTIMEM_KERNEL(multimem_simulated_f32, float, true)
