"""Cuts a head's draft vocabulary down to the tokens whose drafts are accepted most often on training answers.

    python shrink.py --head HEAD --sizes 8192 12288 --out HEADS --target M.gguf --work DIR [--save-counts]
    python shrink.py --head HEAD --sizes 4096 --out HEADS --counts COUNTS.json
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import chains
import head as heads
from data import Sequences
from log import log
from target import Target, rope_table


@torch.no_grad()
def accepted_counts(target, head, data, index, steps=4, batch=64):
    """How often each token is the accepted draft of a chain, over all positions of the answers `index`; [vocabulary]."""
    rope = rope_table(data.tokens.shape[1] + 64, target.head_dim, target.theta, target.device)
    counts = torch.zeros(target.vocabulary, dtype=torch.int64, device=target.device)
    index = index[np.argsort(data.end[index])]
    for part in np.array_split(index, max(1, len(index) // batch)):
        length = data.padded(part)
        tokens = data.tokens[torch.from_numpy(part).to(target.device), :length].long()
        drafts, agree = chains.drafted(target, head, rope, tokens, steps)
        bound = lambda values: torch.from_numpy(values[part]).to(target.device)[:, None, None]
        place = torch.arange(length, device=target.device)[:, None] + 2 + torch.arange(steps, device=target.device)
        inside = (place > bound(data.prompt)) & (place < bound(data.end))
        counts += torch.bincount(drafts[agree & inside], minlength=target.vocabulary)
    return counts


@torch.no_grad()
def narrowed(head, ids):
    """A copy of the head that drafts only the target ids `ids` (ascending, all in its vocabulary)."""
    small = heads.Head({**head.config, "draft_vocab_size": len(ids)}).to(device=ids.device, dtype=head.norm.weight.dtype)
    rows = torch.searchsorted(head.vocabulary, ids)
    tensors = {**head.state_dict(), "lm_head.weight": head.lm_head.weight[rows], "d2t": small.d2t, "t2d": small.t2d}
    small.load_state_dict(tensors)
    small.set_vocabulary(ids)
    return small


def counted(args, head, device):
    """Counts over the answers of generate.py, for the head's vocabulary in order."""
    if not (args.target and args.work):
        raise SystemExit("shrink.py: give --counts, or --target and --work to count accepted drafts on training answers")
    target = Target(args.target, head.norm.weight.dtype, device)
    data = Sequences(args.work / "data.npz", device, args.held)
    chosen = np.random.default_rng(0).permutation(data.train)[:args.answers]
    return accepted_counts(target, head, data, chosen)[head.vocabulary]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", required=True)
    parser.add_argument("--sizes", required=True, nargs="+", type=int)
    parser.add_argument("--out", required=True, type=Path, help="a head for each size goes to OUT/<size>")
    parser.add_argument("--counts", type=Path, help="counts of accepted drafts, one for each token of the head's vocabulary")
    parser.add_argument("--target", help="GGUF file, to count anew")
    parser.add_argument("--work", type=Path, help="folder with data.npz, to count anew")
    parser.add_argument("--save-counts", action="store_true", help="write counts.json beside each head")
    parser.add_argument("--answers", type=int, default=30000, help="training answers that are counted")
    parser.add_argument("--held", type=int, default=512)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    head = heads.load(args.head, torch.bfloat16 if device == "cuda" else torch.float32, device)
    counts = torch.tensor(json.loads(args.counts.read_text()), device=device) if args.counts else counted(args, head, device)
    vocabulary = head.vocabulary
    if len(counts) != len(vocabulary):
        raise SystemExit(f"shrink.py: {len(counts)} counts for a draft vocabulary of {len(vocabulary)}; they belong to another head")
    ranked = counts.argsort(descending=True, stable=True)
    for size in args.sizes:
        if size > len(vocabulary):
            raise SystemExit(f"shrink.py: {args.head} has {len(vocabulary)} draft tokens, fewer than {size}")
        rows = ranked[:size].sort().values
        log(f"{size} tokens keep {float(counts[rows].sum() / counts.sum()):.5f} of the accepted drafts")
        heads.save(narrowed(head, vocabulary[rows]), args.out / str(size))
        if args.save_counts:
            (args.out / str(size) / "counts.json").write_text(json.dumps(counts[rows].tolist()) + "\n")


if __name__ == "__main__":
    main()
