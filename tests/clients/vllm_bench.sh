#!/usr/bin/env bash
# Runs vLLM's own load generator, `vllm-rs bench serve` of vllm 0.33.0, against a server: random text over chat, then
# token ids over completions. Both must report every request as successful.
#
# usage: vllm_bench.sh MODEL [TOKENIZER-FOLDER]
#
# The program lies in vLLM's wheel (336 MB, fetched once into target/clients); VLLM_WHEEL names a wheel that is there
# already. It needs no Python, torch or GPU. Random text needs the model's tokenizer.json: without a folder that has it,
# only token ids are sent.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"
model=${1:?usage: vllm_bench.sh MODEL [TOKENIZER-FOLDER]}
version=0.33.0
requests=${REQUESTS:-24}

mkdir -p "$clients"
program=$clients/vllm-rs
if ! [ -x "$program" ]; then
    wheel=${VLLM_WHEEL:-}
    if [ -z "$wheel" ]; then
        python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$clients" "vllm==$version"
        wheel=$(echo "$clients"/vllm-"$version"-*.whl)
    fi
    python3 - "$wheel" "$program" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("vllm/vllm-rs") as source, open(sys.argv[2], "wb") as to:
    shutil.copyfileobj(source, to)
PYTHON
    chmod +x "$program"
fi

serve "$model" --served-model-name bench
echo placeholder
