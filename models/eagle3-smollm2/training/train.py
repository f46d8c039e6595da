"""Trains a head on the data of generate.py, in runs that can be resumed.

    python train.py --target M.gguf --work DIR --out HEAD [--init HEAD0] --total-minutes 20 --run-minutes 9

Run it again with the same arguments until it says that training is complete. The learning rate follows the share of the total
time (or of --steps) that has been trained, over all runs.
"""

import argparse
from pathlib import Path

import torch

import kernels
from trainer import Trainer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="GGUF file")
    parser.add_argument("--work", required=True, type=Path, help="folder with data.npz; the state of unfinished training lies there too")
    parser.add_argument("--out", required=True, type=Path, help="folder for last/, average/ and training.json")
    parser.add_argument("--init", default="", help="head to start from; it brings its own sizes and vocabulary")
    parser.add_argument("--init-heat", type=float, default=1.0, help="heat of the labels that head was trained with")
    parser.add_argument("--draft-vocabulary", type=int, default=16384)
    parser.add_argument("--intermediate", type=int, default=1536)
    parser.add_argument("--total-minutes", type=float, default=20)
    parser.add_argument("--run-minutes", type=float, default=9)
    parser.add_argument("--steps", type=int, default=0, help="total steps, instead of a total time")
    parser.add_argument("--heat", type=float, default=0.5, help="labels are softmax(target logits / heat)")
    parser.add_argument("--unroll", type=int, default=5, help="draft steps trained")
    parser.add_argument("--batch-tokens", type=int, default=49152, help="padded tokens a step")
    parser.add_argument("--optimizer", choices=["muon", "adamw"], default="muon", help="for the layer's matrices")
    parser.add_argument("--matrix-rate", type=float, default=2e-3)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--output-rate", type=float, default=0.3, help="factor on the rate for lm_head")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--held", type=int, default=512, help="greedy answers kept for measuring")
    parser.add_argument("--measure-every", type=float, default=60, help="seconds")
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    trainer = Trainer(args)
    kernels.self_test(trainer.device)
    trainer.resume()
    trainer.train()
    trainer.save()


if __name__ == "__main__":
    main()
