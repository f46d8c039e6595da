// What brings weights and activations of a sliced product to shared memory: one thread for each. A lane per row would have the
// copy engine told of every row, which takes it longer than the row's bytes do.
#pragma once

#include "sliced_block.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

template <typename FORM, bool GATED>
struct SlicedOrder : SlicedBlock<FORM, GATED> {
    using Base = SlicedBlock<FORM, GATED>;
    using Base::Base, Base::block_of, Base::chunk_at, Base::chunks, Base::maps, Base::shared;
    using Base::GROUPS, Base::STAGES, Base::UNIT_BYTES;

    // The weights of all chunks, a unit of 16 rows at a time: groups have stages of their own.
    __device__ __forceinline__ void order_weights() const {
        Turn turns[GROUPS];
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group) {
            turns[group] = {0, 1};
        }
        for (u32 ordinal = 0; ordinal < chunks(); ++ordinal) {
            u32 block = block_of(chunk_at(ordinal));
            for (u32 first = 0; first < this->units; first += GROUPS) {
#pragma unroll
                for (u32 group = 0; group < GROUPS; ++group) {
                    if (first + group < this->units) {
                        u32 place = group * STAGES + turns[group].place;
                        barrier_wait(shared.empty + place, turns[group].parity);
                        order_unit(place, this->first_unit + first + group, block);
                        turns[group].template next<STAGES>();
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void order_unit(u32 place, u32 unit, u32 block) const {
        barrier_expect(shared.full + place, UNIT_BYTES);
        block_copy_once(this->stages + place * UNIT_BYTES, maps.weight, unit * Base::Tile::OUTPUTS, block, shared.full + place);
    }

    // The activations of all chunks.
    __device__ __forceinline__ void order_inputs() const {
        Turn turn = {0, 1};
        for (u32 ordinal = 0; ordinal < chunks(); ++ordinal) {
            u64* full = shared.inputs_full + turn.place;
            barrier_wait(shared.inputs_empty + turn.place, turn.parity);
            barrier_expect(full, Base::INPUT_BYTES);
            block_copy(this->inputs + turn.place * Base::INPUT_BYTES, maps.input, 0, block_of(chunk_at(ordinal)), full);
            turn.template next<FORM::INPUT_STAGES>();
        }
    }
};

#endif
