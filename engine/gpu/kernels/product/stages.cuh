// The stages of streamed products in shared memory, and the warp that orders them.
#pragma once

#include "bulk.cuh"
#include "common.cuh"
#include "tickets.cuh"

#if ARCHWAY_HAS_TMA

// Where a block has activations. CHUNKS: in registers those of the chunk of columns at hand and of the ones behind it; REGISTERS
// and SHARED: whole rows for good.
enum class Keeps { CHUNKS, REGISTERS, SHARED };

// For up to INPUTS rows of activations. A stage is COLUMNS columns of 16 rows of the weight, of which each of WARPS warps
// multiplies its share; a tile is GROUPS times 16 rows. The activations of KEPT chunks of columns are kept.
template <u32 INPUTS_, u32 WARPS_, u32 COLUMNS_, u32 STAGES_, u32 KEPT_, Keeps KEEPS, u32 GROUPS_, u32 PER_MULTIPROCESSOR_>
struct Form {
    static constexpr u32 INPUTS = INPUTS_, WARPS = WARPS_, COLUMNS = COLUMNS_, STAGES = STAGES_, KEPT = KEPT_;
    // Tiles of 8 rows of activations.
    static constexpr u32 INPUT_TILES = (INPUTS + 7) / 8;
    static constexpr bool HELD = KEEPS != Keeps::CHUNKS, IN_SHARED = KEEPS == Keeps::SHARED;
    static_assert(!IN_SHARED || INPUTS == 1, "more rows would take the stages' room");
    static constexpr u32 GROUPS = GROUPS_, PER_MULTIPROCESSOR = PER_MULTIPROCESSOR_;
    // Activations of 16 rows take more registers than the block's share for every thread. So the warp that orders is one of a
    // group of four, which hand theirs to those that multiply.
    static constexpr bool GROWS = HELD && INPUTS > 8;
    static constexpr u32 THREADS = (WARPS + (GROWS ? GROUP_WARPS : 1)) * WARP;
};

// Places of a stage in shared memory, in their order of use.
struct Turn {
    u32 place = 0;
    u32 parity = 0;

    template <u32 STAGES>
    __device__ __forceinline__ void next() {
        if (++place == STAGES) {
            place = 0;
            parity ^= 1;
        }
    }
};

// Lanes of a multiplying warp that say that a stage is read: one, after the warp has met. A race checker knows the order
// through a barrier only of the lanes that arrive themselves; for it, and in no record, all of them do.
#if ARCHWAY_HAS_EVERY_LANE_ARRIVES
constexpr u32 ARRIVALS = WARP;
#else
constexpr u32 ARRIVALS = 1;
#endif

template <typename FORM, bool GATED>
struct Stages {
    static constexpr u32 INPUT_TILES = FORM::INPUT_TILES, WARPS = FORM::WARPS, GROUPS = FORM::GROUPS;
    static constexpr u32 COLUMNS = FORM::COLUMNS, STAGES = FORM::STAGES;
    static constexpr u32 ROWS = 16;
    using Tile = Epilogue<ROWS, FORM::INPUTS, GATED, WARPS>;
    // Without padding: the copy engine writes rows that start off a line of 128 bytes more slowly.
    static constexpr u32 ROW_BYTES = COLUMNS * 2;
    static constexpr u32 STAGE_BYTES = ROWS * ROW_BYTES;

    struct Barriers {
        u64 full[STAGES];
        u64 empty[STAGES];
        // Of each stage: the tile, or NONE behind the last.
        u32 tile_of[STAGES];
        float factors[FORM::INPUTS];
    };

    const ProductArguments& a;
    u8* stages;
    Barriers& shared;
    Tickets tickets;
    u32 chunks;

    // The class decides, so sums do not depend on which block takes a tile.
    __device__ __forceinline__ u32 first_chunk() const {
        return Tickets::own_class() * chunks / CLASSES;
    }

    __device__ __forceinline__ u32 chunk_after(u32 chunk) const {
        return chunk + 1 < chunks ? chunk + 1 : 0;
    }

    // Orders a stage of a tile as soon as its place is free. `row`: a lane per row.
    __device__ __forceinline__ void order(Turn& turn, u32 tile, const bf16* row, u32 chunk) const {
        u32 lane = threadIdx.x % WARP, first = chunk * COLUMNS;
        u32 bytes = (a.columns - first < COLUMNS ? a.columns - first : COLUMNS) * 2;
        barrier_wait(shared.empty + turn.place, turn.parity);
        if (lane == 0) {
            shared.tile_of[turn.place] = tile;
            barrier_expect(shared.full + turn.place, ROWS * bytes);
        }
        __syncwarp();
        if (lane < ROWS) {
            u8* to = stages + turn.place * STAGE_BYTES + lane * ROW_BYTES;
            bulk_copy_once(to, row + first, bytes, shared.full + turn.place);
        }
        turn.template next<STAGES>();
    }

    // Orders every stage of the block's tiles.
    __device__ __forceinline__ void produce() const {
        u32 lane = threadIdx.x % WARP;
        Turn turn = {0, 1};
        for (u32 tile = blockIdx.x; tile < tickets.tiles;) {
            // Used after the tile's last order, long after it has come.
            u32 next = lane == 0 ? tickets.draw() : 0;
            const bf16* rows[GROUPS];
#pragma unroll
            for (u32 group = 0; group < GROUPS; ++group) {
                u32 row = Tile::weight_row(a, tile * GROUPS + group, lane % ROWS);
                rows[group] = a.weight + static_cast<u64>(row) * a.columns;
            }
            for (u32 done = 0, chunk = first_chunk(); done < chunks; ++done, chunk = chunk_after(chunk)) {
#pragma unroll
                for (u32 group = 0; group < GROUPS; ++group) {
                    order(turn, tile, rows[group], chunk);
                }
            }
            tile = __shfl_sync(ALL_LANES, next, 0);
        }
        barrier_wait(shared.empty + turn.place, turn.parity);
        if (lane == 0) {
            shared.tile_of[turn.place] = NONE;
            barrier_arrive(shared.full + turn.place);
        }
    }
};

#endif
