// Grouped-query attention over a paged cache, for decode, verify with a tree mask, and prefill.
//
// `attend_split` takes few rows and splits the context over warps and blocks; the block that finishes a row last puts
// the parts together, in the order of the parts. `attend_whole` takes many rows, one tile of pairs per warp.
#include "reduce.cuh"
#include "tile.cuh"

constexpr u32 WARPS = 4;

// Where the lane's pair `which` of a tile of `rows` rows comes from and goes to.
struct Pair {
    bool valid;
    u32 row;
    u32 head;

    __device__ __forceinline__ Pair(const Bundle& bundle, u32 first_row, u32 rows, u32 index) {
        valid = bundle.count > 0 && index < rows * bundle.count;
        row = valid ? first_row + index / bundle.count : 0;
        head = valid ? bundle.first + index % bundle.count : 0;
    }
};

__device__ __forceinline__ Sight sight_of(
    const AttentionArguments& a, const StepSegment& segment, const Pair (&pairs)[2]) {
    Sight sight;
    bool tree = segment.committed != NONE;
    sight.written = segment.start + segment.rows;
    sight.committed = segment.committed;
    sight.bits = tree ? sight.written - segment.committed : 0;
    u32 all = NONE;
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        u32 limit = tree ? sight.written : segment.start + pairs[which].row + 1;
        sight.limit[which] = pairs[which].valid ? limit : 0;
        sight.words[which] =
            tree ? a.mask + segment.first_word + static_cast<u64>(pairs[which].row) * segment.row_words : nullptr;
        // What a pair that is not there gives is thrown away, so it needs no mask.
        u32 seen = pairs[which].valid ? (tree ? segment.committed : limit) : NONE;
        all = seen < all ? seen : all;
    }
    sight.all = all;
    return sight;
}

__device__ __forceinline__ void load_tile(
    WarpTile& tile, const AttentionArguments& a, const StepSegment& segment, const Pair (&pairs)[2]) {
    bool aligned = (a.row | a.query_offset | a.query_stride | a.width) % 2 == 0;
    const bf16* from[2];
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        u64 row = segment.first_row + pairs[which].row;
        const bf16* query = a.source + row * a.row + a.query_offset + pairs[which].head * a.query_stride;
        from[which] = pairs[which].valid ? query : nullptr;
    }
    load_queries(tile, from, a.width, aligned);
    tile.clear();
}

__device__ __forceinline__ bf16* output_of(
    const AttentionArguments& a, const StepSegment& segment, const Pair& pair) {
    u64 row = segment.first_row + pair.row;
    return a.output + (row * a.query_heads + pair.head) * a.width;
}

// What the warps of a block, or the blocks of a row, give for a pair: HEAD sums relative to the largest score, that
// score, and the sum of weights.
constexpr u32 PART = HEAD + 2;

// Pages that a warp, or the block, has under way or in work. The twin of `STAGES` in src/kernels/attention.rs.
constexpr u32 STAGES = 3;

// Rings of pages; when they are done with, the parts: `[WARPS][PAIRS][PART]`.
extern __shared__ __align__(128) float shared_parts[];

// The warps' parts of pair `pair`, put together: factor of each, the largest score and the sum of weights.
__device__ __forceinline__ float combine_warps(u32 pair, float (&factors)[WARPS], float& sum) {
    float largest = NEGATIVE_INFINITY;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; ++warp) {
        largest = fmaxf(largest, shared_parts[(warp * PAIRS + pair) * PART + HEAD]);
    }
    float base = largest == NEGATIVE_INFINITY ? 0.0f : largest;
    sum = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; ++warp) {
        const float* part = shared_parts + (warp * PAIRS + pair) * PART;
        factors[warp] = exp2f(part[HEAD] - base);
        sum += factors[warp] * part[HEAD + 1];
    }
    return largest;
}

__device__ __forceinline__ void write_part(const WarpTile& tile) {
    u32 warp = threadIdx.x / WARP, group = threadIdx.x % WARP / 4, place = threadIdx.x % 4;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 pair = group + i / 2 * 8, column = 2 * place + i % 2;
        float* part = shared_parts + (warp * PAIRS + pair) * PART;
#pragma unroll
        for (u32 word = 0; word < VALUE_WORDS; ++word) {
            float2* to = reinterpret_cast<float2*>(part + dimension_of(word, column));
            *to = make_float2(tile.output[2 * word].values[i], tile.output[2 * word + 1].values[i]);
        }
        if (place == 0 && i % 2 == 0) {
            part[HEAD] = tile.largest[i / 2];
            part[HEAD + 1] = tile.sum[i / 2];
        }
    }
}

