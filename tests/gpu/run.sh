#!/usr/bin/env bash
# Whether everything is right on a GPU: tests/gpu/run.sh PROGRAMS OUT [PART...]
# PROGRAMS: a folder with archway and the example programs `kernels`, `models` and `faults` of engine-gpu.
# OUT: where logs go. Parts: doctor kernels models faults demo ranks memcheck racecheck racecheck_products (default: doctor kernels
# models faults).
# The part ranks needs RANKS (2) GPUs, demo the demo model's file in DEMO_MODEL. `goals.sh` beside it measures speed.
set -u
. "$(dirname "$0")/parts.sh"
parts=${*:-doctor kernels models faults}
golden=$root/tests/golden

# Every kernel, once, with these features or all, by several processes: threads of one wait for each other inside the compiler.
compiled() {
    local share bad=0 compilers=()
    for share in 1 2 3 4 5 6 7 8; do
        env ${1:+ARCHWAY_FEATURES=$1} "$programs/kernels" compile $share/8 &
        compilers+=($!)
    done
    for share in "${compilers[@]}"; do wait "$share" || bad=1; done
    return $bad
}

# Seconds of a run under a checker, of which there are up to ten at once.
checked=500
# Runs start side by side, each under a checker: begin LOG COMMAND...
running=()
begin() {
    local log=$out/$1.log
    shift
    timeout $checked compute-sanitizer --error-exitcode 9 "$@" >"$log" 2>&1 &
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

small=("$programs/kernels" compare serial small)
all=pdl,tma,clusters,setmaxnreg

# Every kernel in small shapes but the products of the copy engine. Beside them a kernel that lacks a barrier on purpose, which
# must be found.
racecheck() {
    compiled || return
    local share bad=0
    for share in 1/6 2/6 3/6 4/6 5/6 6/6; do
        begin "racecheck-${share%/*}" --tool racecheck --kernel-name-exclude kernel_substring=streamed "${small[@]}" $share \
            rows norm rope logits product fused attention fresh sampling
    done
    ARCHWAY_FEATURES=$all,fault_missing_barrier@norm timeout $checked compute-sanitizer --tool racecheck --error-exitcode 9 \
        "${small[@]}" norm >"$out/racecheck-planted.log" 2>&1
    [ $? = 9 ] && grep -q 'Race reported' "$out/racecheck-planted.log" || { echo "a missing barrier was not found" && bad=1; }
    ended && return $bad
}

# The products of the copy engine, whose warps arrive at barriers lane by lane for it (docs/benchmarks.md says why). Streamed ones
# without clusters, so that no sliced one runs beside them: the checker fails where those are not watched themselves.
racecheck_products() {
    local unit lanes= share without=pdl,tma,setmaxnreg
    for unit in streamed held wide sliced; do lanes=$lanes,every_lane_arrives@$unit; done
    compiled $without$lanes && compiled $all$lanes || return
    # An odd number of shares deals products with gates and those without, which come in turns, to all of them.
    for share in 1/5 2/5 3/5 4/5 5/5; do
        ARCHWAY_FEATURES=$without$lanes begin "racecheck-streamed-${share%/*}" --tool racecheck "${small[@]}" $share streamed
        ARCHWAY_FEATURES=$all$lanes begin "racecheck-sliced-${share%/*}" --tool racecheck "${small[@]}" $share streamed
    done
    ended
}

LINES_SHOWN=${LINES_SHOWN:-60}
for chosen in $parts; do
    case $chosen in
    doctor) part doctor 60 "$programs/archway" doctor ;;
    kernels) part kernels 200 "$programs/kernels" compare ;;
    memcheck) part memcheck 0 memcheck ;;
    racecheck) part racecheck 0 racecheck ;;
    racecheck_products) part racecheck-products 0 racecheck_products ;;
    models) part models 120 "$programs/models" "$golden" ;;
    faults) part faults 60 "$programs/faults" ;;
    ranks)
        part ranks 120 "$programs/models" ranks "${RANKS:-2}" "$golden"
        part stall 60 "$programs/faults" stall
        ;;
    demo) part demo-model 60 "$programs/models" "${DEMO_MODEL:?the demo model, a .gguf file}" ;;
    *) echo "no part $chosen" >&2 && exit 2 ;;
    esac
done
exit $failed
