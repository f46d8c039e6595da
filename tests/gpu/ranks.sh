#!/usr/bin/env bash
# Models over the GPUs of a machine, about two minutes for each world size: tests/gpu/ranks.sh PROGRAMS OUT [RANKS...]
# PROGRAMS: a folder with the example program `models` of engine-gpu. OUT: where logs go. RANKS: world sizes (default: 2 4 8 as
# far as there are GPUs). For each: greedy outputs beside one GPU's; decode steps of 1, 8 and 32 sequences as planned, with a
# kernel each for sum and norm, and by NCCL; a pass that verifies 8 tokens, as planned and by NCCL. At 8B and 70B shapes with
# random weights; 70B takes 141 GB, so it needs two GPUs of more than 80 GB or four of as much.
set -u
. "$(dirname "$0")/parts.sh"
world_sizes "$@"
memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | sort -n | head -n 1)

for ranks in $sizes; do
    has_gpus "$ranks" || continue
    LINES_SHOWN=40 part "golden-$ranks" 60 "$programs/models" ranks "$ranks" "$root/tests/golden"
    for shape in 8b 70b; do
        config=$root/models/shapes/llama-3.1-$shape.json
        # Weights and room beside them, in MiB a GPU.
        [ "$shape" = 8b ] || [ $((141000 / ranks + 8000)) -le "${memory:-0}" ] || { echo "== $shape: too large for $ranks" && continue; }
        LINES_SHOWN=20 part "speed-$shape-$ranks" 120 "$programs/models" speed "$config" "$ranks"
        LINES_SHOWN=20 part "verify-$shape-$ranks" 90 "$programs/models" rank-time "$ranks" "$config" 1 512 1 4 8
        LINES_SHOWN=20 part "batch-$shape-$ranks" 60 "$programs/models" rank-time "$ranks" "$config" 32 512
    done
done
exit $failed
