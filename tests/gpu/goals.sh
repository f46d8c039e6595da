#!/usr/bin/env bash
# Every goal of speed on GPUs, and the table for docs/benchmarks.md: tests/gpu/goals.sh PROGRAMS OUT [PART...]
# PROGRAMS: a folder with archway and the example programs `kernels` and `models` of engine-gpu. OUT: where logs go.
# Parts, about eight minutes in all: read models context prefill eagle serve, demo where DEMO_MODEL names the demo model's file,
# and ranks where there are two GPUs. SCRATCH (/tmp) takes random weights, 17 GB. PyTorch is the peer of prefill.
# The table is of all logs in OUT, so parts may run in several calls.
# Exit code 0: every goal that was measured is met; 1: one is missed; 2: nothing was measured, or a part failed.
set -u
. "$(dirname "$0")/parts.sh"
parts=${*:-read models context prefill eagle serve ${DEMO_MODEL:+demo} $([ "$gpus" -ge 2 ] && echo ranks)}
scratch=${SCRATCH:-/tmp}
large=$root/models/shapes/llama-3.1-8b.json
head=$scratch/archway-head-8b
dummy=(--device cuda --load-format dummy --model "$large")

# A folder, seconds, a name and the program that fills it, once: what was cut off is not taken for whole.
made() {
    [ -d "$1" ] && return
    rm -rf "$1.part"
    part "$3" "$2" python3 "$here/$4" "$large" "$1.part" && mv "$1.part" "$1"
}

# A random head of the large model's sizes.
random_head() {
    made "$head" 60 head random_head.py || return
    echo '[[1,22,333,4444,55,666,7777,88,99,1010,11,12,13,14,15,16]]' >"$out/prompts.json"
}

# Name, and flags: speculation at the large model's shapes with so many accepted tokens as a figure, not a measurement.
simulated() {
    local name=$1
    shift
    random_head || return
    LINES_SHOWN=11 part "$name" 120 "$programs/archway" bench eagle3 "${dummy[@]}" --speculative-draft-model-path "$head" \
        --speculative-num-steps 3 --speculative-adaptive=false --prompts "$out/prompts.json" --max-tokens 256 --warmup 1 --runs 3 \
        --simulate-accept-length 3.0 --max-model-len 2048 --max-num-seqs 8 --max-total-tokens 16384 "$@"
}

# Seconds that a command takes, in the words that goals.py reads; nothing where it ends with another code than the wanted one.
seconds() {
    local what=$1 wanted=$2 from to
    shift 2
    from=$(date +%s.%N)
    "$@"
    local code=$?
    to=$(date +%s.%N)
    [ "$code" = "$wanted" ] || { echo "ended with $code, not $wanted" && return 1; }
    awk -v what="$what" -v from="$from" -v to="$to" 'BEGIN {printf "%s in %.2f s\n", what, to - from}'
}

copied() {
    seconds copied 0 timeout 60 bash -c 'cat "$1"/*.safetensors >/dev/null' copy "$1"
}

# A launch that no GPU has the memory for.
refused() {
    seconds refused 2 timeout 10 "$programs/archway" serve "${dummy[@]}" --port 0 --max-total-tokens 1000000000 2>&1 |
        tee "$out/refusal.txt"
    grep -q 'does not fit' "$out/refusal.txt"
}

served() {
    local model=$scratch/archway-model-8b start
    made "$model" 180 checkpoint random_checkpoint.py || return
    rm -rf "$out/cache-of-starts"
    part copy 60 copied "$model"
    # The first start compiles kernels, the second finds them.
    for start in cold warm; do
        XDG_CACHE_HOME=$out/cache-of-starts LINES_SHOWN=30 part "serve-$start" 120 "$here/serve.sh" "$programs" "$model" \
            --max-model-len 2048 --max-num-seqs 64
    done
    part refused 10 refused
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/machine.log"
for chosen in $parts; do
    case $chosen in
    read) part read 30 "$programs/kernels" bench read ;;
    models)
        LINES_SHOWN=5 part speed-8b 90 "$programs/models" time "$large" 1 512 1 2 4 8 16
        part batches-8b 90 "$programs/models" time "$large" 1,8,16,24,32,64 512
        LINES_SHOWN=5 part speed-1b 60 "$programs/models" time "$root/models/shapes/llama-3.2-1b.json" 1 512 1 4 8 16
        ;;
    # Beside the step at 512 positions, of the part models.
    context) part context-32768 60 "$programs/models" time "$large" 1 32768 ;;
    prefill)
        part prefill 90 "$programs/archway" bench latency "${dummy[@]}" --max-model-len 4096 --max-num-seqs 8 --input-len 2048 \
            --output-len 2 --warmup 2 --runs 5
        part matmul 60 python3 "$here/matmul_rate.py"
        ;;
    demo)
        part demo 60 "$programs/archway" bench latency --device cuda --model "${DEMO_MODEL:?the demo model, a .gguf file}" \
            --input-len 16 --output-len 256
        LINES_SHOWN=11 part eagle-demo 90 "$programs/archway" bench eagle3 --device cuda --model "$DEMO_MODEL" --speculative eagle3 \
            --speculative-draft-model-path "$root/models/eagle3-smollm2" --speculative-num-steps 3 --num-prompts 10 \
            --prompts "$root/models/eagle3-smollm2/dev_prompts.json" --max-tokens 256 --warmup 1 --runs 3
        ;;
    eagle) simulated eagle-8b ;;
    serve) served ;;
    ranks)
        has_gpus 2 || continue
        LINES_SHOWN=18 part ranks-8b 120 "$programs/models" rank-time 2 "$large" 1 512 1 4 8
        simulated eagle-ranks --tensor-parallel-size 2
        ;;
    *) echo "no part $chosen" >&2 && exit 2 ;;
    esac
done
python3 "$here/goals.py" "$out" | tee "$out/goals.md"
result=${PIPESTATUS[0]}
# A goal whose part failed is not measured: that is no success.
[ "$failed" = 0 ] || { echo "some parts failed" && exit 2; }
exit "$result"
