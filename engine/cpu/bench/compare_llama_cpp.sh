#!/usr/bin/env bash
# Side by side with llama.cpp on this machine: alternating rounds, medians, ratios against the goals.
#
#   compare_llama_cpp.sh MODEL.gguf [--rounds N] [--threads N] [--allow-busy]
#
# Refuses while another process uses more than 5 % of a core, unless --allow-busy is given (trial runs: the figures
# then say little). stdout: one line of JSON. Exit 0: goals met; 1: a goal missed; 2: could not measure.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
source "$root/tests/bench/quiet_machine.sh"
version=3.22.1
rounds=5
threads=2
allow_busy=false
model=

fail() {
  echo "compare_llama_cpp: $1" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --threads) threads=${2:?--threads needs a number}; shift 2 ;;
    --allow-busy) allow_busy=true; shift ;;
    -*) fail "unknown option $1" ;;
    *) model=$1; shift ;;
  esac
done
[ -n "$model" ] || fail "usage: compare_llama_cpp.sh MODEL.gguf [--rounds N] [--threads N] [--allow-busy]"
[ -f "$model" ] || fail "$model is not a file"
command -v node >/dev/null || fail "node is not installed: the other side is the npm package node-llama-cpp"

check_idle() {
  $allow_busy && return
  local found
  found=$(busy)
  [ -z "$found" ] || fail "other processes use the processor, so the figures would say little: $(echo "$found" | head -3 | paste -sd, ) (--allow-busy for a trial run)"
}

work="$root/target/llama_cpp"
mkdir -p "$work"
if [ ! -d "$work/node_modules/node-llama-cpp" ]; then
  npm install --silent --no-save --prefix "$work" "node-llama-cpp@$version" >&2 || fail "npm could not install node-llama-cpp@$version"
fi
cargo build --release --quiet --manifest-path "$root/Cargo.toml" -p engine-cpu --example model_bench
ours="$work/ours.jsonl"
theirs="$work/theirs.jsonl"
: >"$ours"
: >"$theirs"
for round in $(seq "$rounds"); do
  check_idle
  "$root/target/release/examples/model_bench" "$model" "$threads" >>"$ours" || fail "our side failed"
  check_idle
  node "$here/llama_cpp.mjs" measure "$work/node_modules" "$model" "$threads" >>"$theirs" || fail "llama.cpp failed"
  echo "round $round of $rounds: ours $(tail -1 "$ours")" >&2
  echo "round $round of $rounds: llama.cpp $(tail -1 "$theirs")" >&2
done
node "$here/llama_cpp.mjs" summary "$ours" "$theirs"
