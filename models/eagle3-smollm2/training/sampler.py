"""Batched generation: every row of the batch has its own position, and a finished row is refilled with the next prompt."""

import time
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from chat import STOPS, TURN_END
from kernels import decode_attention

BURST = 16         # steps between two looks at what has finished
MIN_P = 0.05       # sampled tokens have at least this share of the likeliest token's probability
LOOP_WINDOW = 48   # an answer whose last so many tokens repeat with a period of at most LOOP_PERIOD is cut there
LOOP_PERIOD = 32


@dataclass
class Job:
    prompt: list         # token ids
    temperature: float   # 0 is greedy
    max_new: int


@dataclass
class Finished:
    """Rows as numpy arrays: tokens [n, length] uint16, prompt_length, end (one past the last token), temperature, stopped (by
    a stop token rather than by length or loop)."""
    tokens: np.ndarray
    prompt_length: np.ndarray
    end: np.ndarray
    temperature: np.ndarray
    stopped: np.ndarray


class Sampler:
    def __init__(self, target, batch, length):
        self.target, self.batch, self.length = target, batch, length
        device = target.device
        whole = lambda *shape, dtype=torch.int64: torch.zeros(*shape, dtype=dtype, device=device)
        shape = (target.depth, batch, target.kv_heads, length, target.head_dim)
        self.keys, self.values = whole(*shape, dtype=target.dtype), whole(*shape, dtype=target.dtype)
        self.tokens = whole(batch, length)
        self.position, self.prompt_length, self.limit = whole(batch), whole(batch), whole(batch)
        self.temperature = whole(batch, dtype=torch.float32)
        self.done = torch.ones(batch, dtype=torch.bool, device=device)
        self.rows = torch.arange(batch, device=device)
        self.graph = None

    def _attention(self, layer, q, k, v):
        target = self.target
        self.keys[layer][self.rows, :, self.position] = k[:, 0]
        self.values[layer][self.rows, :, self.position] = v[:, 0]
        grouped = q.reshape(self.batch, target.kv_heads, -1, target.head_dim)
        mixed = decode_attention(grouped, self.keys[layer], self.values[layer], self.position + 1)
        return mixed.view(self.batch, 1, -1, target.head_dim)

    def _choose(self, hidden):
        """Greedy where the temperature is 0, else the Gumbel trick over the tokens that MIN_P leaves."""
        logits = (hidden @ self.target.unembedding.T).float()
        heat = self.temperature[:, None]
        floor = logits.amax(-1, keepdim=True) + heat * np.log(MIN_P)
        noise = torch.empty_like(logits).exponential_().clamp_min_(1e-20).log_()
        return logits.masked_fill(logits < floor, float("-inf")).sub_(heat * noise).argmax(-1)

    def _step(self):
        """Advances every unfinished row by one token; prompt tokens are fed the same way."""
        current = self.tokens.gather(1, self.position[:, None])
        _, hidden = self.target.run(current, self.position[:, None], self._attention)
        following = self.position + 1
        given = self.tokens.gather(1, following[:, None])[:, 0]
        forced = following < self.prompt_length
        token = torch.where(forced | self.done, given, self._choose(hidden[:, 0]))
        self.tokens.scatter_(1, following[:, None], token[:, None])
        stop = (token == STOPS[0]) | (token == STOPS[1]) | (following + 1 >= self.limit)
        stop &= ~forced & ~self.done
        self.position.add_((~self.done & ~stop).long())
        self.done |= stop

    def _burst(self):
        if self.target.device == "cpu":
            for _ in range(BURST):
                self._step()
            return
        if self.graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
        for _ in range(BURST):
            self.graph.replay()

    def _cut_loops(self):
        """Marks rows done whose last LOOP_WINDOW answer tokens repeat. A row done this way has its last token at `position`."""
        span = LOOP_WINDOW + LOOP_PERIOD
        back = (self.position[:, None] - torch.arange(span, device=self.target.device)).clamp_min_(0)
        recent = self.tokens.gather(1, back)
        loops = torch.zeros_like(self.done)
        for period in range(1, LOOP_PERIOD + 1):
            loops |= (recent[:, :LOOP_WINDOW] == recent[:, period:period + LOOP_WINDOW]).all(1)
        loops &= ~self.done & (self.position - self.prompt_length >= span)
        self.done |= loops
        return loops

    def _collect(self, rows, looped):
        """What the given rows hold; a row that a stop token or the limit ended has its last token one past `position`."""
        pick = lambda tensor: tensor[rows].cpu().numpy()
        tokens, position, cut = pick(self.tokens), pick(self.position), pick(looped)
        end = position + np.where(cut, 1, 2)
        last = tokens[np.arange(len(rows)), end - 1]
        return Finished(tokens.astype(np.uint16), pick(self.prompt_length), end, pick(self.temperature), np.isin(last, STOPS) & ~cut)

    def _fill(self, rows, jobs):
        tokens = np.full((len(jobs), self.length), TURN_END, np.int64)
        for i, job in enumerate(jobs):
            tokens[i, :len(job.prompt)] = job.prompt
        put = lambda values, dtype: torch.as_tensor(np.asarray(values), dtype=dtype).to(self.target.device)
        lengths = [len(job.prompt) for job in jobs]
        self.tokens[rows] = put(tokens, torch.int64)
        self.prompt_length[rows] = put(lengths, torch.int64)
        self.limit[rows] = put([min(n + job.max_new, self.length) for n, job in zip(lengths, jobs)], torch.int64)
        self.temperature[rows] = put([job.temperature for job in jobs], torch.float32)
        self.position[rows] = 0
        self.done[rows] = False

    @torch.no_grad()
    def run(self, jobs, seconds, drain=False):
        """jobs: iterator of Job. Yields Finished as rows finish, for at most `seconds`; with `drain`, what is unfinished then
        is yielded too, cut where it stands. Prompts must be shorter than the batch's length."""
        if self.graph is None:
            self._burst()  # captures the step while every row is idle
        jobs, begin = iter(jobs), time.time()
        busy = torch.zeros(self.batch, dtype=torch.bool, device=self.target.device)
        looped = torch.zeros_like(busy)
        while True:
            free = (~busy).nonzero()[:, 0]
            new = list(islice(jobs, len(free)))
            if new:
                self._fill(free[:len(new)], new)
                busy[free[:len(new)]], looped[free[:len(new)]] = True, False
            if not bool(busy.any()) or time.time() - begin > seconds:
                break
            self._burst()
            looped |= self._cut_loops()
            rows = (self.done & busy).nonzero()[:, 0]
            if len(rows):
                yield self._collect(rows, looped)
                busy[rows] = False
        rows = (busy & (self.position >= self.prompt_length + 16)).nonzero()[:, 0]
        if drain and len(rows):
            looped[rows] = True  # cut: the last token is at `position`
            yield self._collect(rows, looped)
        self.done.fill_(True)
