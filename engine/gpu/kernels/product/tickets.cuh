// Which block takes which tile of a streamed product: some multiprocessors are served faster than others, so blocks draw
// their tiles one by one.
#pragma once

#include "base.cuh"

// Launches whose tickets are told apart. A slot is free again long before it comes round.
constexpr u32 LAUNCHES = 32768;
// Tiles are dealt to blocks in so many classes. The blocks of a class begin at the same column, those of others elsewhere:
// rows lie a power of two apart, and blocks that all read the same columns would crowd the same memory channels.
constexpr u32 CLASSES = 4;
// Tiles dealt beyond a block's first. Zero between launches: it counts round to it.
__device__ u32 tickets[LAUNCHES][CLASSES];

struct Tickets {
    u32 launch;
    u32 tiles;

    static __device__ __forceinline__ u32 own_class() {
        return blockIdx.x % CLASSES;
    }

    // Numbers of a class below `end`.
    static __device__ __forceinline__ u32 in_class(u32 end) {
        return (end + CLASSES - 1 - own_class()) / CLASSES;
    }

    // Every block of a class draws once in vain, so the class draws as often as it has tiles.
    __device__ __forceinline__ u32 draw() const {
        u32 drawn = atomicInc(&tickets[launch % LAUNCHES][own_class()], in_class(tiles) - 1);
        return (in_class(gridDim.x) + drawn) * CLASSES + own_class();
    }
};
