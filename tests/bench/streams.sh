#!/usr/bin/env bash
# Measures output tokens per second over HTTP with one stream and with eight at once, each 16 tokens in and 64 out,
# three alternating rounds, medians. Prints a row of a Markdown table. Exit 1: eight are less than three times one.
#
# usage: streams.sh MODEL
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

serve "${1:?usage: streams.sh MODEL}" --served-model-name streams
# at_once STREAMS: output tokens per second.
at_once() {
    "$archway" bench serve --base-url "$url" --random-input-len 16 --random-output-len 64 --seed "$RANDOM" \
        --num-prompts $(($1 * 4)) --max-concurrency "$1" --json | number runs 0 output_throughput
}
one=() eight=()
for _ in 1 2 3; do
    one+=("$(at_once 1)")
    eight+=("$(at_once 8)")
done
median() { printf '%s\n' "$@" | sort --general-numeric-sort | sed -n 2p; }
single=$(median "${one[@]}")
many=$(median "${eight[@]}")
ratio=$(awk "BEGIN { printf \"%.2f\", $many / $single }")
row "output tokens/s over HTTP: 8 streams ($many) to one ($single)" "$ratio" "at least 3" "$ratio >= 3"
exit "$missed"
