#!/usr/bin/env bash
# Everything that needs a GPU, in one go: tests/gpu/run.sh PROGRAMS OUT [PART...]
# PROGRAMS: a folder with archway and the example programs `kernels`, `models` and `faults` of engine-gpu.
# OUT: where logs go. Parts: doctor kernels models faults demo speed batches memcheck racecheck (default: doctor kernels models faults).
set -u
programs=${1:?folder of the programs}
out=${2:?folder for logs}
shift 2
parts=${*:-doctor kernels models faults}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/cache}
failed=0

part() {
    local name=$1
    shift
    echo "== $name: $*"
    local start=$SECONDS
    if "$@" >"$out/$name.log" 2>&1; then echo "   ok, $((SECONDS - start)) s"; else
        echo "   FAILED with $?"
        failed=1
    fi
    tail -n "${LINES_SHOWN:-25}" "$out/$name.log"
}

latency() {
    local name=$1 model=$2
    shift 2
    part "$name" "$programs/archway" bench latency --device cuda --load-format dummy --model "$root/models/shapes/$model" \
        --max-model-len 40k --max-num-seqs 64 "$@"
}

for chosen in $parts; do
    case $chosen in
    doctor) part doctor "$programs/archway" doctor ;;
    kernels) LINES_SHOWN=40 part kernels "$programs/kernels" compare ;;
    # Under the checker kernels run one after another, as they do without dependent launch.
    memcheck | racecheck)
        part "$chosen" compute-sanitizer --tool "$chosen" --error-exitcode 9 "$programs/kernels" compare serial
        ;;
    models) LINES_SHOWN=60 part models "$programs/models" "$root/tests/golden" ;;
    faults) part faults "$programs/faults" ;;
    demo)
        part demo-model "$programs/models" "${DEMO_MODEL:?the demo model, a .gguf file}"
        part demo "$programs/archway" bench latency --device cuda --model "$DEMO_MODEL" --input-len 512 --output-len 256
        ;;
    speed)
        latency speed-8b llama-3.1-8b.json --input-len 512 --output-len 128 --warmup 1 --runs 3
        latency speed-1b llama-3.2-1b.json --input-len 512 --output-len 128 --warmup 1 --runs 3
        ;;
    batches)
        latency batch-8b llama-3.1-8b.json --input-len 512 --output-len 64 --warmup 1 --runs 2 --batch-size 8
        latency batch-32b llama-3.1-8b.json --input-len 512 --output-len 64 --warmup 1 --runs 2 --batch-size 32
        ;;
    *) echo "no part $chosen" >&2 && exit 2 ;;
    esac
done
exit $failed
