// What is done to a row of logits before a token is chosen, in place: bias, then repetition, frequency and presence
// penalty, then the mask. The host names every token that is concerned, once.
#include "tokens.cuh"

struct Change {
    u32 token;
    float bias;
    // Times that the token is in the output.
    u32 outputs;
    // Bit 0: it is in the prompt or the output; bit 1: it cannot be chosen.
    u32 flags;
};

struct LogitsArguments {
    // `[rows, vocabulary]`
    float* logits;
    const SampleRow* rows;
    const Change* changes;
    u32 vocabulary;
};

extern "C" __global__ void __launch_bounds__(256) adjust_logits(LogitsArguments a) {
    let_next_start();
    wait_for_previous();
    const SampleRow& row = a.rows[blockIdx.x];
    float* logits = a.logits + static_cast<u64>(blockIdx.x) * a.vocabulary;
    for (u32 index = threadIdx.x; index < row.changes; index += blockDim.x) {
        Change change = a.changes[row.first_change + index];
        if (change.token >= a.vocabulary) {
            continue;
        }
        float logit = __fadd_rn(logits[change.token], change.bias);
        if (change.flags & 1) {
            logit = logit > 0.0f ? __fdiv_rn(logit, row.repetition) : __fmul_rn(logit, row.repetition);
        }
        if (change.outputs > 0) {
            logit = __fsub_rn(logit, __fmul_rn(row.frequency, static_cast<float>(change.outputs)));
            logit = __fsub_rn(logit, row.presence);
        }
        logits[change.token] = change.flags & 2 ? NEGATIVE_INFINITY : logit;
    }
}
