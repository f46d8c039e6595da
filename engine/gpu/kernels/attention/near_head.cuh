// A head of a row, a lane's share of it, and its rotation: for attend_near, see near.cuh.
#pragma once

#include "tile.cuh"

#if ARCHWAY_ATTENDS_NEAR

// Blocks of 32 and of 64 dimensions.
constexpr u32 BLOCKS_32 = HEAD / 32;
constexpr u32 BLOCKS_64 = HEAD / 64;

// Angles of a lane's dimensions at one position, eight of each pair of blocks of 32: those of a block of the first half of a
// head, or of the four neighbouring pairs of either.
struct BlockAngles {
    float cosine[8];
    float sine[8];

    // Of a position's cosines and sines.
    __device__ __forceinline__ void load(const float* cosines, const float* sines, u32 interleaved, u32 block) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            u32 place = 8 * (threadIdx.x % 4);
            u32 from = interleaved ? (32 * (2 * block + half) + place) / 2 : 32 * block + place + 4 * half;
            Vector16 four_cosines = load16(cosines + from), four_sines = load16(sines + from);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                cosine[4 * half + i] = __uint_as_float(four_cosines.words[i]);
                sine[4 * half + i] = __uint_as_float(four_sines.words[i]);
            }
        }
    }
};

// Angles of a position, in registers before they are needed.
struct HeldAngles {
    BlockAngles blocks[BLOCKS_64];

    __device__ __forceinline__ HeldAngles(const AttentionArguments& a, u32 position) {
        u64 first = static_cast<u64>(position) * a.pairs;
#pragma unroll
        for (u32 block = 0; block < BLOCKS_64; ++block) {
            blocks[block].load(a.cosines + first, a.sines + first, a.interleaved, block);
        }
    }

    __device__ __forceinline__ const BlockAngles& of(u32 block) const {
        return blocks[block];
    }
};

// Angles of a segment's rows in shared memory: a row's cosines, then its sines. Rows start in different banks.
struct NearAngles {
    static constexpr u32 PITCH = HEAD + 4;
    float* memory;

    // Asks for them; nothing that a kernel in front writes. Every thread of the block takes part.
    __device__ __forceinline__ void order(const AttentionArguments& a, const StepSegment& segment) const {
        constexpr u32 PIECES = HEAD / 4;
        for (u32 index = threadIdx.x; index < segment.rows * PIECES; index += blockDim.x) {
            u32 row = index / PIECES, piece = index % PIECES;
            u64 first = static_cast<u64>(a.positions[segment.first_row + row]) * a.pairs;
            const float* from = piece < PIECES / 2 ? a.cosines + first + 4 * piece : a.sines + first + 4 * piece - HEAD / 2;
            copy_async(memory + row * PITCH + 4 * piece, from, true);
        }
        commit_copies();
    }

    // Until every thread's have come.
    __device__ __forceinline__ void wait() const {
        await_copies<0>();
        __syncthreads();
    }
};

// Those of one row, read when they are needed.
struct RowAngles {
    const float* cosines;
    u32 interleaved;

    __device__ __forceinline__ RowAngles(const AttentionArguments& a, const NearAngles& angles, u32 row)
        : cosines(angles.memory + row * NearAngles::PITCH), interleaved(a.interleaved) {}

    __device__ __forceinline__ BlockAngles of(u32 block) const {
        BlockAngles angles;
        angles.load(cosines, cosines + HEAD / 2, interleaved, block);
        return angles;
    }
};

// Eight dimensions of a head: their squares, added up.
__device__ __forceinline__ float squares_of(const Vector16& block) {
    float values[8], squares = 0.0f;
    unpack(block, values);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        squares += values[i] * values[i];
    }
    return squares;
}

// The norm's end: what `squares` of the whole head say, and eight weights.
__device__ __forceinline__ float factor_of_norm(float squares, float epsilon) {
    return rsqrtf(squares / static_cast<float>(HEAD) + epsilon);
}

__device__ __forceinline__ void normalise_block(Vector16& block, float factor, const float* weight) {
    float values[8];
    unpack(block, values);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        values[i] *= factor * weight[i];
    }
    block = pack(values);
}

// Two blocks of a lane's eight dimensions whose pairs are half a head apart.
__device__ __forceinline__ void rotate_apart(Vector16& lower, Vector16& upper, const BlockAngles& angles) {
    float first[8], second[8];
    unpack(lower, first);
    unpack(upper, second);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        float low = first[i], high = second[i], cosine = angles.cosine[i], sine = angles.sine[i];
        first[i] = rotated(low, high, cosine, -sine);
        second[i] = rotated(high, low, cosine, sine);
    }
    lower = pack(first);
    upper = pack(second);
}

// A block whose pairs are neighbours; `half` of the angles are its own.
__device__ __forceinline__ void rotate_within(Vector16& block, const BlockAngles& angles, u32 half) {
    float values[8];
    unpack(block, values);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        float low = values[2 * i], high = values[2 * i + 1];
        float cosine = angles.cosine[4 * half + i], sine = angles.sine[4 * half + i];
        values[2 * i] = rotated(low, high, cosine, -sine);
        values[2 * i + 1] = rotated(high, low, cosine, sine);
    }
    block = pack(values);
}

// A lane's dimensions of a head: 8t to 8t + 7 of every 32.
struct NearHead {
    Vector16 blocks[BLOCKS_32];

    __device__ __forceinline__ void load(const bf16* head, bool valid) {
#pragma unroll
        for (u32 block = 0; block < BLOCKS_32; ++block) {
            blocks[block] = valid ? load16(head + 32 * block + 8 * (threadIdx.x % 4)) : Vector16{};
        }
    }

    // The norm over the head, whose four lanes are neighbours. Rounded as by a kernel of its own.
    __device__ __forceinline__ void normalise(const float* weight, float epsilon) {
        float squares = 0.0f;
#pragma unroll
        for (u32 block = 0; block < BLOCKS_32; ++block) {
            squares += squares_of(blocks[block]);
        }
        squares += __shfl_xor_sync(ALL_LANES, squares, 1);
        squares += __shfl_xor_sync(ALL_LANES, squares, 2);
        float factor = factor_of_norm(squares, epsilon);
#pragma unroll
        for (u32 block = 0; block < BLOCKS_32; ++block) {
            normalise_block(blocks[block], factor, weight + 32 * block + 8 * (threadIdx.x % 4));
        }
    }

    template <typename Angles>
    __device__ __forceinline__ void make(const AttentionArguments& a, const Angles& angles, const float* norm) {
        if (norm != nullptr) {
            normalise(norm, a.epsilon);
        }
#pragma unroll
        for (u32 block = 0; block < BLOCKS_64; ++block) {
            BlockAngles here = angles.of(block);
            if (a.interleaved) {
                rotate_within(blocks[2 * block], here, 0);
                rotate_within(blocks[2 * block + 1], here, 1);
            } else {
                rotate_apart(blocks[block], blocks[block + BLOCKS_64], here);
            }
        }
    }
};

#endif
