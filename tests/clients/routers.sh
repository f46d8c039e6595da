#!/usr/bin/env bash
# Runs smg, vllm-router and sglang-router in front of two servers: through each, answers and streams come back whole,
# and both servers get requests.
#
# usage: routers.sh [SERVE-ARGUMENT...]     default: --mock-engine --served-model-name mock
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"
if [ $# -eq 0 ]; then
    set -- --mock-engine --served-model-name mock
fi

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# through NAME COMMAND...: starts a router, checks it and ends it.
through() {
    local name=$1 port=$2
    shift 2
    echo "== $name"
    "$@" >"$clients/$name.log" 2>&1 &
    local router=$!
    local result=0
    python3 "$here/routed.py" "http://127.0.0.1:$port" "$first" "$second" || result=$?
    kill -TERM "$router" 2>/dev/null
    wait "$router" 2>/dev/null || true
    [ "$result" -eq 0 ] || tail -n 30 "$clients/$name.log" >&2
    return "$result"
}

mkdir -p "$clients"
serve "$@"
first=$url
serve "$@"
second=$url

# Each in an environment of its own: two of them install a program of the same name.
environment smg smg==1.13.0
port=$(free_port)
through smg "$port" "$bin/smg" launch --host 127.0.0.1 --port "$port" --policy round_robin \
    --worker-urls "$first" "$second" --prometheus-port "$(free_port)"

environment vllm-router vllm-router==0.1.17
port=$(free_port)
through vllm-router "$port" "$bin/vllm-router" --host 127.0.0.1 --port "$port" --policy round_robin \
    --worker-urls "$first" "$second" --prometheus-port "$(free_port)"

environment sglang-router sglang-router==0.3.2
port=$(free_port)
through sglang-router "$port" "$bin/sglang-router" launch --host 127.0.0.1 --port "$port" --policy round_robin \
    --worker-urls "$first" "$second" --prometheus-port "$(free_port)"
