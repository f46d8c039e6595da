#!/usr/bin/env bash
# Sums over the GPUs of a machine, within eight minutes: tests/gpu/collectives.sh PROGRAMS OUT [RANKS...]
# PROGRAMS: a folder with archway, and with capdb if the tuning is to be validated and compared. OUT: where logs, JSON, plots
# and the tuning go. RANKS: world sizes (default: 2 4 8 as far as there are GPUs). First how the GPUs are joined; then, for
# each world size, PyTorch and NCCL, and ours, compared with references and timed; then a tuning of all of them.
set -u
programs=${1:?folder of the programs}
out=${2:?folder for logs}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/cache} XDG_DATA_HOME=${XDG_DATA_HOME:-$out/data}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
sizes=${*:-$(for size in 2 4 8; do [ "$size" -le "$gpus" ] && echo "$size"; done)}
[ -n "$sizes" ] || { echo "a sum needs two GPUs; the driver sees $gpus" >&2 && exit 2; }
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
    tail -n "${LINES_SHOWN:-6}" "$out/$name.log"
}

LINES_SHOWN=40 part doctor 60 "$programs/archway" doctor
for ranks in $sizes; do
    [ "$ranks" -le "$gpus" ] || { echo "$ranks ranks: the driver sees $gpus GPUs" >&2 && failed=1 && continue; }
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
