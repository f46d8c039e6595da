// Rotary position embedding in place, appending keys and values to the paged cache, both in one kernel with the norm
// over query and key heads, and moving cached rows.
//
// The cache of a layer is `[page][head][position in page][head dimension rounded up to 16]` for keys, and the same for
// values; the padding holds zeros.
#include "reduce.cuh"
#include "step.cuh"

struct Angles {
    // `[positions, pairs]`
    const float* cosines;
    const float* sines;
    u32 pairs;
    // Pairs are (2i, 2i+1) instead of (i, i + pairs).
    u32 interleaved;

    __device__ __forceinline__ u32 first(u32 pair) const { return interleaved ? 2 * pair : pair; }
    __device__ __forceinline__ u32 second(u32 pair) const { return interleaved ? 2 * pair + 1 : pair + pairs; }
};

struct RotateArguments {
    const u32* positions;
    Angles angles;
    bf16* buffer;
    u32 row;
    u32 offset;
    u32 count;
    u32 stride;
    u32 rows;
    u32 reserved;
};

// A pair per thread.
extern "C" __global__ void __launch_bounds__(256) rotate(RotateArguments arguments) {
    let_next_start();
    wait_for_previous();
    u32 index = blockIdx.x * blockDim.x + threadIdx.x, pairs = arguments.angles.pairs;
    if (index >= arguments.rows * arguments.count * pairs) {
        return;
    }
    u32 pair = index % pairs, block = index / pairs % arguments.count, row = index / pairs / arguments.count;
    bf16* values =
        arguments.buffer + static_cast<u64>(row) * arguments.row + arguments.offset + block * arguments.stride;
    u64 angle = static_cast<u64>(arguments.positions[row]) * pairs + pair;
    float cosine = arguments.angles.cosines[angle], sine = arguments.angles.sines[angle];
    u32 first = arguments.angles.first(pair), second = arguments.angles.second(pair);
    float left = to_float(values[first]), right = to_float(values[second]);
    values[first] = to_bf16(rotated(left, right, cosine, -sine));
    values[second] = to_bf16(rotated(right, left, cosine, sine));
}

struct CachePlace {
    // Of the layer.
    bf16* keys;
    bf16* values;
    u32 heads;
    // Elements of a head of one position: the head dimension rounded up to 16.
    u32 padded;

    __device__ __forceinline__ u64 element(u32 slot, u32 head) const {
        u64 page = slot / PAGE;
        return ((page * heads + head) * PAGE + slot % PAGE) * padded;
    }
};

struct AppendArguments {
    // Page times positions in a page plus the position in it; NONE for padding.
    const u32* slots;
    const bf16* source;
    CachePlace cache;
    u32 row;
    u32 key_offset;
    u32 key_stride;
    u32 value_offset;
    u32 value_stride;
    // Columns of a head.
    u32 width;
    u32 rows;
    u32 reserved;
};

// A row per block in x; y is 0 for keys and 1 for values.
extern "C" __global__ void __launch_bounds__(256) append(AppendArguments arguments) {
    let_next_start();
    wait_for_previous();
    u32 slot = arguments.slots[blockIdx.x];
    if (slot == NONE) {
        return;
    }
    bool is_value = blockIdx.y == 1;
    const bf16* source = arguments.source + static_cast<u64>(blockIdx.x) * arguments.row +
                         (is_value ? arguments.value_offset : arguments.key_offset);
    u32 stride = is_value ? arguments.value_stride : arguments.key_stride;
    bf16* target = is_value ? arguments.cache.values : arguments.cache.keys;
    u32 padded = arguments.cache.padded;
    for (u32 index = threadIdx.x; index < arguments.cache.heads * padded; index += blockDim.x) {
        u32 head = index / padded, column = index % padded;
        bf16 value = column < arguments.width ? source[head * stride + column] : bf16{0};
        target[arguments.cache.element(slot, head) + column] = value;
    }
}

// Over query and key heads; null for none.
struct HeadNorm {
    const float* query;
    const float* key;
    float epsilon;
    u32 reserved;
};

struct RotateAppendArguments {
    const u32* positions;
    const u32* slots;
    Angles angles;
    // Rows of queries, keys and values, in this order and without gaps.
    bf16* buffer;
    CachePlace cache;
    HeadNorm norm;
    u32 query_heads;
    u32 width;
    u32 rows;
    u32 reserved;
};