// The last block of a row reads all its parts from the workspace and writes the row. For few pairs: a warp per pair; a
// lane knows the factor of one part of 32, and eight parts are under way together.
__device__ __forceinline__ void combine_few(
    const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item, const Bundle& bundle) {
    constexpr u32 UNITS = HEAD / 2 / WARP + (HEAD / 2 % WARP != 0 ? 1 : 0);
    u32 lane = threadIdx.x % WARP;
    u64 stride = static_cast<u64>(gridDim.y) * PAIRS * PART;
    const float* first = a.workspace + (static_cast<u64>(item.place) * gridDim.y + blockIdx.y) * PAIRS * PART;
    for (u32 index = threadIdx.x / WARP; index < item.rows * bundle.count; index += WARPS) {
        const float* parts = first + index * PART;
        float largest = NEGATIVE_INFINITY, sum = 0.0f;
        for (u32 part = lane; part < item.parts; part += WARP) {
            largest = fmaxf(largest, __ldcg(parts + part * stride + HEAD));
        }
        largest = warp_max(largest);
        float base = largest == NEGATIVE_INFINITY ? 0.0f : largest;
        float2 sums[UNITS] = {};
        for (u32 chunk = 0; chunk < item.parts; chunk += WARP) {
            u32 left = item.parts - chunk, here = left < WARP ? left : WARP;
            const float* from = parts + chunk * stride;
            float factor = lane < here ? exp2f(__ldcg(from + lane * stride + HEAD) - base) : 0.0f;
            sum += lane < here ? factor * __ldcg(from + lane * stride + HEAD + 1) : 0.0f;
#pragma unroll 8
            for (u32 part = 0; part < here; ++part) {
                float mine = __shfl_sync(ALL_LANES, factor, part);
#pragma unroll
                for (u32 unit = 0; unit < UNITS; ++unit) {
                    u32 place = unit * WARP + lane;
                    if (HEAD / 2 % WARP == 0 || place < HEAD / 2) {
                        float2 value = __ldcg(reinterpret_cast<const float2*>(from + part * stride) + place);
                        sums[unit].x += mine * value.x;
                        sums[unit].y += mine * value.y;
                    }
                }
            }
        }
        float inverse = 1.0f / warp_sum(sum);
        bf16* output = output_of(a, segment, Pair(bundle, item.first_row, item.rows, index));
#pragma unroll
        for (u32 unit = 0; unit < UNITS; ++unit) {
            u32 place = unit * WARP + lane;
            if (HEAD / 2 % WARP == 0 || place < HEAD / 2) {
                store_output(output, 2 * place, a.width, sums[unit].x * inverse, sums[unit].y * inverse);
            }
        }
    }
}

// The same for many pairs: eight threads per pair.
__device__ __forceinline__ void combine_many(
    const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item, const Bundle& bundle) {
    u64 stride = static_cast<u64>(gridDim.y) * PAIRS * PART;
    const float* first = a.workspace + (static_cast<u64>(item.place) * gridDim.y + blockIdx.y) * PAIRS * PART;
    constexpr u32 THREADS = WARPS * WARP / PAIRS;
    u32 index = threadIdx.x / THREADS;
    Pair pair(bundle, item.first_row, item.rows, index);
    if (!pair.valid) {
        return;
    }
    const float* parts = first + index * PART;
    float largest = NEGATIVE_INFINITY;
    for (u32 part = 0; part < item.parts; ++part) {
        largest = fmaxf(largest, __ldcg(parts + part * stride + HEAD));
    }
    float base = largest == NEGATIVE_INFINITY ? 0.0f : largest, sum = 0.0f;
    float2 sums[HEAD / 2 / THREADS] = {};
    for (u32 part = 0; part < item.parts; ++part) {
        const float* from = parts + part * stride;
        float factor = exp2f(__ldcg(from + HEAD) - base);
        sum += factor * __ldcg(from + HEAD + 1);
#pragma unroll
        for (u32 i = 0; i < HEAD / 2 / THREADS; ++i) {
            float2 value = __ldcg(reinterpret_cast<const float2*>(from) + i * THREADS + threadIdx.x % THREADS);
            sums[i].x += factor * value.x;
            sums[i].y += factor * value.y;
        }
    }
    float inverse = 1.0f / sum;
    bf16* output = output_of(a, segment, pair);
#pragma unroll
    for (u32 i = 0; i < HEAD / 2 / THREADS; ++i) {
        u32 dimension = 2 * (i * THREADS + threadIdx.x % THREADS);
        store_output(output, dimension, a.width, sums[i].x * inverse, sums[i].y * inverse);
    }
}

