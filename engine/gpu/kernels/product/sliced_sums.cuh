// What becomes of the sums of a block of a sliced product: the warps of a group add theirs up, blocks of a cluster exchange theirs.
// And what they are multiplied by: the norm's factors.
#pragma once

#include "sliced_store.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

template <typename FORM, bool GATED>
struct SlicedSums : SlicedStore<FORM, GATED> {
    using Base = SlicedStore<FORM, GATED>;
    using Base::Base, Base::a, Base::group, Base::meet, Base::meet_group, Base::rank, Base::received, Base::shared;
    using Base::CLUSTER, Base::GROUPS, Base::LEFTS, Base::OWN, Base::ROWS, Base::SLICES, Base::STAGES, Base::UNITS,
        Base::UNIT_BYTES;
    using typename Base::GroupSums;
    static_assert(SLICES == 2, "each warp of a group has the whole sums of a half of its rows");

    // The two warps of a group add up: the first one has the whole sums of the first eight rows of each unit then. They exchange
    // the others in the group's stages, which nobody reads or writes any more.
    __device__ __forceinline__ void add_slices(GroupSums& sums) const {
        constexpr u32 OF_UNIT = LEFTS * WARP, OF_WARP = UNITS * OF_UNIT;
        static_assert(SLICES * OF_WARP * sizeof(float4) <= STAGES * UNIT_BYTES, "there is room");
        u32 slice = Base::slice();
        float4* room = reinterpret_cast<float4*>(this->stages + group() * STAGES * UNIT_BYTES) + threadIdx.x % WARP;
        meet_group();
#pragma unroll
        for (u32 index = 0; index < UNITS * LEFTS; ++index) {
            Sums(&unit)[2][LEFTS] = sums[index / LEFTS];
            const float *first = unit[0][index % LEFTS].values, *second = unit[1][index % LEFTS].values;
            room[slice * OF_WARP + index * WARP] = slice == 0 ? make_float4(second[0], second[1], second[2], second[3])
                                                              : make_float4(first[0], first[1], first[2], first[3]);
        }
        meet_group();
#pragma unroll
        for (u32 index = 0; index < UNITS * LEFTS; ++index) {
            Sums(&unit)[2][LEFTS] = sums[index / LEFTS];
            float *first = unit[0][index % LEFTS].values, *second = unit[1][index % LEFTS].values;
            float4 taken = room[(1 - slice) * OF_WARP + index * WARP];
            first[0] = (slice == 0 ? first[0] : second[0]) + taken.x;
            first[1] = (slice == 0 ? first[1] : second[1]) + taken.y;
            first[2] = (slice == 0 ? first[2] : second[2]) + taken.z;
            first[3] = (slice == 0 ? first[3] : second[3]) + taken.w;
        }
    }

    // Gives the warp's sums to the blocks that finish them.
    __device__ __forceinline__ void give_sums(const GroupSums& sums) const {
        u32 lane = threadIdx.x % WARP, row = group() * ROWS + Base::slice() * 8 + lane % 4 * 2;
#pragma unroll
        for (u32 eight = 0; eight < 2 * LEFTS; ++eight) {
            u32 input = 8 * eight, owner = input / OWN;
            float* to = received() + (rank() * OWN + input % OWN + lane / 4) * this->stride() + row;
            u32 address = 0, barrier = 0;
            if constexpr (CLUSTER > 1) {
                address = address_in(to, owner);
                barrier = address_in(&shared.received, owner);
            }
#pragma unroll
            for (u32 unit = 0; unit < UNITS; ++unit) {
                if (unit < this->group_units) {
                    const float* pair = sums[unit][0][eight / 2].values + eight % 2 * 2;
                    if constexpr (CLUSTER > 1) {
                        send_in_cluster(address + unit * GROUPS * ROWS * sizeof(float), barrier, pair[0], pair[1]);
                    } else {
                        *reinterpret_cast<float2*>(to + unit * GROUPS * ROWS) = make_float2(pair[0], pair[1]);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void finish(GroupSums& sums) const {
        if constexpr (CLUSTER > 1) {
            // Every block was ready long ago. Now this one's activations are read, where sums will come.
            meet_cluster();
            arrive_in_cluster();
            add_slices(sums);
            meet_cluster();
            give_sums(sums);
        } else {
            add_slices(sums);
            meet();
            give_sums(sums);
            meet();
        }
        this->store();
    }

    // What comes before the first sums, by one thread: arrivals are those of the factors, and of what is expected.
    __device__ __forceinline__ void expect_sums() const {
        barrier_init(&shared.received, OWN + (CLUSTER > 1 ? 1 : 0));
        if (CLUSTER > 1) {
            barrier_expect(&shared.received, Base::INPUTS * this->units * ROWS * sizeof(float));
        }
    }

    // What the block's rows of activations are multiplied by, of one warp: see `norm_factor`, here of some rows at once.
    __device__ __forceinline__ void make_factors() const {
        constexpr u32 AT_ONCE = 4;
        u32 lane = threadIdx.x % WARP;
        static_assert(OWN % AT_ONCE == 0, "rows are made in turns");
#pragma unroll 1
        for (u32 own = 0; own < OWN && a.input_squares != nullptr; own += AT_ONCE) {
            float squares[AT_ONCE] = {};
            add_squares(squares, rank() * OWN + own);
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                float factor = rsqrtf(warp_sum(squares[i]) / static_cast<float>(a.columns) + a.epsilon);
                if (lane == own + i) {
                    shared.factors[lane] = factor;
                }
            }
        }
        if (lane < OWN) {
            if (a.input_squares == nullptr) {
                shared.factors[lane] = 1.0f;
            }
            barrier_arrive(&shared.received);
        }
    }

    // The lane's part of the squares of some rows of activations.
    template <u32 AT_ONCE>
    __device__ __forceinline__ void add_squares(float (&squares)[AT_ONCE], u32 first_input) const {
        constexpr u32 LOADS = 8;
        u32 slots = a.columns / SQUARES;
#pragma unroll 1
        for (u32 first = threadIdx.x % WARP; first < slots; first += LOADS * WARP) {
            float values[AT_ONCE][LOADS];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                u32 input = first_input + i < a.count ? first_input + i : 0;
#pragma unroll
                for (u32 load = 0; load < LOADS; ++load) {
                    u32 slot = first + load * WARP;
                    values[i][load] = slot < slots ? a.input_squares[static_cast<u64>(input) * slots + slot] : 0.0f;
                }
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                for (u32 load = 0; load < LOADS; ++load) {
                    squares[i] += values[i][load];
                }
            }
        }
    }
};

#endif
