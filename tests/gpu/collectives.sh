#!/usr/bin/env bash
# Sums over the GPUs of a machine, within eight minutes: tests/gpu/collectives.sh PROGRAMS OUT [RANKS...]
# PROGRAMS: a folder with archway, and with capdb if the tuning is to be validated and compared. OUT: where logs, JSON, plots
# and the tuning go. RANKS: world sizes (default: 2 4 8 as far as there are GPUs). First how the GPUs are joined; then, for
# each world size, PyTorch and NCCL, and ours, compared with references and timed; then a tuning of all of them.
set -u
. "$(dirname "$0")/parts.sh"
world_sizes "$@"

LINES_SHOWN=40 part doctor 60 "$programs/archway" doctor
for ranks in $sizes; do
    has_gpus "$ranks" || continue
    peers=()
    if python3 -c 'import torch, triton' 2>/dev/null; then
        part "peers-$ranks" 110 python3 "$here/allreduce_peers.py" "$ranks" "$out/peers-$ranks.json"
        [ -f "$out/peers-$ranks.json" ] && peers=(--peers "$out/peers-$ranks.json")
    fi
    LINES_SHOWN=200 part "bench-$ranks" 110 "$programs/archway" bench allreduce --devices "$(seq -s, 0 $((ranks - 1)))" \
        --figures "$out/bench-$ranks.json" --plot "$out/bench-$ranks.svg" "${peers[@]}"
done
# What this run measured, for whom nobody has measured before: without the record's own tuning.
LINES_SHOWN=30 part tune 150 "$programs/archway" tune --world-sizes "$(echo $sizes | tr ' ' ',')" --out "$out/tuning.yaml" \
    --figures "$out/tuning.json"
if [ -x "$programs/capdb" ] && [ -f "$out/tuning.yaml" ]; then
    part validate 20 "$programs/capdb" validate "$out/tuning.yaml"
    # Exit code 1 says that something differs, which is what a tuning is for.
    "$programs/capdb" diff --overlay "$out/tuning.yaml" >"$out/diff.log"
    echo "== diff: $(wc -l <"$out/diff.log") lines in $out/diff.log"
fi
exit $failed
