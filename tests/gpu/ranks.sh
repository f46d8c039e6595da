#!/usr/bin/env bash
# Models over the GPUs of a machine, about two minutes for each world size: tests/gpu/ranks.sh PROGRAMS OUT [RANKS...]
# PROGRAMS: a folder with the example program `models` of engine-gpu. OUT: where logs go. RANKS: world sizes (default: 2 4 8 as
# far as there are GPUs). For each: greedy outputs beside one GPU's; decode steps of 1, 8 and 32 sequences as planned, with a
# kernel each for sum and norm, and by NCCL; a pass that verifies 8 tokens, as planned and by NCCL. At 8B and 70B shapes with
# random weights; 70B takes 141 GB, so it needs two GPUs of more than 80 GB or four of as much.
set -u
programs=${1:?folder of the programs}
out=${2:?folder for logs}
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/cache}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
sizes=${*:-$(for size in 2 4 8; do [ "$size" -le "$gpus" ] && echo "$size"; done)}
[ -n "$sizes" ] || { echo "ranks need two GPUs; the driver sees $gpus" >&2 && exit 2; }
memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | sort -n | head -n 1)
failed=0

# Name, seconds, and the command.
part() {
    local name=$1 limit=$2 start=$SECONDS
    shift 2
    echo "== $name"
    if timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1; then echo "   ok, $((SECONDS - start)) s"; else
        echo "   FAILED with $?, $((SECONDS - start)) s"
        failed=1
    fi
    tail -n "${LINES_SHOWN:-20}" "$out/$name.log"
}

for ranks in $sizes; do
    [ "$ranks" -le "$gpus" ] || { echo "$ranks ranks: the driver sees $gpus GPUs" >&2 && failed=1 && continue; }
    LINES_SHOWN=40 part "golden-$ranks" 60 "$programs/models" ranks "$ranks" "$root/tests/golden"
    for shape in 8b 70b; do
        config=$root/models/shapes/llama-3.1-$shape.json
        # Weights and room beside them, in MiB a GPU.
        [ "$shape" = 8b ] || [ $((141000 / ranks + 8000)) -le "${memory:-0}" ] || { echo "== $shape: too large for $ranks" && continue; }
        part "speed-$shape-$ranks" 120 "$programs/models" speed "$config" "$ranks"
        part "verify-$shape-$ranks" 90 "$programs/models" rank-time "$ranks" "$config" 1 512 1 4 8
        part "batch-$shape-$ranks" 60 "$programs/models" rank-time "$ranks" "$config" 32 512
    done
done
exit $failed
