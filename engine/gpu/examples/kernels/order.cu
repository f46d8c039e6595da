// A pipeline in small, for a race checker to judge: one warp has the bulk copy engine fill places of 32 words in turn, another
// reads each place once it is full and says when it is free. Kernels differ in how a place is said to be free, and so
// in which order of reads and the writes of the next turn a checker must know.

#define WARP 32
#define PLACES 2

__device__ __forceinline__ unsigned address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void wait(unsigned long long* barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}\n"
                 ::"r"(address(barrier)), "r"(parity) : "memory");
}

__device__ __forceinline__ void arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}

enum Order {
    ONE_LANE,    // the warp meets, then one lane arrives at the barrier `empty`
    EVERY_LANE,  // every lane arrives
    FENCED,      // as every lane, with a fence between ordinary accesses and the copy engine's on both sides
    MEETING,     // both warps meet in a block's barrier after every turn
    NONE,        // the next turn does not wait: a race on purpose
};

template <Order ORDER>
__device__ void pipeline(const unsigned* from, unsigned* to, unsigned turns) {
    __shared__ __align__(128) unsigned places[PLACES][WARP];
    __shared__ __align__(8) unsigned long long full[PLACES], empty[PLACES];
    unsigned lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        for (int place = 0; place < PLACES; ++place) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(full + place)) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(empty + place)), "r"(ORDER == ONE_LANE ? 1 : WARP)
                         : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (unsigned turn = 0; turn < turns; ++turn) {
        unsigned place = turn % PLACES;
        if (threadIdx.x >= WARP) {
            wait(full + place, turn / PLACES & 1);
            to[turn * WARP + lane] = places[place][lane];
            if (ORDER == FENCED) {
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            }
            __syncwarp();
            if (ORDER == EVERY_LANE || ORDER == FENCED || ORDER == ONE_LANE && lane == 0) {
                arrive(empty + place);
            }
        } else {
            if (turn >= PLACES && (ORDER == ONE_LANE || ORDER == EVERY_LANE || ORDER == FENCED)) {
                wait(empty + place, turn / PLACES + 1 & 1);
            }
            if (ORDER == FENCED) {
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            }
            if (lane == 0) {
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(address(full + place)) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(
                                 address(places[place])), "l"(from + turn * WARP), "r"(address(full + place))
                             : "memory");
            }
            __syncwarp();
        }
        if (ORDER == MEETING) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
        }
    }
}

#define DEFINE(NAME, ORDER)                                                                                        \
    extern "C" __global__ void __launch_bounds__(2 * WARP) order_##NAME(const unsigned* from, unsigned* to, unsigned turns) { \
        pipeline<ORDER>(from, to, turns);                                                                          \
    }

DEFINE(one_lane, ONE_LANE)
DEFINE(every_lane, EVERY_LANE)
DEFINE(fenced, FENCED)
DEFINE(meeting, MEETING)
DEFINE(none, NONE)
