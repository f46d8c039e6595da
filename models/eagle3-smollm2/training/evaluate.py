"""Acceptance of one or more heads over the same greedy answers, with tests of losslessness.

    python evaluate.py --target M.gguf --head HEAD [HEAD ...] --prompts ../dev_prompts.json --json OUT.json
"""

import argparse
import json
from pathlib import Path

import torch

import chains
import head as heads
from log import log
from speculation import Decoding
from target import Target, rope_table
from tree import Shape

LONGEST_CHAIN = 6


def looping(answer, size=8):
    """Do more than 30 % of the answer's 8-grams repeat earlier ones?"""
    grams = [tuple(answer[i:i + size]) for i in range(len(answer) - size)]
    return len(grams) - len(set(grams)) > 0.3 * max(1, len(grams))


def summary(accepted_lists, depth, categories, answers):
    flat = [n for accepted in accepted_lists for n in accepted]
    reached = [sum(n >= i for n in flat) for i in range(depth + 1)]
    of = lambda keep: round(chains.tokens_per_verify([a for a, k in zip(accepted_lists, keep) if k]), 4)
    return dict(tokens_per_verify=round(chains.tokens_per_verify(accepted_lists), 4), verifies=len(flat),
                # accepted + 1 also counts what the last verify yields past an answer's end; this counts tokens that stayed
                kept_per_verify=round(sum(len(a) - 1 for a in answers) / max(1, len(flat)), 4),
                reached_by_position=[round(n / max(1, len(flat)), 4) for n in reached[1:]],
                accepted_given_the_one_before=[round(b / max(1, a), 4) for a, b in zip(reached, reached[1:])],
                not_looping=of([not looping(a) for a in answers]),
                by_prompt=[[sum(a), len(a)] for a in accepted_lists],  # accepted drafts, verifies
                by_category={c: of([c == d for d in categories]) for c in sorted(set(categories))})


def compare(plain, decoded):
    """Answers that differ from plain decoding, with the first different token's top-2 logit gap in the plain run."""
    differences = []
    for i, (want, got) in enumerate(zip(plain.answers, decoded.answers)):
        if want != got:
            at = next((j for j, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
            differences.append(dict(prompt=i, at=at, top2_gap=plain.gaps[i][at] if at < len(want) else None))
    return dict(answers_equal_to_plain=len(plain.answers) - len(differences), differences=differences)


def all_positions(target, head, prompts, answers, batch=8):
    rope = rope_table(2048, head.config["head_dim"], head.config["rope_theta"], target.device)
    result = []
    for i in range(0, len(prompts), batch):
        rows = [p + a for p, a in zip(prompts[i:i + batch], answers[i:i + batch])]
        tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64, device=target.device)
        for j, row in enumerate(rows):
            tokens[j, :len(row)] = torch.tensor(row)
        result += chains.matches(target, head, rope, tokens, [len(p) for p in prompts[i:i + batch]], [len(r) for r in rows], LONGEST_CHAIN)
    return result


def measure(target, head, prompts, categories, max_new, plain, shapes):
    found = all_positions(target, head, prompts, plain.answers)
    result = dict(chains={k: summary([chains.walk(m, k) for m in found], k, categories, plain.answers) for k in range(1, LONGEST_CHAIN + 1)},
                  chain4_first_128_tokens=round(chains.tokens_per_verify([chains.walk(m[:128], 4) for m in found]), 4), loops={})
    log("chains", {k: v["tokens_per_verify"] for k, v in result["chains"].items()})
    for shape in shapes:
        decoded = Decoding(target, head, prompts, max_new, shape).run()
        name = f"topk {shape.topk}, depth {shape.depth}, nodes {shape.nodes}"
        result["loops"][name] = summary(decoded.accepted, shape.depth, categories, decoded.answers) | compare(plain, decoded)
        log(name, {k: result["loops"][name][k] for k in ("tokens_per_verify", "kept_per_verify", "answers_equal_to_plain")})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="GGUF file")
    parser.add_argument("--head", required=True, nargs="+", help="folders with config.json and *.safetensors")
    parser.add_argument("--prompts", required=True, type=Path, help="list of {category, text, ids}")
    parser.add_argument("--json", required=True, type=Path)
    parser.add_argument("--max-new", type=int, default=256)
    parser.add_argument("--limit", type=int, default=None, help="first so many prompts only")
    parser.add_argument("--shapes", default="1,4,5 4,4,16", help="topk,depth,nodes of loops that are really decoded")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="near ties move figures in bfloat16")
    args = parser.parse_args()
    entries = json.loads(args.prompts.read_text())[:args.limit]
    prompts, categories = [e["ids"] for e in entries], [e["category"] for e in entries]
    device, dtype = "cuda" if torch.cuda.is_available() else "cpu", getattr(torch, args.dtype)
    target = Target(args.target, dtype, device)
    plain = Decoding(target, None, prompts, args.max_new, None).run()
    log("plain decoding done:", sum(map(len, plain.answers)), "tokens")
    shapes = [Shape(*map(int, shape.split(","))) for shape in args.shapes.split()]
    report = dict(prompts=len(prompts), max_new=args.max_new, dtype=args.dtype, answer_tokens=sum(map(len, plain.answers)),
                  looping_answers=sum(map(looping, plain.answers)), heads={})
    for folder in args.head:
        log("head", folder)
        head = heads.load(folder, dtype, device)
        report["heads"][Path(folder).name] = measure(target, head, prompts, categories, args.max_new, plain, shapes)
    args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
