#!/usr/bin/env bash
# Every measurement of the CPU engine and the server, for a machine with nothing else to do: about 20 minutes. Prints
# the section for docs/benchmarks.md on stdout.
#
# usage: quiet.sh MODEL.gguf [--load-seconds N] [--allow-busy]
#
# Exit 0: all goals met; 1: one missed; 2: could not measure.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
source "$here/quiet_machine.sh"
model=
load=600
allow_busy=()

fail() {
    echo "quiet: $1" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --load-seconds) load=${2:?--load-seconds needs a number}; shift 2 ;;
        --allow-busy) allow_busy=(--allow-busy); shift ;;
        -*) fail "unknown option $1" ;;
        *) model=$1; shift ;;
    esac
done
[ -f "$model" ] || fail "usage: quiet.sh MODEL.gguf [--load-seconds N] [--allow-busy]"
cargo build --release --quiet --manifest-path "$root/Cargo.toml" -p archway
if [ ${#allow_busy[@]} -eq 0 ]; then
    found=$(busy)
    [ -z "$found" ] || fail "other processes use the processor: $(paste -sd, <<<"$found") (--allow-busy for a trial run)"
fi

result=0
# measure COMMAND...: runs one of the scripts; a missed goal does not end the others.
measure() {
    local code=0
    echo "quiet: ${*##*/}" >&2
    "$@" || code=$?
    [ "$code" -le 1 ] || fail "$1 could not measure"
    [ "$code" -eq 0 ] || result=1
}

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$(nproc) cores of an $processor, $(rustc --version | cut -d ' ' -f 1-2), release build, $(date -u +%F)," \
    "$(basename "$model"), \`tests/bench/quiet.sh\`:"
echo
echo "| what | figure | goal | verdict |"
echo "|---|---|---|---|"
comparison=$root/target/llama_cpp.json
measure "$root/engine/cpu/bench/compare_llama_cpp.sh" "$model" "${allow_busy[@]}" >"$comparison"
python3 - "$comparison" <<'PYTHON'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
pair = "{0[ours]:.1f} to {0[theirs]:.1f}".format
names = {
    "decode": f"decode tokens/s, ours to llama.cpp's ({pair(report['decode'])})",
    "prefill": f"prefill tokens/s of 512, ours to llama.cpp's ({pair(report['prefill'])})",
    "bandwidth": "decode's share of the read bandwidth in the same run",
    "streams": "8 streams to one without a server",
}
for key, name in names.items():
    ratio, goal = report["ratios"][key], report["goals"][key]
    print(f"| {name} | {ratio:.2f} | at least {goal} | {'met' if ratio >= goal else 'missed'} |")
PYTHON
measure "$here/streams.sh" "$model"
measure "$here/idle.sh" "$model"
measure "$here/front_end.sh"
measure "$here/memory.sh" "$load"
exit "$result"
