#!/usr/bin/env bash
# Measures the front end alone: a server with the mock engine on one core, the generator on another; 16 token ids in,
# 1 token out, connections kept. Prints requests per second, and the server's memory before and after.
#
# usage: front_end.sh [SECONDS] [CONNECTIONS]      default: 10 seconds, 32 connections
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
archway=${ARCHWAY:-$root/target/release/archway}
seconds=${1:-10}
connections=${2:-32}

out=$(mktemp)
taskset --cpu-list 0 "$archway" serve --mock-engine --served-model-name mock --port 0 --log-level warn \
    --http-threads 1 >"$out" &
server=$!
trap 'kill -TERM $server 2>/dev/null; wait $server 2>/dev/null; rm -f "$out"' EXIT
for _ in $(seq 100); do
    url=$(head -n 1 "$out")
    [ -n "$url" ] && break
    sleep 0.1
done

memory() {
    awk '/^VmRSS/ {print $2 " kB"}' "/proc/$server/status"
}

taskset --cpu-list 1 "$archway" bench frontend --address "${url#http://}" --connections "$connections" \
    --duration 1 --warmup 1 >/dev/null
before=$(memory)
taskset --cpu-list 1 "$archway" bench frontend --address "${url#http://}" --connections "$connections" \
    --duration "$seconds"
echo "Server memory after warm-up: $before"
echo "Server memory after the run: $(memory)"
