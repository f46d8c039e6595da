"""Training sequences on the device, and batches of like length."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Batch:
    """Rows are the draft positions whose first label exists, sequence after sequence. For row i: `sequence[i]`, `place[i]` = t,
    `label t+1 .. ` are rows i, i+1, ... of the same sequence, `left[i]` of them."""
    tokens: torch.Tensor    # [B, T + steps + 1] int64, zero padded
    length: int             # T
    sequence: torch.Tensor  # [n]
    place: torch.Tensor     # [n]
    within: torch.Tensor    # [n] index inside the sequence's rows
    left: torch.Tensor      # [n]


class Sequences:
    """Answers of generate.py; the last `held` greedy ones are kept out of training, for measuring."""

    def __init__(self, file, device, held, start=0):
        loaded = np.load(file)
        tokens, prompt, end = loaded["tokens"], loaded["prompt_length"].astype(np.int64), loaded["end"].astype(np.int64)
        greedy = np.flatnonzero(loaded["temperature"] == 0)
        self.held = greedy[len(greedy) - held:]
        self.train = np.setdiff1d(np.arange(len(end)), self.held)
        self.tokens = torch.from_numpy(tokens.astype(np.int32)).to(device)
        self.prompt, self.end, self.device = prompt, end, device

    def counts(self, vocabulary):
        """How often each token is an answer token of a training sequence, [vocabulary]."""
        total = torch.zeros(vocabulary, dtype=torch.int64, device=self.device)
        column = torch.arange(self.tokens.shape[1], device=self.device)
        for part in np.array_split(self.train, max(1, len(self.train) // 8192)):
            bound = lambda values: torch.from_numpy(values[part]).to(self.device)[:, None]
            answer = (column >= bound(self.prompt)) & (column < bound(self.end))
            total += torch.bincount(self.tokens[torch.from_numpy(part).to(self.device)][answer].long(), minlength=vocabulary)
        return total

    def schedule(self, padded_tokens, rng):
        """Endless (index arrays, padded length), about `padded_tokens` a batch; each pass over the data is shuffled anew."""
        while True:
            order, batches = rng.permutation(self.train), []
            for pool in np.array_split(order, max(1, len(order) // 16384)):
                pool = pool[np.argsort(self.end[pool], kind="stable")]
                i = 0
                while i < len(pool):
                    room = lambda j: max(1, padded_tokens // self.padded(pool[i:j]))
                    j = min(len(pool), i + room(i + 1))
                    j = min(j, i + room(j))
                    batches.append((pool[i:j], self.padded(pool[i:j])))
                    i = j
            for k in rng.permutation(len(batches)):
                yield batches[k]

    def padded(self, index):
        return -(-int(self.end[index].max()) // 64) * 64

    def batch(self, index, length, steps):
        """Sizes are worked out on the host, so that nothing waits for the device."""
        def put(values):
            tensor = torch.from_numpy(values)
            return tensor.pin_memory().to(self.device, non_blocking=True) if self.device != "cpu" else tensor

        prompt, count = self.prompt[index], self.end[index] - self.prompt[index] - 1
        total, first = int(count.sum()), put(prompt - 1)
        tokens = self.tokens[put(index), :length].long()
        repeats = put(count)
        sequence = torch.repeat_interleave(torch.arange(len(index), device=self.device), repeats, output_size=total)
        within = torch.arange(total, device=self.device) - (repeats.cumsum(0) - repeats)[sequence]
        return Batch(torch.cat([tokens, tokens.new_zeros(len(index), steps + 1)], 1), length, sequence, first[sequence] + within,
                     within, repeats[sequence] - within)
