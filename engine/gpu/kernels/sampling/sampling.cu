// Choosing tokens: the largest logit, or one draw after temperature, top-k, top-p and min-p. Both give what
// engine::sampler gives for the same row, bit for bit.
#include "tokens.cuh"

struct ArgmaxArguments {
    // `[rows, vocabulary]`
    const float* logits;
    Choice choice;
    u32 vocabulary;
};

constexpr u32 ARGMAX_THREADS = 256;

// Loads of a thread that are under way together.
constexpr u32 UNDER_WAY = 8;

// Visits the ids `first, first + step, …` below `end`, with their logits.
template <typename Visit>
__device__ __forceinline__ void each_logit(const float* logits, u32 first, u32 end, u32 step, Visit visit) {
    for (u32 base = first; base < end; base += step * UNDER_WAY) {
        float values[UNDER_WAY];
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; ++i) {
            values[i] = base + i * step < end ? logits[base + i * step] : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; ++i) {
            if (base + i * step < end) {
                visit(values[i], base + i * step);
            }
        }
    }
}

// Blocks in x share a row; y is the row. The block that comes last writes the token.
extern "C" __global__ void __launch_bounds__(ARGMAX_THREADS) argmax(ArgmaxArguments a) {
    __shared__ u64 scratch[ARGMAX_THREADS / WARP];
    let_next_start();
    wait_for_previous();
    u32 row = blockIdx.y;
    const float* logits = a.logits + static_cast<u64>(row) * a.vocabulary;
    u64 best = 0;
    each_logit(logits, blockIdx.x * blockDim.x + threadIdx.x, a.vocabulary, gridDim.x * blockDim.x, [&](float logit, u32 id) {
        u64 rank = rank_of(logit, id);
        best = rank > best ? rank : best;
    });
    best = block_max(best, scratch);
    if (threadIdx.x == 0) {
        a.choice.give(row, best, gridDim.x);
    }
}

struct SampleArguments {
    const float* logits;
    const SampleRow* rows;
    u32* tokens;
    // The same in memory of the host, or null.
    u32* host;
    u32 vocabulary;
};

constexpr u32 SAMPLE_THREADS = 1024;
constexpr u32 SAMPLE_WARPS = SAMPLE_THREADS / WARP;
// Tokens near the top that fit into shared memory, and down to which distance from the top they are collected: the widest
// first, and closer until they fit.
constexpr u32 CANDIDATES = 4096;
constexpr u32 BOUNDS = 3;
constexpr float CANDIDATE_BOUNDS[BOUNDS] = {-24.0f, -14.0f, -8.0f};

struct Candidate {
    u32 order;
    u32 id;
};

struct Shared {
    u64 scratch[SAMPLE_WARPS];
    u32 counts[BOUNDS];
    u32 token;
    Candidate candidates[CANDIDATES];
};

// A row seen through one temperature.
struct Row {
    const float* logits;
    u32 vocabulary;
    float maximum;
    float scale;

    __device__ __forceinline__ float z(float logit) const { return __fmul_rn(__fsub_rn(logit, maximum), scale); }
    __device__ __forceinline__ float likelihood(float logit) const { return exact_exp2(z(logit)); }
    __device__ __forceinline__ u64 weight(float logit) const { return fixed_point(likelihood(logit)); }
};

// Tokens to look at: those near the top, or the whole row.
struct Tokens {
    const Row& row;
    const Candidate* candidates;
    // NONE for the whole row.
    u32 count;

    template <typename Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        if (count != NONE) {
            for (u32 index = threadIdx.x; index < count; index += SAMPLE_THREADS) {
                visit(candidates[index].order, candidates[index].id);
            }
        } else {
            each_logit(row.logits, threadIdx.x, row.vocabulary, SAMPLE_THREADS, [&](float logit, u32 id) {
                visit(order_of(logit), id);
            });
        }
    }
};

// The last kept token in the order "larger logit first, then smaller id".
struct Cut {
    u32 order;
    u32 id;

    __device__ __forceinline__ bool keeps(u32 other, u32 other_id) const {
        return other > order || (other == order && other_id <= id);
    }
};

// The largest threshold of BITS bits that at least `target` of the measure reaches. Two bits a pass. `measure` adds
// to three sums what lies at or above three thresholds.
template <u32 BITS, typename Measure>
__device__ __forceinline__ u32 search(u64 target, u64* scratch, Measure measure) {
    u32 threshold = 0;
    for (u32 shift = BITS; shift > 0;) {
        shift -= 2;
        u64 sums[3] = {};
        measure(threshold, shift, sums);
        u32 digit = 0;
#pragma unroll
        for (u32 i = 0; i < 3; ++i) {
            if (block_sum(sums[i], scratch) >= target) {
                digit = i + 1;
            }
        }
        threshold |= digit << shift;
    }
    return threshold;
}

