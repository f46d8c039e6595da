// A block of a sliced product: which rows of the weight and which columns it multiplies, and what its warps share.
#pragma once

#include "cluster.cuh"
#include "common.cuh"
#include "stages.cuh"

#if ARCHWAY_HAS_TMA && ARCHWAY_HAS_CLUSTERS

struct SlicedArguments {
    ProductArguments product;
    // Boxes of 16 rows of the weight, gated ones of eight gates and what they gate, and of all rows of activations, by the columns
    // of a stage: those of `Arguments` in src/kernels/product/sliced.rs.
    TensorMap weight;
    TensorMap input;
};

// For up to INPUTS rows of activations. CLUSTER blocks share rows of the weight. Eight warps multiply: GROUPS of them have rows of their own, up to UNITS times 16
// each, and the warps of a group take turns at the columns. A stage is COLUMNS columns of 16 rows of the weight, of which a
// group has STAGES, or of all rows of activations, of which the block has INPUT_STAGES.
template <u32 INPUTS_, u32 CLUSTER_, u32 GROUPS_, u32 UNITS_, u32 COLUMNS_, u32 STAGES_, u32 INPUT_STAGES_>
struct SlicedForm {
    static constexpr u32 CLUSTER = CLUSTER_, GROUPS = GROUPS_, UNITS = UNITS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr u32 INPUTS = INPUTS_, INPUT_STAGES = INPUT_STAGES_, WARPS = 8;
    // One orders weights, one activations, and one makes the norm's factors.
    static constexpr u32 THREADS = (WARPS + 3) * WARP;
};

template <typename FORM, bool GATED>
struct SlicedBlock {
    static constexpr u32 CLUSTER = FORM::CLUSTER, GROUPS = FORM::GROUPS, UNITS = FORM::UNITS, COLUMNS = FORM::COLUMNS;
    static constexpr u32 STAGES = FORM::STAGES, INPUT_STAGES = FORM::INPUT_STAGES;
    static constexpr u32 WARPS = FORM::WARPS, SLICES = WARPS / GROUPS, THREADS = WARPS * WARP;
    static constexpr u32 ROWS = 16, UNIT_BYTES = ROWS * COLUMNS * 2;
    // Columns that a warp multiplies at once, and their bytes.
    static constexpr u32 STEP = 2 * BLOCK, STEP_BYTES = STEP * 2;
    // Rows of activations, and those that a block finishes.
    static constexpr u32 INPUTS = FORM::INPUTS, OWN = INPUTS / CLUSTER, LEFTS = INPUTS / 16;
    static constexpr u32 INPUT_BYTES = INPUTS * COLUMNS * 2;
    using Tile = Epilogue<ROWS, INPUTS, GATED, WARPS>;
    // Of eight rows of the weight and 16 of activations each.
    using UnitSums = Sums[2][LEFTS];
    using GroupSums = UnitSums[UNITS];
    // Of a cluster: the twin of `Form::units` in src/kernels/product/sliced.rs.
    static constexpr u32 MOST_UNITS = GROUPS * UNITS < 15 ? GROUPS * UNITS : 15;
    static_assert(INPUTS * (MOST_UNITS * ROWS + 8) * sizeof(float) <= INPUT_STAGES * INPUT_BYTES,
                  "sums come where activations were");

    struct Barriers {
        u64 full[GROUPS * STAGES];
        u64 empty[GROUPS * STAGES];
        u64 inputs_full[INPUT_STAGES];
        u64 inputs_empty[INPUT_STAGES];
        // The factors are made, and all blocks' sums have come.
        u64 received;
        float factors[OWN];
    };

    const SlicedArguments& maps;
    const ProductArguments& a;
    // `[GROUPS][STAGES]`, and behind them those of activations.
    u8* stages;
    u8* inputs;
    Barriers& shared;
    // The cluster's units of 16 rows of the weight, and the first of them; how many of those are the warp's.
    u32 units, first_unit, group_units;

    __device__ __forceinline__ SlicedBlock(const SlicedArguments& maps, u8* storage, Barriers& shared)
        : maps(maps), a(maps.product), stages(storage), inputs(storage + GROUPS * STAGES * UNIT_BYTES), shared(shared) {
        // Dealt to clusters as evenly as can be, the first ones have one more.
        u32 all = ceiling_divide(a.outputs, Tile::OUTPUTS), clusters = gridDim.x / CLUSTER, more = all % clusters;
        units = all / clusters + (cluster() < more ? 1 : 0);
        first_unit = all / clusters * cluster() + (cluster() < more ? cluster() : more);
        group_units = (units + GROUPS - 1 - group()) / GROUPS;
    }

    static __device__ __forceinline__ u32 rank() {
        return blockIdx.x % CLUSTER;
    }

    static __device__ __forceinline__ u32 cluster() {
        return blockIdx.x / CLUSTER;
    }

    // Groups take units in turns.
    static __device__ __forceinline__ u32 group() {
        return threadIdx.x / WARP / SLICES;
    }

    // Of the warps of a group, which this is.
    static __device__ __forceinline__ u32 slice() {
        return threadIdx.x / WARP % SLICES;
    }

    // The blocks of a cluster take turns at the chunks of columns: neighbours in memory are read at about the same time.
    __device__ __forceinline__ u32 chunks() const {
        return ceiling_divide(a.columns, COLUMNS * CLUSTER);
    }

    // The chunk that is so many behind the first, which is another one for every class of clusters: see tickets.cuh.
    __device__ __forceinline__ u32 chunk_at(u32 ordinal) const {
        u32 chunk = cluster() % CLASSES * chunks() / CLASSES + ordinal;
        return chunk < chunks() ? chunk : chunk - chunks();
    }

    // The first 64 columns of a chunk of the block's.
    __device__ __forceinline__ u32 block_of(u32 chunk) const {
        return (chunk * CLUSTER + rank()) * (COLUMNS / STEP);
    }

    // The multiplying warps alone, and those of a group.
    static __device__ __forceinline__ void meet() {
        asm volatile("bar.sync %0, %1;" ::"n"(1 + GROUPS), "n"(THREADS) : "memory");
    }

    static __device__ __forceinline__ void meet_group() {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + group()), "n"(SLICES * WARP) : "memory");
    }
};

#endif
