#!/usr/bin/env bash
# Watches a server's memory under full load of small requests, with the mock engine. Prints a row of a Markdown table
# with the growth from the second to the last tenth of the time. Exit 1: it grows by more than 1 MiB.
#
# usage: memory.sh [SECONDS]      default: 600
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
seconds=${1:-600}

read -ra launcher <<<"$(pinned 1)"
read -ra load_launcher <<<"$(pinned 2)"
serve --mock-engine --served-model-name mock --http-threads 1
"${load_launcher[@]}" "$archway" bench frontend --address "${url#http://}" --warmup 0 --duration "$seconds" --json \
    >"$clients/memory.json" &
load=$!
servers+=("$load")
samples=()
while kill -0 "$load" 2>/dev/null; do
    samples+=("$(memory)")
    sleep "$(awk "BEGIN { print $seconds / 100 }")"
done
wait "$load"
requests=$(number requests <"$clients/memory.json")
growth=$(printf '%s\n' "${samples[@]}" | awk '
    { value[NR] = $1 }
    function mean(from, to,   sum, at) { for (at = from; at <= to; at++) sum += value[at]; return sum / (to - from + 1) }
    END { tenth = NR < 10 ? 1 : int(NR / 10); printf "%.0f", mean(NR - tenth + 1, NR) - mean(tenth + 1 < NR ? tenth + 1 : NR, 2 * tenth < NR ? 2 * tenth : NR) }')
row "growth of resident memory in $seconds s of load ($requests requests; ${samples[-1]} KiB at the end), KiB" \
    "$growth" "at most 1024" "$growth <= 1024"
exit "$missed"
