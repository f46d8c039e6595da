"""Orthogonalised momentum for the layer's matrices; AdamW for norms and, more slowly, for the output rows."""

import torch


def build(head, args):
    """A list of optimizers; every group keeps its full rate under "base"."""
    named = dict(head.named_parameters())
    output = named.pop("lm_head.weight")
    matrices = [p for p in named.values() if p.dim() == 2]
    norms = [p for p in named.values() if p.dim() == 1]
    adam = [dict(params=norms, lr=args.rate), dict(params=[output], lr=args.rate * args.output_rate)]
    optimizers = [torch.optim.AdamW(adam, betas=(0.9, 0.95), weight_decay=0.0, fused=output.is_cuda)]
    if args.optimizer == "muon":
        optimizers.append(torch.optim.Muon(matrices, lr=args.matrix_rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"))
    else:
        optimizers[0].add_param_group(dict(params=matrices, lr=args.rate, weight_decay=0.01))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base"] = group["lr"]
    return optimizers


def set_rate(optimizers, factor):
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * factor
