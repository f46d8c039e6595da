"""Several draft steps from every position of whole sequences at once: what training needs, and how chains are measured."""

import torch

from target import attend


class Unrolled:
    """Attention of one unrolled draft. Row t of step k sees the first pass's rows 0..t (real features) and its own rows of steps
    1..k: exactly what a chain drafted after position t sees at run time."""

    def __init__(self):
        self.keys, self.values = [], []

    def __call__(self, q, k, v):
        """q [B, T, heads, hd], k and v [B, T, kv_heads, hd] -> [B, T, heads, hd]."""
        first = not self.keys
        self.keys.append(k)
        self.values.append(v)
        if first:
            return attend(q, k, v)
        with torch.autocast(q.device.type, enabled=False):  # autocast would make the softmax's result float32
            return self._later(q)

    def _later(self, q):
        batch, length, heads, width = q.shape
        groups = self.keys[0].shape[2]
        grouped = q.view(batch, length, groups, heads // groups, width).permute(0, 2, 3, 1, 4)  # [B, groups, repeat, T, hd]
        keys, values = ([x.transpose(1, 2).unsqueeze(2) for x in xs] for xs in (self.keys, self.values))  # [B, groups, 1, T, hd]
        future = torch.full((length, length), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
        causal = self._wide(grouped, keys[0].transpose(-1, -2)) + future
        own = [(grouped * key).sum(-1, keepdim=True) for key in keys[1:]]
        # padded to a multiple of 8 columns, so that the matrix product over a slice stays aligned
        pad = q.new_full((*causal.shape[:-1], -len(own) % 8), float("-inf"))
        weight = (torch.cat([causal, *own, pad], -1) * width ** -0.5).softmax(-1)
        mixed = self._wide(weight[..., :length], values[0])
        for j, value in enumerate(values[1:]):
            mixed = mixed + weight[..., length + j:length + j + 1] * value
        return mixed.permute(0, 3, 1, 2, 4).reshape(batch, length, heads, width)

    @staticmethod
    def _wide(a, b):
        """a [B, groups, repeat, T, x] @ b [B, groups, 1, x, y] as one product a group, so that b is not repeated."""
        batch, groups, repeat, length, inner = a.shape
        out = a.reshape(batch * groups, repeat * length, inner) @ b.reshape(batch * groups, inner, -1)
        return out.view(batch, groups, repeat, length, -1)


def unroll(head, embedding, features, rope, steps, ids):
    """features [B, T, 3h]; ids(k, hidden) gives the tokens [B, T] that step k consumes (hidden: the step before's output, None
    at first). Yields the un-normed outputs [B, T, h] of steps 0 .. steps-1."""
    batch, length = features.shape[:2]
    attention, hidden = Unrolled(), None
    for k in range(steps):
        tokens = ids(k, hidden)
        hidden = head.fc(features) if k == 0 else hidden
        cos, sin = (table[k:k + length].repeat(batch, 1) for table in rope)
        hidden = head.step(hidden, embedding[tokens], cos, sin, attention)
        yield hidden
