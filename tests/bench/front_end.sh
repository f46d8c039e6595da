#!/usr/bin/env bash
# Measures the front end alone: a server with the mock engine on one core, the generator on another; 16 token ids in,
# 1 token out, connections kept. Prints a row of a Markdown table. Exit 1: the goal is missed.
#
# usage: front_end.sh [SECONDS] [CONNECTIONS]      default: 10 seconds, 32 connections
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read -ra launcher <<<"$(pinned 1)"
read -ra load_launcher <<<"$(pinned 2)"
serve --mock-engine --served-model-name mock --http-threads 1
report=$("${load_launcher[@]}" "$archway" bench frontend --address "${url#http://}" --warmup 2 \
    --duration "${1:-10}" --connections "${2:-32}" --json)
rate=$(number requests_per_second <<<"$report")
row "front end alone: requests/s on one core, median latency $(number latency median <<<"$report") ms" \
    "$rate" "at least 10,000" "$rate >= 10000"
exit "$missed"