// The `wanted`th token, in the order of ids, of those with the order `order`.
__device__ __forceinline__ u32 tied_id(const Tokens& tokens, u32 order, u64 wanted, u64* scratch) {
    // Thresholds on the complement of the id, so that smaller ids are above.
    u32 complement = search<32>(wanted, scratch, [&](u32 threshold, u32 shift, u64(&sums)[3]) {
        tokens.each([&](u32 other, u32 id) {
#pragma unroll
            for (u32 i = 0; i < 3; ++i) {
                sums[i] += other == order && ~id >= (threshold | (i + 1) << shift) ? 1 : 0;
            }
        });
    });
    return ~complement;
}

// The cut after `count` tokens. There are at least that many.
__device__ __forceinline__ Cut cut_by_count(const Tokens& tokens, u64 count, u64* scratch) {
    u32 order = search<32>(count, scratch, [&](u32 threshold, u32 shift, u64(&sums)[3]) {
        tokens.each([&](u32 other, u32) {
#pragma unroll
            for (u32 i = 0; i < 3; ++i) {
                sums[i] += other >= (threshold | (i + 1) << shift) ? 1 : 0;
            }
        });
    });
    u64 above = 0, equal = 0;
    tokens.each([&](u32 other, u32) {
        above += other > order ? 1 : 0;
        equal += other == order ? 1 : 0;
    });
    above = block_sum(above, scratch);
    equal = block_sum(equal, scratch);
    u64 wanted = count - above;
    return Cut{order, wanted == equal ? NONE : tied_id(tokens, order, wanted, scratch)};
}

// The first token at which the weight so far reaches `target`; everything together does.
__device__ __forceinline__ Cut cut_by_weight(const Tokens& tokens, const Cut& before, u64 target, u64* scratch) {
    const Row& row = tokens.row;
    u32 order = search<32>(target, scratch, [&](u32 threshold, u32 shift, u64(&sums)[3]) {
        tokens.each([&](u32 other, u32 id) {
            if (before.keeps(other, id)) {
                u64 weight = row.weight(logit_of(other));
#pragma unroll
                for (u32 i = 0; i < 3; ++i) {
                    sums[i] += other >= (threshold | (i + 1) << shift) ? weight : 0;
                }
            }
        });
    });
    u64 above = 0;
    tokens.each([&](u32 other, u32 id) {
        above += other > order && before.keeps(other, id) ? row.weight(logit_of(other)) : 0;
    });
    above = block_sum(above, scratch);
    u64 each = row.weight(logit_of(order));
    u64 wanted = each == 0 ? 1 : (target - above + each - 1) / each;
    return Cut{order, tied_id(tokens, order, wanted == 0 ? 1 : wanted, scratch)};
}

// What was collected: `count` tokens, all that are nearer to the top than `bound`; NONE where even the nearest do not fit.
struct Near {
    u32 count;
    float bound;
};

// Tokens near the top go to shared memory, in no order.
__device__ __forceinline__ Near collect(const Row& row, Shared& shared) {
    if (threadIdx.x < BOUNDS) {
        shared.counts[threadIdx.x] = 0;
    }
    __syncthreads();
    u32 counts[BOUNDS] = {};
    each_logit(row.logits, threadIdx.x, row.vocabulary, SAMPLE_THREADS, [&](float logit, u32) {
#pragma unroll
        for (u32 i = 0; i < BOUNDS; ++i) {
            counts[i] += row.z(logit) > CANDIDATE_BOUNDS[i] ? 1 : 0;
        }
    });
#pragma unroll
    for (u32 i = 0; i < BOUNDS; ++i) {
        u32 together = static_cast<u32>(warp_sum(static_cast<u64>(counts[i])));
        if (threadIdx.x % WARP == 0) {
            atomicAdd(&shared.counts[i], together);
        }
    }
    __syncthreads();
    Near near = {NONE, 0.0f};
#pragma unroll
    for (u32 i = 0; i < BOUNDS; ++i) {
        if (near.count == NONE && shared.counts[i] <= CANDIDATES) {
            near = Near{shared.counts[i], CANDIDATE_BOUNDS[i]};
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.counts[0] = 0;
    }
    __syncthreads();
    if (near.count != NONE) {
        each_logit(row.logits, threadIdx.x, row.vocabulary, SAMPLE_THREADS, [&](float logit, u32 id) {
            if (row.z(logit) > near.bound) {
                shared.candidates[atomicAdd(&shared.counts[0], 1)] = Candidate{order_of(logit), id};
            }
        });
    }
    __syncthreads();
    return near;
}

// ceil(total * part / 2^32), at least 1.
__device__ __forceinline__ u64 share(u64 total, u64 part) {
    u64 low = total * part, high = __umul64hi(total, part);
    u64 quotient = high << 32 | low >> 32;
    quotient += (low & 0xffffffffu) != 0 ? 1 : 0;
    return quotient > 0 ? quotient : 1;
}

// The cut of top-k, then of top-p over what it left; everything is kept where neither cuts.
__device__ __forceinline__ Cut cut(const Row& row, const SampleRow& how, Shared& shared) {
    constexpr u64 WHOLE = 1ull << 32;
    Cut all = {0, NONE};
    bool by_count = how.top_k > 0 && how.top_k < row.vocabulary, by_weight = how.top_p < WHOLE;
    if (!by_count && !by_weight) {
        return all;
    }
    Near near = collect(row, shared);
    Tokens few = {row, shared.candidates, near.count}, every = {row, nullptr, NONE};
    bool fits = near.count != NONE;
    Cut before = all;
    if (by_count) {
        before = cut_by_count(fits && how.top_k <= near.count ? few : every, how.top_k, shared.scratch);
    }
    if (!by_weight) {
        return before;
    }
    u64 total = 0, total_near = 0;
    every.each([&](u32 order, u32 id) {
        float logit = logit_of(order);
        u64 weight = before.keeps(order, id) ? row.weight(logit) : 0;
        total += weight;
        total_near += fits && row.z(logit) > near.bound ? weight : 0;
    });
    total = block_sum(total, shared.scratch);
    total_near = block_sum(total_near, shared.scratch);
    u64 target = share(total, how.top_p);
    return cut_by_weight(fits && total_near >= target ? few : every, before, target, shared.scratch);
}

// The id in `begin..end` at which the running sum of weights exceeds `point`, which the sum of all does. For a warp.
template <typename WeightOf>
__device__ __forceinline__ u32 locate(u32 begin, u32 end, u64 point, const float* logits, WeightOf weight_of) {
    u32 lane = threadIdx.x % WARP;
    for (u32 base = begin; base < end; base += WARP * UNDER_WAY) {
        u64 weights[UNDER_WAY], sum = 0;
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; ++i) {
            u32 id = base + i * WARP + lane;
            weights[i] = id < end ? weight_of(logits[id], id) : 0;
            sum += weights[i];
        }
        sum = warp_sum(sum);
        if (point >= sum) {
            point -= sum;
            continue;
        }
#pragma unroll
        for (u32 i = 0; i < UNDER_WAY; ++i) {
            u64 running = weights[i];
#pragma unroll
            for (u32 distance = 1; distance < WARP; distance *= 2) {
                u64 lower = __shfl_up_sync(ALL_LANES, running, distance);
                running += lane >= distance ? lower : 0;
            }
            u32 found = __ballot_sync(ALL_LANES, running > point);
            if (found != 0) {
                return base + i * WARP + __ffs(found) - 1;
            }
            point -= __shfl_sync(ALL_LANES, running, WARP - 1);
        }
    }
    return NONE;
}

