"""Fused GPU kernels, each beside the plain function that defines it. Tensors that are not on a GPU take the plain path."""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU software: the plain functions do
    triton = None


def fused(tensor):
    return triton is not None and tensor.is_cuda


def decode_attention_plain(q, k, v, lengths):
    """One query per row over a cache. q [B, kv_heads, repeat, hd], k and v [B, kv_heads, S, hd], lengths [B] = keys to
    read -> [B, kv_heads, repeat, hd]."""
    score = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    unread = torch.arange(k.shape[2], device=q.device) >= lengths[:, None]
    weight = score.masked_fill(unread[:, None, None], float("-inf")).softmax(-1)
    return (weight @ v.float()).to(q.dtype)


def distillation_plain(logits, teacher, label, weight):
    """logits [n, V], teacher [m, V] probabilities, label [n] rows of teacher, weight [n].
    Returns (gradient of sum(weight * cross entropy) by the logits, cross entropy [n] float32, argmax [n])."""
    log_q = logits.float().log_softmax(-1)
    p = teacher[label].float()
    gradient = (log_q.exp() - p) * weight[:, None]
    return gradient.to(logits.dtype), -(p * log_q).sum(-1), logits.argmax(-1)


if triton is not None:
    @triton.jit
    def _decode_attention(q, k, v, out, lengths, S, scale, GROUPS: tl.constexpr, REPEAT: tl.constexpr,
                          ROWS: tl.constexpr, HD: tl.constexpr, BLOCK: tl.constexpr):
        b, g = tl.program_id(0), tl.program_id(1)
        length = tl.load(lengths + b)
        rows, dims = tl.arange(0, ROWS), tl.arange(0, HD)  # ROWS pads the query rows to what a dot needs
        place = ((b * GROUPS + g) * REPEAT + rows)[:, None] * HD + dims[None]
        query = tl.load(q + place, mask=(rows < REPEAT)[:, None], other=0.0)
        top = tl.full([ROWS], -float("inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, HD], tl.float32)
        base = (b * GROUPS + g).to(tl.int64) * S * HD
        for start in range(0, length, BLOCK):
            column = start + tl.arange(0, BLOCK)
            cell, here = base + column[:, None] * HD + dims[None], column < length
            key = tl.load(k + cell, mask=here[:, None], other=0.0)
            score = tl.where(here[None], tl.dot(query, tl.trans(key)) * scale, -float("inf"))
            new_top = tl.maximum(top, tl.max(score, 1))
            weight = tl.exp(score - new_top[:, None])
            shrink = tl.exp(top - new_top)
            total = total * shrink + tl.sum(weight, 1)
            value = tl.load(v + cell, mask=here[:, None], other=0.0)
            mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value)
            top = new_top
        tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=(rows < REPEAT)[:, None])

    @triton.jit
    def _distillation(logits, teacher, label, weight, loss, best, V, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        here = column < V
        z = tl.load(logits + row * V + column, mask=here, other=-float("inf")).to(tl.float32)
        p = tl.load(teacher + tl.load(label + row) * V + column, mask=here, other=0.0).to(tl.float32)
        top = tl.max(z, 0)
        tl.store(best + row, tl.min(tl.where(z == top, column, BLOCK), 0).to(tl.int64))
        e = tl.exp(z - top)
        total = tl.sum(e, 0)
        log_total = top + tl.log(total)
        tl.store(loss + row, tl.sum(tl.where(here, p * (log_total - z), 0.0), 0))
        gradient = (e / total - p) * tl.load(weight + row)
        tl.store(logits + row * V + column, gradient.to(logits.dtype.element_ty), mask=here)


def decode_attention(q, k, v, lengths):
    """As decode_attention_plain; all tensors contiguous."""
    if not fused(q):
        return decode_attention_plain(q, k, v, lengths)
    batch, groups, repeat, width = q.shape
    out = torch.empty_like(q)
    _decode_attention[batch, groups](q, k, v, out, lengths, k.shape[2], width ** -0.5, GROUPS=groups, REPEAT=repeat,
                                     ROWS=max(16, triton.next_power_of_2(repeat)), HD=width, BLOCK=64, num_warps=4, num_stages=3)
    return out


def distillation(logits, teacher, label, weight):
    """As distillation_plain, but the gradient overwrites `logits`."""
    if not fused(logits):
        return distillation_plain(logits, teacher, label, weight)
    rows, width = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    best = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _distillation[rows,](logits, teacher, label, weight, loss, best, width, BLOCK=triton.next_power_of_2(width), num_warps=16)
    return logits, loss, best


def self_test(device):
    """Compares every kernel with its plain function on fresh random input; raises if they differ."""
    generator = torch.Generator(device).manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, device=device)
    q, k, v = draw(5, 3, 3, 64).bfloat16(), draw(5, 3, 200, 64).bfloat16(), draw(5, 3, 200, 64).bfloat16()
    lengths = torch.tensor([1, 63, 64, 65, 200], device=device)
    pairs = [(decode_attention(q, k, v, lengths), decode_attention_plain(q, k, v, lengths))]
    logits, teacher = draw(9, 1000).bfloat16() * 4, (draw(12, 1000) * 4).softmax(-1).bfloat16()
    label, weight = torch.arange(9, device=device) + 3, draw(9).abs()
    expected = distillation_plain(logits, teacher, label, weight)
    pairs += zip(distillation(logits.clone(), teacher, label, weight), expected)
    for got, want in pairs:
        error = (got.double() - want.double()).norm() / want.double().norm()
        if not error < 1e-2:
            raise RuntimeError(f"a GPU kernel disagrees with its definition: relative error {float(error):.3g}")