constexpr u32 HEADS_PER_BLOCK = 4;
constexpr u32 WIDEST_HEAD = 512;

// A head of a row per warp. Rotated queries go back to the buffer, rotated keys and the values to the cache; the keys
// in the buffer stay as they were.
extern "C" __global__ void __launch_bounds__(HEADS_PER_BLOCK* WARP) rotate_append(RotateAppendArguments arguments) {
    __shared__ float storage[HEADS_PER_BLOCK][WIDEST_HEAD];
    let_next_start();
    wait_for_previous();
    u32 lane = threadIdx.x % WARP, row = blockIdx.y, width = arguments.width;
    u32 queries = arguments.query_heads, cached = arguments.cache.heads;
    u32 head = blockIdx.x * HEADS_PER_BLOCK + threadIdx.x / WARP;
    if (head >= queries + 2 * cached) {
        return;
    }
    float* values = storage[threadIdx.x / WARP];
    bf16* source = arguments.buffer + (static_cast<u64>(row) * (queries + 2 * cached) + head) * width;
    bool is_query = head < queries, is_value = head >= queries + cached;
    const float* weight = is_query ? arguments.norm.query : is_value ? nullptr : arguments.norm.key;
    float squares = 0.0f;
    for (u32 column = lane; column < width; column += WARP) {
        float value = to_float(source[column]);
        values[column] = value;
        squares += value * value;
    }
    if (weight != nullptr) {
        float factor = rsqrtf(warp_sum(squares) / static_cast<float>(width) + arguments.norm.epsilon);
        for (u32 column = lane; column < width; column += WARP) {
            // Rounded as it is where the norm is a kernel of its own.
            values[column] = to_float(to_bf16(values[column] * factor * weight[column]));
        }
    }
    __syncwarp();
    if (!is_value) {
        const Angles& angles = arguments.angles;
        u64 angle = static_cast<u64>(arguments.positions[row]) * angles.pairs;
        for (u32 pair = lane; pair < angles.pairs; pair += WARP) {
            float cosine = angles.cosines[angle + pair], sine = angles.sines[angle + pair];
            u32 first = angles.first(pair), second = angles.second(pair);
            float left = values[first], right = values[second];
            values[first] = rotated(left, right, cosine, -sine);
            values[second] = rotated(right, left, cosine, sine);
        }
        __syncwarp();
    }
    if (is_query) {
        for (u32 column = lane; column < width; column += WARP) {
            source[column] = to_bf16(values[column]);
        }
        return;
    }
    u32 slot = arguments.slots[row];
    if (slot == NONE) {
        return;
    }
    bf16* target = (is_value ? arguments.cache.values : arguments.cache.keys) +
                   arguments.cache.element(slot, (head - queries) % cached);
    for (u32 column = lane; column < arguments.cache.padded; column += WARP) {
        target[column] = column < width ? to_bf16(values[column]) : bf16{0};
    }
}

struct MoveArguments {
    const StepCounts* counts;
    const RowMove* moves;
    // Of the first layer.
    CachePlace cache;
    // Elements from a layer's keys to the next one's, the same for values.
    u64 layer_stride;
    u32 layers;
    u32 reserved;
};

// A layer per block in x; y is 0 for keys and 1 for values. A thread has columns of its own in every row, so that a move
// sees what the moves before it have written.
extern "C" __global__ void __launch_bounds__(128) move_rows(MoveArguments arguments) {
    let_next_start();
    wait_for_previous();
    const CachePlace& cache = arguments.cache;
    bf16* rows = (blockIdx.y == 1 ? cache.values : cache.keys) + blockIdx.x * arguments.layer_stride;
    u32 pieces = cache.padded / 8, moves = arguments.counts->moves;
    for (u32 index = threadIdx.x; index < cache.heads * pieces; index += blockDim.x) {
        u32 head = index / pieces, column = index % pieces * 8;
        for (u32 move = 0; move < moves; ++move) {
            RowMove places = arguments.moves[move];
            Vector16 row = load16(rows + cache.element(places.from, head) + column);
            store16(rows + cache.element(places.to, head) + column, row);
        }
    }
}
