#!/usr/bin/env bash
# A thousand rude clients against a server: see rude.py. With a model, its cache is small enough for a single sequence to
# fill, so that one lost page shows, and small enough for preemption.
#
# usage: rude.sh [MODEL]     default: the mock engine
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"

preemptions=0
if [ $# -eq 0 ]; then
    serve --mock-engine --mock-interval 1 --served-model-name mock
else
    preemptions=1
    serve "$1" --max-model-len 256 --max-total-tokens 256 --max-num-seqs 48
fi
python3 "$here/rude.py" "$url" "${REQUESTS:-1000}" "${SEED:-1}" "$preemptions"
