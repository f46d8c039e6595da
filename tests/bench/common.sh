# Shared by the benchmarks. Source it. Exit 0: the goal is met; 1: it is missed; 2: it could not be measured.
#
# ARCHWAY   the program; default: the release build of this checkout

ARCHWAY=${ARCHWAY:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/target/release/archway}
source "$(dirname "${BASH_SOURCE[0]}")/../clients/common.sh"
missed=0
mkdir -p "$clients"
# What could not be measured is no missed goal: exit 2.
set -o errtrace
trap 'exit 2' ERR

# row WHAT FIGURE GOAL CONDITION: prints a row of a Markdown table; a goal is missed if awk finds CONDITION false.
row() {
    local verdict=met
    if ! awk "BEGIN { exit !($4) }"; then
        verdict=missed
        missed=1
    fi
    echo "| $1 | $2 | $3 | $verdict |"
}

# number NAME...: a number of the JSON on stdin, by the names on the way to it.
number() {
    python3 -c '
import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1:]:
    value = value[int(name) if isinstance(value, list) else name]
print(round(value, 3))' "$@"
}

# What starts a program on the processor of this number, among those that this shell may use; nothing where there is one alone.
pinned() {
    python3 -c '
import os, sys
processors = sorted(os.sched_getaffinity(0))
print(f"taskset --cpu-list {processors[int(sys.argv[1]) - 1]}" if len(processors) > 1 else "")' "$1"
}

# Resident memory of the server in KiB.
memory() {
    awk '/^VmRSS/ { print $2 }' "/proc/${servers[0]}/status"
}

# Nanoseconds that the threads of the server have been on a processor.
processor_time() {
    cat /proc/"${servers[0]}"/task/*/schedstat | awk '{ sum += $1 } END { printf "%d\n", sum }'
}