// The block's part of every pair: to the output if it is the only one, else to the workspace.
__device__ __forceinline__ void combine_and_store(
    const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item, const Bundle& bundle) {
    constexpr u32 THREADS = WARPS * WARP / PAIRS;
    u32 index = threadIdx.x / THREADS;
    Pair pair(bundle, item.first_row, item.rows, index);
    if (!pair.valid) {
        return;
    }
    float factors[WARPS], sum;
    float largest = combine_warps(index, factors, sum);
    bool only = item.parts == 1;
    float inverse = 1.0f / sum;
    u64 place = static_cast<u64>(item.place + item.part) * gridDim.y + blockIdx.y;
    float* part = a.workspace + (place * PAIRS + index) * PART;
    bf16* output = output_of(a, segment, pair);
#pragma unroll
    for (u32 i = 0; i < HEAD / 2 / THREADS; ++i) {
        u32 dimension = 2 * (i * THREADS + threadIdx.x % THREADS);
        float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
        for (u32 warp = 0; warp < WARPS; ++warp) {
            const float* from = shared_parts + (warp * PAIRS + index) * PART;
            float2 value = *reinterpret_cast<const float2*>(from + dimension);
            total.x += factors[warp] * value.x;
            total.y += factors[warp] * value.y;
        }
        if (only) {
            store_output(output, dimension, a.width, total.x * inverse, total.y * inverse);
        } else {
            *reinterpret_cast<float2*>(part + dimension) = total;
        }
    }
    if (!only && threadIdx.x % THREADS == 0) {
        part[HEAD] = largest;
        part[HEAD + 1] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2) attend_split(AttentionArguments a) {
    let_next_start();
    Bundle bundle(a, blockIdx.y);
    // The step's arrays were written before the first kernel.
    if (blockIdx.x >= a.counts->split_items || bundle.count == 0) {
        wait_for_previous();
        return;
    }
    AttentionItem item = a.items[blockIdx.x];
    StepSegment segment = a.segments[item.segment];
    u32 warp = threadIdx.x / WARP, group = threadIdx.x % WARP / 4;
    Pair pairs[2] = {
        Pair(bundle, item.first_row, item.rows, group), Pair(bundle, item.first_row, item.rows, group + 8)};
    Sight sight = sight_of(a, segment, pairs);
    WarpTile tile;
    const u32* pages = a.pages + segment.first_page;
    u32 from = item.begin / PAGE + warp, to = ceiling_divide(item.end, PAGE);
    u32 first_page = from < to ? pages[from] : 0;
    wait_for_previous();
    load_tile(tile, a, segment, pairs);
    bf16* ring = reinterpret_cast<bf16*>(shared_parts) + warp * STAGES * 2 * PAGE_ELEMENTS;
    walk<WARP, STAGES>(tile, a, sight, pages, bundle.cached, first_page, from, to, WARPS, to, ring);
    finish_sums(tile);
    __syncthreads();
    write_part(tile);
    __syncthreads();
    combine_and_store(a, segment, item, bundle);
    if (item.parts == 1) {
        return;
    }
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        u32* arrivals = a.arrivals + static_cast<u64>(item.place) * gridDim.y + blockIdx.y;
        last = atomicAdd(arrivals, 1) + 1 == item.parts;
        if (last) {
            *arrivals = 0;
        }
    }
    __syncthreads();
    if (last) {
        __threadfence();
        if (item.rows * bundle.count <= WARPS) {
            combine_few(a, segment, item, bundle);
        } else {
            combine_many(a, segment, item, bundle);
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2) attend_whole(AttentionArguments a) {
    let_next_start();
    wait_for_previous();
    // The longest contexts first: what starts last should end soon.
    if (blockIdx.x >= a.counts->whole_items) {
        return;
    }
    AttentionItem item = a.items[a.counts->whole_items - 1 - blockIdx.x];
    StepSegment segment = a.segments[item.segment];
    Bundle bundle(a, blockIdx.y);
    u32 warp = threadIdx.x / WARP, group = threadIdx.x % WARP / 4;
    u32 most = PAIRS / (a.group < PAIRS ? a.group : PAIRS), skipped = warp * most;
    if (bundle.count == 0) {
        return;
    }
    // A warp without rows helps to bring the pages.
    u32 first_row = item.first_row + skipped, left = item.rows > skipped ? item.rows - skipped : 0;
    u32 rows = left < most ? left : most;
    Pair pairs[2] = {Pair(bundle, first_row, rows, group), Pair(bundle, first_row, rows, group + 8)};
    Sight sight = sight_of(a, segment, pairs);
    WarpTile tile;
    load_tile(tile, a, segment, pairs);
    const u32* pages = a.pages + segment.first_page;
    bool tree = segment.committed != NONE;
    u32 end = rows == 0 ? 0 : tree ? item.end : segment.start + first_row + rows, to = ceiling_divide(item.end, PAGE);
    bf16* ring = reinterpret_cast<bf16*>(shared_parts);
    walk<WARPS * WARP, STAGES>(
        tile, a, sight, pages, bundle.cached, pages[0], 0, to, 1, ceiling_divide(end, PAGE), ring);
    finish_sums(tile);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const Pair& pair = pairs[i / 2];
        if (!pair.valid) {
            continue;
        }
        float inverse = 1.0f / tile.sum[i / 2];
        bf16* output = output_of(a, segment, pair);
        u32 column = 2 * (threadIdx.x % 4) + i % 2;
#pragma unroll
        for (u32 word = 0; word < VALUE_WORDS; ++word) {
            float low = tile.output[2 * word].values[i] * inverse, high = tile.output[2 * word + 1].values[i] * inverse;
            store_output(output, dimension_of(word, column), a.width, low, high);
        }
    }
}
