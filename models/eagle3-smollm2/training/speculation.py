"""Greedy speculative decoding of many prompts side by side; every row does exactly what it would do alone."""

import torch
import torch.nn.functional as F

from chat import STOPS
from target import attend, rope_table
from tree import Shape, Tree, grow


class Cache:
    """Keys and values by slot; rows are written at given slots and seen through a mask."""

    def __init__(self, layers, batch, slots, kv_heads, head_dim, dtype, device):
        self.held = torch.zeros(layers, 2, batch, slots, kv_heads, head_dim, dtype=dtype, device=device)
        self.rows = torch.arange(batch, device=device)[:, None]

    def attention(self, layer, q, k, v, slots, mask):
        """slots [B, T]; mask [B, T, S] bool -> [B, T, heads, hd]."""
        self.held[layer, 0][self.rows, slots] = k
        self.held[layer, 1][self.rows, slots] = v
        return attend(q, self.held[layer, 0], self.held[layer, 1], mask[:, None])

    def move(self, source, destination):
        """Slots source [B, n] -> destination [B, n], all layers; read before anything is written."""
        self.held[:, :, self.rows, destination] = self.held[:, :, self.rows, source]


class Decoding:
    """`shape` None decodes plainly. After run(): `answers`, `accepted` (one count a verify) and `gaps` (top-2 logit gap of every
    answer token), a list for every prompt."""

    def __init__(self, target, head, prompts, max_new, shape):
        self.target, self.head, self.max_new, self.shape = target, head, max_new, shape
        device, self.batch = target.device, len(prompts)
        extra = 2 * shape.topk * shape.depth + shape.nodes if shape else 1
        self.slots = -(-(max(map(len, prompts)) + max_new + extra + 8) // 8) * 8
        cache = lambda layers, kv, width: Cache(layers, self.batch, self.slots, kv, width, target.dtype, device)
        self.cache = cache(target.depth, target.kv_heads, target.head_dim)
        if shape:
            c = head.config
            self.draft_cache = cache(1, c["num_key_value_heads"], c["head_dim"])
            self.rope = rope_table(self.slots, c["head_dim"], c["rope_theta"], device)
        self.rows, self.all_slots = torch.arange(self.batch, device=device), torch.arange(self.slots, device=device)
        self.length = torch.tensor([len(p) for p in prompts], device=device)  # committed tokens with a target row
        self.tokens = torch.zeros(self.batch, self.slots, dtype=torch.int64, device=device)
        for i, prompt in enumerate(prompts):
            self.tokens[i, :len(prompt)] = torch.tensor(prompt, device=device)
        self.answers, self.accepted, self.gaps = ([[] for _ in prompts] for _ in range(3))
        self.alive = [True] * self.batch

    def _choose(self, hidden):
        top = (hidden @ self.target.unembedding.T).float().topk(2, -1)
        return top.indices[..., 0], top.values[..., 0] - top.values[..., 1]

    def _target(self, tokens, positions, slots, mask):
        return self.target.run(tokens, positions, lambda layer, q, k, v: self.cache.attention(layer, q, k, v, slots, mask))

    def _draft_rows(self, hidden, tokens, positions, slots, mask):
        cos, sin = (table[positions.reshape(-1)] for table in self.rope)
        return self.head.step(hidden, self.target.embedding[tokens], cos, sin, lambda q, k, v: self.draft_cache.attention(0, q, k, v, slots, mask))

    def _emit(self, row, token, gap):
        self.answers[row].append(token)
        self.gaps[row].append(gap)
        if token in STOPS or len(self.answers[row]) >= self.max_new:
            self.alive[row] = False

    def _prefill(self):
        width = int(self.length.max())
        positions = torch.arange(width, device=self.length.device).expand(self.batch, -1)
        mask = self.all_slots <= positions[..., None]
        features, final = self._target(self.tokens[:, :width], positions, positions, mask)
        token, gap = self._choose(final[self.rows, self.length - 1])
        self.tokens[self.rows, self.length] = token
        for row in range(self.batch):
            self._emit(row, int(token[row]), float(gap[row]))
        if self.shape:
            output = self._draft_rows(self.head.fc(features), self.tokens[:, 1:width + 1], positions, positions, mask)
            self.last = output[self.rows, self.length - 1]

    def _rank(self, hidden):
        logits = self.head.lm_head(self.head.norm(hidden)).float()
        score, draft = F.log_softmax(logits, -1).topk(self.shape.topk, -1)
        return score, self.head.vocabulary[draft]

    def _tree_step(self, level, hidden, tokens, ancestry):
        """Tree rows lie in the slots behind the committed ones; they are overwritten once real features are known."""
        base, k = self.length[:, None], tokens.shape[1]
        slots = base + (level - 1) * k + torch.arange(k, device=tokens.device)
        mask = (self.all_slots < base[..., None]).expand(-1, k, -1).clone()
        seen = base[..., None] + torch.arange(ancestry.shape[-1], device=tokens.device)
        mask.scatter_(2, seen.expand(-1, k, -1), ancestry)
        return self._draft_rows(hidden, tokens, (base + level - 1).expand(-1, k), slots, mask)

    def _draft(self):
        root = self.tokens[self.rows, self.length]
        if self.shape:
            return grow(root, self.last, self.shape, self._rank, self._tree_step)
        one = torch.zeros_like(root)[:, None]
        return Tree(root[:, None], one - 1, one, one[..., None] == 0)

    def _verify(self, tree):
        """One target pass over the tree. Returns (features, path [B, depth + 1] of nodes, accepted [B], tokens and gaps after each
        path node); behind the last accepted node the path repeats it."""
        base, nodes = self.length[:, None], tree.tokens.shape[1]
        slots = base + torch.arange(nodes, device=base.device)
        mask = (self.all_slots < base[..., None]).expand(-1, nodes, -1).clone()
        mask.scatter_(2, slots[:, None].expand(-1, nodes, -1), tree.visible)
        features, final = self._target(tree.tokens, base + tree.depth, slots, mask)
        choice, gap = self._choose(final)
        node, go = torch.zeros_like(self.length), torch.ones_like(self.length, dtype=torch.bool)
        path, accepted = [node], torch.zeros_like(self.length)
        for _ in range(self.shape.depth if self.shape else 0):
            hit = (tree.parent == node[:, None]) & (tree.tokens == choice.gather(1, node[:, None]))
            go = go & hit.any(1)
            node = torch.where(go, hit.long().argmax(1), node)
            accepted = accepted + go
            path.append(node)
        path = torch.stack(path, 1)
        return features, path, accepted, choice.gather(1, path), gap.gather(1, path)

    def _commit(self, features, path, accepted, tokens, gaps):
        counts, token_rows, gap_rows = accepted.tolist(), tokens.tolist(), gaps.tolist()
        for row in range(self.batch):
            if self.alive[row]:
                self.accepted[row].append(counts[row])
                for j in range(counts[row] + 1):
                    if self.alive[row]:
                        self._emit(row, token_rows[row][j], gap_rows[row][j])
        slots = self.length[:, None] + torch.arange(path.shape[1], device=path.device)
        self.cache.move(self.length[:, None] + path, slots)
        self.tokens.scatter_(1, slots + 1, tokens)  # beyond the accepted ones this is rubbish, overwritten by the next verify
        live = torch.tensor(self.alive, device=path.device)
        if self.shape:
            mask = self.all_slots <= slots[..., None]
            real = features.gather(1, path[..., None].expand(-1, -1, features.shape[-1]))
            output = self._draft_rows(self.head.fc(real), tokens, slots, slots, mask)
            self.last = torch.where(live[:, None], output[self.rows, accepted], self.last)
        self.length = torch.where(live, self.length + accepted + 1, self.length)

    @torch.no_grad()
    def run(self):
        self._prefill()
        while any(self.alive):
            self._commit(*self._verify(self._draft()))
        return self
