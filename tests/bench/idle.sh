#!/usr/bin/env bash
# Measures the processor time of a server that has answered once and then has nothing to do. Prints a row of a Markdown
# table. Exit 1: it is more than a thousandth of the time.
#
# usage: idle.sh MODEL [SECONDS]      default: 60 seconds
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
seconds=${2:-60}

serve "${1:?usage: idle.sh MODEL [SECONDS]}" --served-model-name idle
curl --silent --fail --output /dev/null --json '{"model": "idle", "prompt": [5, 6, 7], "max_tokens": 8}' \
    "$url/v1/completions"
sleep 2
before=$(processor_time)
sleep "$seconds"
used=$(awk "BEGIN { printf \"%.3f\", ($(processor_time) - $before) / 1e6 }")
row "processor time of an idle server in $seconds s, ms" "$used" "at most $seconds" "$used <= $seconds"
exit "$missed"
