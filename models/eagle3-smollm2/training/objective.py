"""The training loss: cross-entropy with the target's sharpened distribution, on the rows that greedy chains reach."""

import torch

import kernels


class Distillation(torch.autograd.Function):
    """Mean over rows of weight * cross-entropy(teacher[label], softmax(hidden W^T)); both gradients are made in the forward pass,
    so that no [rows, vocabulary] tensor outlives it."""

    @staticmethod
    def forward(ctx, hidden, weight_matrix, teacher, label, row_weights):
        """row_weights(logits [n, vocabulary]) -> [n]; it sees the logits because a row's weight depends on what is drafted."""
        matrix = weight_matrix.to(hidden.dtype)
        logits = hidden @ matrix.T
        weight = row_weights(logits)
        gradient, loss, best = kernels.distillation(logits, teacher, label, weight / len(hidden))
        ctx.save_for_backward(gradient @ matrix, (gradient.T @ hidden).to(weight_matrix.dtype))
        ctx.mark_non_differentiable(best, loss)
        return (loss * weight).mean(), loss, best

    @staticmethod
    def backward(ctx, scale, *_):
        hidden_gradient, matrix_gradient = ctx.saved_tensors
        return hidden_gradient * scale, matrix_gradient * scale, None, None, None


class Teacher:
    """What the target says at every label of a batch.
    `probabilities` [n, draft vocabulary]: softmax(logits / heat) within the draft vocabulary; `best` [n]: the draft id of the
    target's choice, -1 where it cannot be drafted."""

    def __init__(self, target, head, heat):
        self.target, self.heat = target, heat
        ids = head.vocabulary
        rest = torch.ones(target.vocabulary, dtype=torch.bool, device=ids.device)
        rest[ids] = False
        order = torch.cat([ids, rest.nonzero()[:, 0]])  # draft vocabulary first
        self.size, self.matrix = len(ids), target.unembedding[order].contiguous()
        self.draft_id = torch.empty_like(order)
        self.draft_id[order] = torch.arange(len(order), device=order.device)

    @torch.no_grad()
    def read(self, hidden, rows=16384):
        """hidden [n, h]: the target's final normed hidden at the labels."""
        best, probabilities = [], torch.empty(len(hidden), self.size, dtype=hidden.dtype, device=hidden.device)
        for i in range(0, len(hidden), rows):
            logits = hidden[i:i + rows] @ self.matrix.T
            best.append(logits.argmax(-1))
            probabilities[i:i + rows] = (logits[:, :self.size] / self.heat).softmax(-1, dtype=torch.float32)
        best = torch.cat(best)
        self.probabilities, self.best = probabilities, torch.where(best < self.size, best, -1)
        return self


class Objective:
    """Sum over draft steps of the weighted cross-entropy. A row counts fully where a greedy chain would come to it: at later
    steps if all its earlier drafts were the text's tokens, else `unreached`; and a chain starts rather where the row before
    missed than where it hit (`follower`)."""

    def __init__(self, teacher, unreached=0.25, follower=0.5):
        self.teacher, self.unreached, self.follower = teacher, unreached, follower

    def __call__(self, head, outputs, batch):
        """outputs: iterable of un-normed outputs [B, T, h], one a step. Returns (loss, cross-entropy [steps], accuracy [steps]);
        the last two are detached means over all rows, accuracy being agreement with the target's choice."""
        teacher, rows = self.teacher, torch.arange(len(batch.left), device=batch.left.device)
        reached, total, losses, accuracies = torch.ones_like(rows, dtype=torch.bool), 0.0, [], []
        start = torch.ones_like(rows, dtype=torch.float32)
        for k, output in enumerate(outputs):
            text = teacher.draft_id[batch.tokens[batch.sequence, batch.place + 2 + k]]
            label, valid = (rows + k).clamp_max(len(rows) - 1), batch.left > k

            def weights(logits):
                if k == 0:
                    follows = (logits.argmax(-1) == text).roll(1) & (batch.within > 0)
                    start.masked_fill_(follows, self.follower)
                return valid * start * torch.where(reached, 1.0, self.unreached)

            hidden = head.norm(output[batch.sequence, batch.place])
            loss, entropy, best = Distillation.apply(hidden, head.lm_head.weight, teacher.probabilities, label, weights)
            total = total + loss
            losses.append((entropy * valid).sum() / valid.sum())
            accuracies.append(((best == teacher.best[label]) & valid).sum() / valid.sum())
            reached = reached & (best == text)
        return total, torch.stack(losses).detach(), torch.stack(accuracies)
