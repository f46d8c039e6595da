#!/usr/bin/env bash
# Everything that needs a GPU, in one go: tests/gpu/run.sh PROGRAMS OUT [PART...]
# PROGRAMS: a folder with archway and the example programs `kernels`, `models` and `faults` of engine-gpu.
# OUT: where logs go. Parts: doctor kernels models faults demo speed batches verify eagle serve ranks memcheck racecheck (default:
# doctor kernels models faults). The part ranks needs RANKS (2) GPUs. The parts eagle and serve write random weights to SCRATCH (/tmp), 1 and 16 GB.
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

# Every kernel, once, by several processes: threads of one wait for each other inside the compiler.
compiled() {
    local share bad=0 compilers=()
    for share in 1 2 3 4 5 6 7 8; do
        "$programs/kernels" compile $share/8 &
        compilers+=($!)
    done
    for share in "${compilers[@]}"; do wait "$share" || bad=1; done
    return $bad
}

# Runs start side by side, each under a checker: begin LOG COMMAND...
running=()
begin() {
    local log=$out/$1.log
    shift
    timeout 100 compute-sanitizer --error-exitcode 9 "$@" >"$log" 2>&1 &
    running+=("$! $log")
}

ended() {
    local bad=0 run
    for run in "${running[@]}"; do
        wait "${run%% *}" || { echo "${run#* }: the checker found something, or a comparison failed, or no end" && bad=1; }
        grep -e ' after ' -e FAILED -e SUMMARY "${run#* }"
    done
    running=()
    return $bad
}

# Every kernel in all shapes; one after another, as kernels run without dependent launch.
memcheck() {
    compiled || return
    local share
    for share in 1/5 2/5 3/5 4/5 5/5; do
        begin "memcheck-${share%/*}" --tool memcheck "$programs/kernels" compare serial $share
    done
    ended
}

# Every kernel in small shapes, and the products of the copy engine in runs of their own: their warps arrive at barriers lane by
# lane for it (docs/benchmarks.md says why). Streamed ones without clusters, so that no sliced one runs beside them: the checker
# fails where those are not watched themselves. Then a kernel that lacks a barrier on purpose, which must be found.
racecheck() {
    compiled || return
    local share bad=0 small=("$programs/kernels" compare serial small) all=pdl,tma,clusters,setmaxnreg
    for share in 1/6 2/6 3/6 4/6 5/6 6/6; do
        begin "racecheck-${share%/*}" --tool racecheck --kernel-name-exclude kernel_substring=streamed "${small[@]}" $share \
            rows norm rope logits product fused attention fresh sampling
    done
    local unit lanes=
    for unit in streamed held wide sliced; do lanes=$lanes,every_lane_arrives@$unit; done
    for share in 1/4 2/4 3/4 4/4; do
        ARCHWAY_FEATURES=pdl,tma,setmaxnreg$lanes begin "racecheck-streamed-${share%/*}" --tool racecheck "${small[@]}" $share streamed
        ARCHWAY_FEATURES=$all$lanes begin "racecheck-sliced-${share%/*}" --tool racecheck "${small[@]}" $share streamed
    done
    ARCHWAY_FEATURES=$all,fault_missing_barrier@norm timeout 100 compute-sanitizer --tool racecheck --error-exitcode 9 \
        "${small[@]}" norm >"$out/racecheck-planted.log" 2>&1
    [ $? = 9 ] && grep -q 'Race reported' "$out/racecheck-planted.log" || { echo "a missing barrier was not found" && bad=1; }
    ended && return $bad
}

for chosen in $parts; do
    case $chosen in
    doctor) part doctor "$programs/archway" doctor ;;
    kernels) LINES_SHOWN=40 part kernels "$programs/kernels" compare ;;
    memcheck) LINES_SHOWN=60 part memcheck memcheck ;;
    racecheck) LINES_SHOWN=80 part racecheck racecheck ;;
    models) LINES_SHOWN=60 part models "$programs/models" "$root/tests/golden" ;;
    faults) part faults "$programs/faults" ;;
    ranks)
        LINES_SHOWN=60 part ranks "$programs/models" ranks "${RANKS:-2}" "$root/tests/golden"
        part stall "$programs/faults" stall
        part ranks-8b "$programs/models" speed "$root/models/shapes/llama-3.1-8b.json" "${RANKS:-2}"
        ;;
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
    verify) part verify "$programs/models" time "$root/models/shapes/llama-3.1-8b.json" 1 512 1 2 4 8 16 ;;
    eagle)
        head=${SCRATCH:-/tmp}/archway-head-8b
        part eagle-head python3 "$root/tests/gpu/random_head.py" "$root/models/shapes/llama-3.1-8b.json" "$head"
        echo '[[1,22,333,4444,55,666,7777,88,99,1010,11,12,13,14,15,16]]' >"$out/prompts.json"
        part eagle "$programs/archway" bench eagle3 --device cuda --load-format dummy --model "$root/models/shapes/llama-3.1-8b.json" \
            --speculative-draft-model-path "$head" --speculative-num-steps 3 --speculative-adaptive=false --prompts "$out/prompts.json" \
            --max-tokens 256 --warmup 1 --runs 3 --simulate-accept-length 3.0 --max-model-len 2048 --max-num-seqs 8 --max-total-tokens 16384
        ;;
    # The first start compiles kernels, the second finds them.
    serve)
        model=${SCRATCH:-/tmp}/archway-model-8b
        part checkpoint python3 "$root/tests/gpu/random_checkpoint.py" "$root/models/shapes/llama-3.1-8b.json" "$model"
        for start in cold warm; do
            LINES_SHOWN=45 part "serve-$start" "$root/tests/gpu/serve.sh" "$programs" "$model" --max-model-len 2048 --max-num-seqs 64
        done
        ;;
    *) echo "no part $chosen" >&2 && exit 2 ;;
    esac
done
exit $failed
