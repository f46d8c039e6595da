"""How far chains drafted after every position of known answers agree with them, and the verifies that follow from it.

What a chain drafts does not depend on later verifies, so all positions can be drafted at once."""

import torch

from unroll import unroll


@torch.no_grad()
def drafted(target, head, rope, tokens, steps):
    """tokens [B, T]. Returns (drafts, agreeing), both [B, T, steps]: what a chain drafted at row t says for positions t+2,
    t+3, ..., and whether it and all before it are the tokens that stand there."""
    batch, length = tokens.shape
    padded = torch.cat([tokens, tokens.new_zeros(batch, steps + 2)], 1)
    features, _ = target.prefill(tokens)
    drafts = []

    def ids(k, hidden):
        if k:
            drafts.append(head.draft(hidden))
        return drafts[-1] if k else padded[:, 1:length + 1]

    for hidden in unroll(head, target.embedding, features, rope, steps, ids):
        pass
    drafts.append(head.draft(hidden))
    agree = torch.stack([draft == padded[:, 2 + i:2 + i + length] for i, draft in enumerate(drafts)], -1)
    return torch.stack(drafts, -1), agree.long().cumprod(-1).bool()


def matches(target, head, rope, tokens, prompt_length, end, steps):
    """prompt_length and end [B] (one past the last token). Returns for every answer a list: entry j is how many tokens of a chain
    drafted once answer token j is committed agree with the answer's tokens j+1, j+2, ..."""
    counts = drafted(target, head, rope, tokens, steps)[1].sum(-1).tolist()
    return [[min(n, e - p - 1 - j) for j, n in enumerate(row[p - 1:e - 1])] for row, p, e in zip(counts, prompt_length, end)]


def walk(match, steps):
    """Accepted counts of the verifies that chains of `steps` make over an answer."""
    accepted, j = [], 0
    while j < len(match) - 1:
        accepted.append(min(steps, match[j]))
        j += accepted[-1] + 1
    return accepted


def tokens_per_verify(accepted_lists):
    flat = [n for accepted in accepted_lists for n in accepted]
    return 1 + sum(flat) / max(1, len(flat))
