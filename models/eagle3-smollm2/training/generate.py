"""Makes the training data: the target answers templated prompts, prompts that it wrote itself and prompts around its own answers.

    python generate.py --target M.gguf --exclude ../dev_prompts.json --work DIR
"""

import argparse
import json
import time
from collections import Counter
from dataclasses import fields
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import kernels
import prompts
from chat import TURN_END, TURN_START, Chat
from log import log
from sampler import Finished, Job, Sampler
from target import Target

LENGTH = 512          # longest sequence
LONGEST_PROMPT = 160  # tokens, template included
SYSTEM_SHARE = 0.85   # prompts with the default system turn
GREEDY_SHARE = 0.6    # the other answers are sampled at SAMPLED
SAMPLED = 0.7


class Writer:
    """Builds prompts (lists of token ids) with the chat's header and tail around them."""

    def __init__(self, chat, guard, rng):
        self.chat, self.guard, self.rng, self.seen = chat, guard, rng, set()

    def header(self):
        return self.chat.header if self.rng.random() < SYSTEM_SHARE else self.chat.plain_header

    def wrap(self, body):
        return self.header() + body + self.chat.tail

    def accept(self, bodies):
        """Bodies that are new, fit, and are admitted by the guard."""
        fresh = []
        for body, text in zip(bodies, self.chat.decode_all(bodies)):
            if tuple(body) not in self.seen and len(body) + 30 <= LONGEST_PROMPT and self.guard.admits(text):
                self.seen.add(tuple(body))
                fresh.append(body)
        return fresh

    def templated(self, per_category):
        return self.accept(self.chat.encode_all(prompts.expand(per_category, self.rng)))

    def self_written(self, sampler, seconds):
        """The target continues a bare header, half of the time after one of the given openings, until it ends the user's turn."""
        starts = self.chat.encode_all(prompts.load("openings")["starts"])

        def jobs():
            while True:
                start = starts[self.rng.integers(len(starts))] if self.rng.random() < 0.7 else []
                yield Job(self.header() + start, 1.0, 96)

        bodies, tries = [], 0
        for done in sampler.run(jobs(), seconds):
            tries += len(done.end)
            for row, end, ok in zip(done.tokens, done.end, done.stopped):
                header = self.chat.header if row[4] == self.chat.header[4] else self.chat.plain_header
                body = row[len(header):end - 1].tolist()
                if ok and row[end - 1] == TURN_END and len(body) >= 4 and TURN_START not in body:
                    bodies.append(body)
        fresh = self.accept(bodies)
        log(f"self-written prompts: {len(fresh)} of {tries} tries")
        return fresh, tries

    def wrapped(self, answers):
        """Whole sentences from the beginning of given answers, as something to summarise, rewrite, translate ..."""
        wrappers = self.chat.encode_all(prompts.load("openings")["wrappers"])
        sentence_ends = {self.chat.encode(mark)[0] for mark in ".?!"}
        bodies = []
        for answer in answers:
            cut = max((i for i, token in enumerate(answer) if token in sentence_ends), default=-1)
            if cut >= 10:
                bodies.append(wrappers[self.rng.integers(len(wrappers))] + answer[:cut + 1])
        return self.accept(bodies)


def answer_all(sampler, writer, bodies, seconds, max_new, wrapped_count):
    """Answers prompts in random order; after a fifth of the time, prompts around the first answers join the queue."""
    rng, begin, queue, parts = writer.rng, time.time(), list(bodies), []
    rng.shuffle(queue)

    def jobs():
        while queue:
            yield Job(writer.wrap(queue.pop()), 0.0 if rng.random() < GREEDY_SHARE else SAMPLED, max_new)

    counts, added = Counter(), False
    for done in sampler.run(jobs(), seconds, drain=True):
        parts.append(done)
        counts["tokens"] += int((done.end - done.prompt_length).sum())
        if not added and time.time() - begin > seconds / 5:
            added = True
            rows = ((t, p, e) for part in parts for t, p, e in zip(part.tokens, part.prompt_length, part.end - 1))
            new = writer.wrapped([t[p:min(p + 75, e)].tolist() for t, p, e in islice(rows, wrapped_count)])
            counts["wrapped"] = len(new)
            queue += new
            rng.shuffle(queue)
    whole = Finished(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Finished)))
    counts.update(left=len(queue), seconds=round(time.time() - begin))
    return whole, counts


def save(folder, data, report):
    folder.mkdir(parents=True, exist_ok=True)
    keep = data.end - data.prompt_length >= 4
    np.savez(folder / "data.npz", **{f.name: getattr(data, f.name)[keep] for f in fields(Finished)})
    (folder / "data.json").write_text(json.dumps(report, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="GGUF file")
    parser.add_argument("--work", required=True, type=Path, help="folder for data.npz and data.json")
    parser.add_argument("--exclude", nargs="*", default=[], help="prompt lists whose texts and near copies are kept out")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--per-category", type=int, default=6000, help="templated prompts of each category")
    parser.add_argument("--prompt-seconds", type=float, default=45, help="time for self-written prompts")
    parser.add_argument("--answer-seconds", type=float, default=210)
    parser.add_argument("--wrapped", type=int, default=30000)
    parser.add_argument("--max-new", type=int, default=320)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="fuse small operations with torch.compile")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    kernels.self_test(device)
    target = Target(args.target, torch.bfloat16 if device == "cuda" else torch.float32, device, args.compile)
    writer = Writer(Chat(args.target), prompts.Guard(args.exclude), np.random.default_rng(args.seed))
    sampler = Sampler(target, args.batch, LENGTH)
    log("ready")
    templated = writer.templated(args.per_category)
    log(f"templated prompts: {len(templated)}, refused so far {writer.guard.refused}")
    own, tries = writer.self_written(sampler, args.prompt_seconds)
    data, counts = answer_all(sampler, writer, templated + own, args.answer_seconds, args.max_new, args.wrapped)
    length = data.end - data.prompt_length
    report = dict(seed=args.seed, templated=len(templated), self_written=len(own), self_written_tries=tries, refused=writer.guard.refused,
                  answers=len(length), mean_length=round(float(length.mean()), 1), greedy_share=round(float((data.temperature == 0).mean()), 3),
                  stopped_share=round(float(data.stopped.mean()), 3), **counts)
    save(args.work, data, report)
    log("data", report)


if __name__ == "__main__":
    main()
