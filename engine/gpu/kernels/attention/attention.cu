// Grouped-query attention over a paged cache, for decode, verify with a tree mask, and prefill.
//
// `attend_split` takes few rows and splits the context over warps and blocks; the block that finishes a row last puts
// the parts together, in the order of the parts. `attend_whole` takes many rows, one tile of pairs per warp.
#include "fresh.cuh"
#include "near.cuh"
#include "pair.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "tile.cuh"

constexpr u32 WARPS = 4;

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

// Pages that a warp, or the block, has under way or in work. The twin of `STAGES` in src/kernels/attention/mod.rs.
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

// The block's part of every pair: to the output if it is the only one, else to `parts`.
__device__ __forceinline__ void combine_and_store(
    const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item, const Bundle& bundle,
    float* parts) {
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
    float* part = parts + index * PART;
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

// Queries of a tile after norm and rotation; rows start in different banks. They lie in the first warp's ring, in the page
// that is ordered last.
constexpr u32 QUERY_PITCH = HEAD + CHUNK;
static_assert(PAIRS * QUERY_PITCH <= 2 * PAGE_ELEMENTS, "a page has room for a tile's queries");

// A warp's share of the tile's queries, from registers that hold its first one already.
__device__ __forceinline__ void share_queries(
    bf16* queries, const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item, const Bundle& bundle,
    LaneHead& first, LaneAngles& angles) {
    for (u32 index = threadIdx.x / WARP; index < item.rows * bundle.count; index += WARPS) {
        Pair pair(bundle, item.first_row, item.rows, index);
        u32 row = segment.first_row + pair.row;
        if (index >= WARPS) {
            first.load(a, a.source + static_cast<u64>(row) * a.row + a.query_offset + pair.head * a.query_stride);
            angles.load(a, row);
        }
        bf16 values[OF_LANE];
        first.finish(values, a, angles, a.query_norm);
#pragma unroll
        for (u32 i = 0; i < OF_LANE; ++i) {
            u32 column = threadIdx.x % WARP + i * WARP;
            if (HEAD % WARP == 0 || column < HEAD) {
                queries[index * QUERY_PITCH + column] = values[i];
            }
        }
    }
}

__device__ __forceinline__ void load_shared_tile(WarpTile& tile, const bf16* queries, const Pair (&pairs)[2]) {
    u32 group = threadIdx.x % WARP / 4;
    const bf16* from[2];
#pragma unroll
    for (u32 which = 0; which < 2; ++which) {
        from[which] = pairs[which].valid ? queries + (group + 8 * which) * QUERY_PITCH : nullptr;
    }
    load_queries(tile, from, HEAD, true);
    tile.clear();
}

// The warp's pages, after the queries have been loaded, or made.
__device__ __forceinline__ void attend_part(
    WarpTile& tile, const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item,
    const Bundle& bundle) {
    u32 warp = threadIdx.x / WARP, group = threadIdx.x % WARP / 4;
    Pair pairs[2] = {
        Pair(bundle, item.first_row, item.rows, group), Pair(bundle, item.first_row, item.rows, group + 8)};
    Sight sight = sight_of(a, segment, pairs);
    const u32* pages = a.pages + segment.first_page;
    u32 from = item.begin / PAGE + warp, to = ceiling_divide(item.end, PAGE);
    u32 first_page = from < to ? pages[from] : 0;
    bf16* ring = reinterpret_cast<bf16*>(shared_parts) + warp * STAGES * 2 * PAGE_ELEMENTS;
    if (a.cosines == nullptr) {
        wait_for_previous();
        NothingFresh none;
        Walk<WARP, STAGES, NothingFresh> walk = {a, sight, none, pages, bundle.cached, from, to, WARPS, ring};
        walk.begin(first_page);
        load_tile(tile, a, segment, pairs);
        walk.run(tile, to);
        return;
    }
    Pair mine(bundle, item.first_row, item.rows, warp);
    u32 row = segment.first_row + mine.row;
    LaneAngles angles;
    angles.load(a, row);
    wait_for_previous();
    LaneHead query;
    query.load(a, a.source + static_cast<u64>(row) * a.row + a.query_offset + mine.head * a.query_stride);
    // The first of the bundles that share a cached head writes it.
    u32 end_own = blockIdx.y % a.bundles_per_head == 0 ? item.first_row + item.rows : item.first_row;
    Fresh fresh = {a, segment, bundle.cached, item.first_row, end_own, angles, row};
    Walk<WARP, STAGES, Fresh> walk = {a, sight, fresh, pages, bundle.cached, from, to, WARPS, ring};
    walk.begin(first_page);
    LaneAngles turning = angles;
    bf16* queries = reinterpret_cast<bf16*>(shared_parts) + (STAGES - 1) * 2 * PAGE_ELEMENTS;
    share_queries(queries, a, segment, item, bundle, query, turning);
    __syncthreads();
    load_shared_tile(tile, queries, pairs);
    __syncthreads();
    walk.run(tile, to);
}

// The block's part meets those of the others in the workspace; the block that comes last puts them together.
__device__ __forceinline__ void meet_in_workspace(
    const AttentionArguments& a, const StepSegment& segment, const AttentionItem& item, const Bundle& bundle) {
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

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2) attend_split(AttentionArguments a) {
    let_next_start();
    Bundle bundle(a, blockIdx.y);
    // The step's arrays were written before the first kernel.
    if (blockIdx.x >= a.counts->split_items || bundle.count == 0) {
        // Blocks without work keep their room: the product that follows would fill it, and its weights crowd out the pages
        // that are waited for.
        wait_for_previous();
        return;
    }
    AttentionItem item = a.items[blockIdx.x];
    StepSegment segment = a.segments[item.segment];
    WarpTile tile;
    attend_part(tile, a, segment, item, bundle);
    finish_sums(tile);
    __syncthreads();
    write_part(tile);
    __syncthreads();
    u64 place = static_cast<u64>(item.place + item.part) * gridDim.y + blockIdx.y;
    float* parts = a.workspace + place * PAIRS * PART;
    combine_and_store(a, segment, item, bundle, parts);
    if (item.parts > 1) {
        meet_in_workspace(a, segment, item, bundle);
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
    NothingFresh none;
    Walk<WARPS * WARP, STAGES, NothingFresh> walk = {a, sight, none, pages, bundle.cached, 0, to, 1, ring};
    walk.begin(pages[0]);
    walk.run(tile, ceiling_divide(end, PAGE));
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

#if ARCHWAY_ATTENDS_NEAR
// A cluster of BLOCKS blocks of WARPS_OF_BLOCK warps takes a tile.
#define DEFINE(NAME, ONE, BLOCKS, WARPS_OF_BLOCK, PER_MULTIPROCESSOR)                                                 \
    extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1)                                                         \
        __launch_bounds__(WARPS_OF_BLOCK* WARP, PER_MULTIPROCESSOR) NAME(AttentionArguments a) {                      \
        attend_near<ONE, Team<BLOCKS, WARPS_OF_BLOCK>>(a, shared_parts);                                              \
    }

// One row each of up to four, eight, 16 and 64 sequences, and several rows. Three blocks of four warps: registers beside those
// of two blocks of the product in front.
DEFINE(attend_near_8, true, 8, 4, 3)
DEFINE(attend_near_8_some, true, 4, 4, 3)
DEFINE(attend_near_8_many, true, 2, 6, 2)
DEFINE(attend_near_8_alone, true, 1, 6, 2)
DEFINE(attend_near_8_rows, false, CLUSTER, NEAR_WARPS, 3)

// Registers that are left beside those of a block of nine warps with 128, three of them on a scheduler.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __maxnreg__(128)
    attend_rows(AttentionArguments a) {
    attend_rows_of(a, *reinterpret_cast<RowsMemory*>(shared_parts));
}
#endif