// One draw by inverse distribution function in ascending id. Each warp has a range of ids.
__device__ __forceinline__ u32 draw(const Row& row, const SampleRow& how, const Cut& kept, Shared& shared) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 width = ceiling_divide(ceiling_divide(row.vocabulary, SAMPLE_WARPS), WARP) * WARP;
    u32 begin = warp * width, end = begin + width < row.vocabulary ? begin + width : row.vocabulary;
    auto weight_of = [&](float logit, u32 id) -> u64 {
        float likelihood = row.likelihood(logit);
        return kept.keeps(order_of(logit), id) && likelihood >= how.min_p ? fixed_point(likelihood) : 0;
    };
    u64 sum = 0;
    each_logit(row.logits, begin + lane, end, WARP, [&](float logit, u32 id) { sum += weight_of(logit, id); });
    sum = warp_sum(sum);
    if (lane == 0) {
        shared.scratch[warp] = sum;
    }
    if (threadIdx.x == 0) {
        shared.token = NONE;
    }
    __syncthreads();
    u64 total = 0, before = 0;
    for (u32 other = 0; other < SAMPLE_WARPS; ++other) {
        before += other < warp ? shared.scratch[other] : 0;
        total += shared.scratch[other];
    }
    u64 point = __umul64hi(random_bits(how.seed, how.counter), total);
    if (point >= before && point - before < sum) {
        u32 token = locate(begin, end, point - before, row.logits, weight_of);
        if (lane == 0) {
            shared.token = token;
        }
    }
    __syncthreads();
    return shared.token;
}

// A row per block.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) sample(SampleArguments a) {
    __shared__ Shared shared;
    let_next_start();
    wait_for_previous();
    SampleRow how = a.rows[blockIdx.x];
    Row row = {a.logits + static_cast<u64>(blockIdx.x) * a.vocabulary, a.vocabulary, 0.0f, how.scale};
    u64 best = 0;
    each_logit(row.logits, threadIdx.x, a.vocabulary, SAMPLE_THREADS, [&](float logit, u32 id) {
        u64 rank = rank_of(logit, id);
        best = rank > best ? rank : best;
    });
    best = block_max(best, shared.scratch);
    row.maximum = logit_of(static_cast<u32>(best >> 32));
    u32 token = NONE;
    if (is_finite(row.maximum)) {
        bool greedy = how.scale == 0.0f || how.top_k == 1;
        token = greedy ? id_of(best) : draw(row, how, cut(row, how, shared), shared);
    }
    if (threadIdx.x == 0) {
        a.tokens[blockIdx.x] = token;
        if (a.host != nullptr) {
            a.host[blockIdx.x] = token;
        }
    }
}
