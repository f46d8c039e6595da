"""EAGLE-2's dynamic draft tree for a batch of rows; a chain is the tree with one candidate a level."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Shape:
    topk: int
    depth: int
    nodes: int  # verified tokens, root included

    @staticmethod
    def chain(steps):
        return Shape(1, steps, steps + 1)


@dataclass
class Tree:
    """All [B, nodes] (visible [B, nodes, nodes]); node 0 is the root, parents precede their children."""
    tokens: torch.Tensor
    parent: torch.Tensor
    depth: torch.Tensor
    visible: torch.Tensor  # a node sees itself and its ancestors


class Pool:
    """Every candidate ever scored: log-probability of its path, token, and its parent's index in the pool (-1: the root)."""

    def __init__(self):
        self.score, self.token, self.parent, self.size = [], [], [], 0

    def add(self, score, token, parent):
        first = self.size
        self.score.append(score)
        self.token.append(token)
        self.parent.append(parent)
        self.size += score.shape[1]
        return first

    def select(self, root, shape):
        """The best nodes-1 candidates under the root tokens [B]. A path's score never exceeds its parent's, so parents are in."""
        score, token, parent = (torch.cat(x, 1) for x in (self.score, self.token, self.parent))
        batch, device = len(root), root.device
        best = score.topk(shape.nodes - 1, -1).indices.sort(-1).values
        node_of = torch.zeros(batch, self.size + 1, dtype=torch.int64, device=device)  # pool index -> node; -1 (the last) -> root
        node_of.scatter_(1, best, torch.arange(1, shape.nodes, device=device).expand(batch, -1))
        node_of[:, -1] = 0
        up = node_of.gather(1, parent.gather(1, best) % (self.size + 1))
        up = torch.cat([torch.full((batch, 1), -1, device=device), up], 1)
        rows = torch.arange(batch, device=device)
        visible = torch.eye(shape.nodes, dtype=torch.bool, device=device).repeat(batch, 1, 1)
        depth = torch.zeros(batch, shape.nodes, dtype=torch.int64, device=device)
        for node in range(1, shape.nodes):
            visible[:, node] |= visible[rows, up[:, node]]
            depth[:, node] = depth[rows, up[:, node]] + 1
        return Tree(torch.cat([root[:, None], token.gather(1, best)], 1), up, depth, visible)


def grow(root, hidden, shape, rank, step):
    """Drafts a tree. root [B]: newest tokens; hidden [B, h]: the head's output of the last committed row.
    rank(hidden [..., h]) -> (log-probabilities, target ids), [..., topk]; step(level, hidden [B, k, h], tokens [B, k],
    ancestry [B, k, level * k]) -> outputs [B, k, h], where ancestry says which of the rows of levels 1..level a row sees."""
    k, pool, batch = shape.topk, Pool(), len(root)
    score, token = rank(hidden)
    index = torch.arange(k, device=root.device).expand(batch, k)
    pool.add(score, token, torch.full_like(token, -1))
    hidden = hidden[:, None].expand(batch, k, -1)
    ancestors = torch.zeros(batch, k, 0, dtype=torch.bool, device=root.device)
    itself = torch.eye(k, dtype=torch.bool, device=root.device).expand(batch, k, k)
    for level in range(1, shape.depth):
        ancestry = torch.cat([ancestors, itself], -1)
        output = step(level, hidden, token, ancestry)
        child_score, child_token = rank(output)
        child_score, child_token = (score[..., None] + child_score).flatten(1), child_token.flatten(1)
        first = pool.add(child_score, child_token, index[..., None].expand(batch, k, k).flatten(1))
        score, chosen = child_score.topk(k, -1)
        token, index, row = child_token.gather(1, chosen), first + chosen, chosen // k
        hidden = output.gather(1, row[..., None].expand(-1, -1, output.shape[-1]))
        ancestors = ancestry.gather(1, row[..., None].expand(-1, -1, ancestry.shape[-1]))
    return pool.select(root, shape)
