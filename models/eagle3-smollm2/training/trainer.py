"""The training loop: one optimizer step at a time, on a schedule that spans runs, with its state on disk."""

import copy
import json
import time
from pathlib import Path

import numpy as np
import torch

import chains
import head as heads
import optimizers
from data import Sequences
from generate import LENGTH
from log import log
from objective import Objective, Teacher
from target import Target, rope_table
from unroll import unroll

AVERAGE_STEPS = 1000  # time constant of the weights' moving average


class Trainer:
    def __init__(self, args):
        self.args, self.device = args, "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.target = Target(args.target, self.dtype, self.device, args.compile)
        self.data = Sequences(args.work / "data.npz", self.device, args.held)
        self.rope = rope_table(LENGTH + 64, self.target.head_dim, self.target.theta, self.device)
        self.head = self._initial()
        self.average = copy.deepcopy(self.head).requires_grad_(False)
        if args.compile:
            self.head.compile()
        self.objective = Objective(Teacher(self.target, self.head, args.heat))
        self.optimizers = optimizers.build(self.head, args)
        self.step = self.run = self.tokens = 0
        self.elapsed, self.curve = 0.0, []

    def _initial(self):
        args = self.args
        if args.init:
            head, scale = heads.load(args.init, torch.float32, self.device), args.init_heat / args.heat
        else:
            ids = self.data.counts(self.target.vocabulary).topk(args.draft_vocabulary).indices.sort().values
            head, scale = heads.fresh(self.target, ids, args.intermediate), 1 / args.heat
        with torch.no_grad():
            head.norm.weight.mul_(scale)  # logits as sharp as the labels from the first step on
        return head

    def progress(self):
        args = self.args
        return self.step / args.steps if args.steps else self.elapsed / (60 * args.total_minutes)

    def _rate(self):
        """Warm-up, then straight down to 0: the factor on every group's base rate."""
        return min(1.0, (self.step + 1) / self.args.warmup) * max(0.0, 1 - self.progress())

    def update(self, index, length):
        """One optimizer step; returns (cross-entropy, accuracy), [unroll] each."""
        args, head = self.args, self.head
        batch = self.data.batch(index, length, args.unroll)
        features, final = self.target.prefill(batch.tokens[:, :length])
        self.objective.teacher.read(final[batch.sequence, batch.place + 1])
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            ids = lambda k, _: batch.tokens[:, 1 + k:1 + k + length]
            outputs = unroll(head, self.target.embedding, features, self.rope, args.unroll, ids)
            loss, *measures = self.objective(head, outputs, batch)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        share = 1 / min(AVERAGE_STEPS, self.step + 10)
        torch._foreach_lerp_(list(self.average.parameters()), [p.data for p in head.parameters()], share)
        self.step += 1
        self.tokens += len(batch.left)
        return measures

    @torch.no_grad()
    def measure(self, head):
        """Tokens per verify of chains of 4 on the held-out greedy answers, in training's arithmetic."""
        order, accepted = self.data.held[np.argsort(self.data.end[self.data.held])], []
        for part in np.array_split(order, max(1, len(order) // 64)):
            length = self.data.padded(part)
            tokens = self.data.tokens[torch.from_numpy(part).to(self.device), :length].long()
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
                found = chains.matches(self.target, head, self.rope, tokens, self.data.prompt[part].tolist(), self.data.end[part].tolist(), 4)
            accepted += [chains.walk(match, 4) for match in found]
        return round(chains.tokens_per_verify(accepted), 4)

    def train(self):
        args, rng = self.args, np.random.default_rng([self.args.seed, self.run])
        self.run += 1
        begin, before, sums, measured = time.time(), self.elapsed, [], 0.0
        for index, length in self.data.schedule(args.batch_tokens, rng):
            self.elapsed = before + time.time() - begin
            if self.progress() >= 1 or self.elapsed - before > 60 * args.run_minutes:
                break
            factor = self._rate()
            optimizers.set_rate(self.optimizers, factor)
            sums.append(torch.stack(self.update(index, length)))
            if self.step % args.log_every == 0 or self.step <= 2:
                self._record(factor, torch.stack(sums).mean(0).tolist())
                sums = []
            if args.measure_every and self.elapsed - measured >= args.measure_every:
                measured = self.elapsed
                self._measure_both()
        self._measure_both()

    def _record(self, factor, means):
        entropy, accuracy = ([round(x, 4) for x in row] for row in means)
        self.curve.append(dict(step=self.step, seconds=round(self.elapsed, 1), tokens=self.tokens, rate=round(factor, 4),
                               cross_entropy=entropy, accuracy=accuracy))
        log(f"step {self.step} rate {factor:.3f} {self.tokens / 1e6:.1f} M tokens, {self.elapsed:.0f} s, loss", entropy, "accuracy", accuracy)

    def _measure_both(self):
        found = dict(step=self.step, seconds=round(self.elapsed, 1), held_out_chain4=self.measure(self.head), averaged=self.measure(self.average))
        self.curve.append(found)
        log("held out", found)

    def state_file(self):
        return self.args.work / "state.pt"

    def resume(self):
        if self.state_file().exists():
            state = torch.load(self.state_file(), map_location=self.device)
            self.head.load_state_dict(state["head"])
            self.average.load_state_dict(state["average"])
            for optimizer, kept in zip(self.optimizers, state["optimizers"]):
                optimizer.load_state_dict(kept)
            self.step, self.run, self.tokens, self.elapsed, self.curve = (state[k] for k in ("step", "run", "tokens", "elapsed", "curve"))
            log(f"resumed at step {self.step}, {self.elapsed:.0f} s")
        else:
            self._measure_both()

    def save(self):
        torch.save(dict(head=self.head.state_dict(), average=self.average.state_dict(), optimizers=[o.state_dict() for o in self.optimizers],
                        step=self.step, run=self.run, tokens=self.tokens, elapsed=self.elapsed, curve=self.curve), self.state_file())
        heads.save(self.head, self.args.out / "last")
        heads.save(self.average, self.args.out / "average")
        report = dict(arguments={k: str(v) if isinstance(v, Path) else v for k, v in vars(self.args).items() if k not in ("target", "work", "out", "init")},
                      steps=self.step, tokens=self.tokens, seconds=round(self.elapsed, 1), curve=self.curve)
        (self.args.out / "training.json").write_text(json.dumps(report))
        done = "complete" if self.progress() >= 1 else "not complete: run the same command again"
        log(f"training is {done}; {self.step} steps, {self.tokens} label tokens, {self.elapsed:.0f} s")
