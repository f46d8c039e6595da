#!/usr/bin/env bash
# Serves a model on the GPU: seconds from start to ready, then 64 streams of 512 tokens in and 256 out.
# usage: serve.sh PROGRAMS MODEL [FLAG...]
set -eu
programs=${1:?folder of the programs}
model=${2:?model}
shift 2
log=$(mktemp)
start=$(date +%s.%N)
"$programs/archway" serve "$model" --device cuda --port 0 --log-level warn "$@" >"$log" 2>"$log.err" &
server=$!
trap 'kill -TERM $server 2>/dev/null; wait $server 2>/dev/null; tail -n 3 "$log.err"; rm -f "$log" "$log.err"' EXIT
url=
for _ in $(seq 2400); do
    url=$(head -n 1 "$log")
    [ -n "$url" ] && curl -sf "$url/health" >/dev/null && break
    kill -0 $server || exit 1
    sleep 0.05
done
awk -v from="$start" -v to="$(date +%s.%N)" 'BEGIN {printf "ready after %.2f s\n", to - from}'
"$programs/archway" bench serve --base-url "$url" --num-prompts "${PROMPTS:-192}" --max-concurrency 64 \
    --random-input-len 512 --random-output-len 256 --warmup 2
nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader
