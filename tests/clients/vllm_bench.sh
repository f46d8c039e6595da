#!/usr/bin/env bash
# Runs vLLM's own load generator, `vllm-rs bench serve` of vLLM 0.33.0, against a server with the demo model: random
# text over chat, then token ids over completions. Every request must succeed, and every output have its full length.
#
# usage: vllm_bench.sh MODEL.gguf
#
# The program lies in vLLM's wheel (336 MB, fetched once into target/clients); VLLM_WHEEL names a wheel that is there
# already. It needs no Python, torch or GPU. It compares its tokenizer, written from the GGUF file, with the server's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"
model=${1:?usage: vllm_bench.sh MODEL.gguf}
version=0.33.0
requests=${REQUESTS:-24}
output=16

environment vllm gguf==0.19.0
program=$clients/vllm-rs
if ! [ -x "$program" ]; then
    wheel=${VLLM_WHEEL:-}
    if [ -z "$wheel" ]; then
        "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$clients" "vllm==$version"
        wheel=$(echo "$clients"/vllm-"$version"-*.whl)
    fi
    "$python" - "$wheel" "$program" <<'PYTHON'
import shutil, sys, zipfile

with zipfile.ZipFile(sys.argv[1]).open("vllm/vllm-rs") as source, open(sys.argv[2], "wb") as to:
    shutil.copyfileobj(source, to)
PYTHON
    chmod +x "$program"
fi
"$python" "$here/gguf_tokenizer.py" "$model" "$clients/tokenizer"
serve "$model" --served-model-name bench

# bench NAME ARGUMENT...: one run; fails unless all requests succeeded with outputs of full length.
bench() {
    local name=$1
    shift
    echo "== $name"
    "$program" bench serve --base-url "$url" --model bench --tokenizer "$clients/tokenizer" --dataset-name random \
        --random-input-len 64 --random-output-len "$output" --num-prompts "$requests" --max-concurrency 8 \
        --num-warmups 2 --ignore-eos --disable-tqdm --save-result --result-dir "$clients" \
        --result-filename "$name.json" "$@"
    "$python" - "$clients/$name.json" "$requests" "$output" <<'PYTHON'
import json, sys

report, requests, output = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
got = report["completed"], report["total_output_tokens"]
if got != (requests, requests * output):
    sys.exit(f"completed requests and output tokens are {got}, not {(requests, requests * output)}")
PYTHON
}

bench chat --backend openai-chat --endpoint /v1/chat/completions
bench token-ids --backend openai --endpoint /v1/completions --prompt-token-ids
echo "vllm-rs: all requests succeeded"
