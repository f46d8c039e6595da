#!/usr/bin/env bash
# A thousand rude clients against a server: see rude.py. With a model, its cache is small enough for a single sequence to
# fill, so that preemption is common and one lost page shows.
#
# usage: rude.sh [MODEL]     default: the mock engine
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"

if [ $# -eq 0 ]; then
    serve --mock-engine --mock-interval 1 --served-model-name mock
else
    serve "$1" --max-model-len 512 --max-total-tokens 512 --max-num-seqs 48
fi
python3 "$here/rude.py" "$url" "${REQUESTS:-1000}" "${SEED:-1}"
