// The step's own rows in attention: query and key heads are normalised and rotated, keys and values go to the cache and,
// in the same moment, to the page in shared memory that the warp is about to work on. What was appended by a kernel of
// its own has the same bits (../rope/rope.cu).
#pragma once

#include "reduce.cuh"
#include "tile.cuh"

// Columns of a head that a lane has: `lane`, `lane + 32` and so on.
constexpr u32 OF_LANE = (HEAD + WARP - 1) / WARP;

// What a lane's columns are rotated by: `own * cosine + other * sine`, where `other` is the column that a pair joins with.
struct LaneAngles {
    float cosine[OF_LANE];
    float sine[OF_LANE];

    // `row` of the step.
    __device__ __forceinline__ void load(const AttentionArguments& a, u32 row) {
        u64 first = static_cast<u64>(a.positions[row]) * a.pairs;
#pragma unroll
        for (u32 i = 0; i < OF_LANE; ++i) {
            u32 column = threadIdx.x % WARP + i * WARP;
            bool second = a.interleaved ? column % 2 == 1 : column >= a.pairs;
            u32 pair = a.interleaved ? column / 2 : second ? column - a.pairs : column;
            bool rotated = column < 2 * a.pairs;
            float by = rotated ? a.sines[first + pair] : 0.0f;
            cosine[i] = rotated ? a.cosines[first + pair] : 1.0f;
            // A column that is not rotated keeps its bits: what is added to it is -0, as +0 would change the sign of a zero.
            sine[i] = rotated && second ? by : -by;
        }
    }
};

// A lane's columns of one head, and those that they are rotated with.
struct LaneHead {
    float own[OF_LANE];
    float other[OF_LANE];

    static __device__ __forceinline__ u32 partner(const AttentionArguments& a, u32 column) {
        return a.interleaved ? column ^ 1 : column < a.pairs ? column + a.pairs : column - a.pairs;
    }

    __device__ __forceinline__ void load(const AttentionArguments& a, const bf16* head) {
#pragma unroll
        for (u32 i = 0; i < OF_LANE; ++i) {
            u32 column = threadIdx.x % WARP + i * WARP;
            own[i] = column < a.width ? to_float(head[column]) : 0.0f;
            other[i] = column < 2 * a.pairs ? to_float(head[partner(a, column)]) : 0.0f;
        }
    }

    // The norm over the head, if there is a weight, and the rotation; rounded as by kernels of their own.
    __device__ __forceinline__ void finish(
        bf16 (&to)[OF_LANE], const AttentionArguments& a, const LaneAngles& angles, const float* weight) {
        if (weight != nullptr) {
            float squares = 0.0f;
#pragma unroll
            for (u32 i = 0; i < OF_LANE; ++i) {
                squares += own[i] * own[i];
            }
            float factor = rsqrtf(warp_sum(squares) / static_cast<float>(a.width) + a.epsilon);
#pragma unroll
            for (u32 i = 0; i < OF_LANE; ++i) {
                u32 column = threadIdx.x % WARP + i * WARP;
                float mine = column < a.width ? weight[column] : 0.0f;
                float others = column < 2 * a.pairs ? weight[partner(a, column)] : 0.0f;
                own[i] = to_float(to_bf16(own[i] * factor * mine));
                other[i] = to_float(to_bf16(other[i] * factor * others));
            }
        }
#pragma unroll
        for (u32 i = 0; i < OF_LANE; ++i) {
            to[i] = to_bf16(rotated(own[i], other[i], angles.cosine[i], angles.sine[i]));
        }
    }
};

// Writes the rows of a segment that are new in this step to pages.
struct Fresh {
    const AttentionArguments& a;
    const StepSegment& segment;
    u32 cached;
    // Rows that this block writes to the cache: those of its tile.
    u32 first_own;
    u32 end_own;
    // Of row `angles_row` of the step.
    const LaneAngles& angles;
    u32 angles_row;

    // Positions that are in the cache already.
    __device__ __forceinline__ u32 stored() const { return segment.start; }

    // `ring` has the page's keys, then its values; `element` is the first of both in the cache.
    __device__ __forceinline__ void write(bf16* ring, u32 page, u64 element) const {
        u32 begin = page * PAGE > segment.start ? page * PAGE : segment.start;
        u32 written = segment.start + segment.rows, end = (page + 1) * PAGE < written ? (page + 1) * PAGE : written;
        for (u32 position = begin; position < end; ++position) {
            u32 row = position - segment.start, within = position % PAGE, lane = threadIdx.x % WARP;
            const bf16* source = a.source + static_cast<u64>(segment.first_row + row) * a.row + cached * a.width;
            LaneHead head;
            head.load(a, source + a.key_offset);
            bf16 key[OF_LANE], value[OF_LANE];
#pragma unroll
            for (u32 i = 0; i < OF_LANE; ++i) {
                u32 column = lane + i * WARP;
                value[i] = column < a.width ? source[a.value_offset + column] : bf16{0};
            }
            if (segment.first_row + row == angles_row) {
                head.finish(key, a, angles, a.key_norm);
            } else {
                LaneAngles others;
                others.load(a, segment.first_row + row);
                head.finish(key, a, others, a.key_norm);
            }
            bool own = row >= first_own && row < end_own;
#pragma unroll
            for (u32 i = 0; i < OF_LANE; ++i) {
                u32 column = lane + i * WARP;
                if (HEAD % WARP != 0 && column >= HEAD) {
                    break;
                }
                u32 place = within * HEAD + swizzled(within, column / CHUNK * CHUNK) + column % CHUNK;
                ring[place] = key[i];
                ring[PAGE_ELEMENTS + place] = value[i];
                if (own) {
                    a.keys[element + within * HEAD + column] = key[i];
                    a.values[element + within * HEAD + column] = value[i];
                }
            }
        }
    }
};

// Where another kernel appended.
struct NothingFresh {
    __device__ __forceinline__ u32 stored() const { return NONE; }
    __device__ __forceinline__ void write(bf16*, u32, u64) const {}
};
