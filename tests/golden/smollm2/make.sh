#!/usr/bin/env bash
# Makes llama_cpp.json and reference.safetensors beside this script: what llama.cpp says after 20 prompts, and what the
# dequantised weights say on the way.
#
# usage: make.sh MODEL.gguf       the file that `archway demo` keeps in ~/.cache/archway/models
#
# Needs node and python3; packages go to target/golden. NODE_MODULES names a folder that has node-llama-cpp already.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(cd "$here/../../.." && pwd)/target/golden
model=${1:?usage: make.sh MODEL.gguf}
version=3.22.1

mkdir -p "$work"
if [ -z "${NODE_MODULES:-}" ]; then
    NODE_MODULES=$work/node_modules
    [ -d "$NODE_MODULES/node-llama-cpp" ] || npm install --silent --no-save --prefix "$work" "node-llama-cpp@$version" >&2
fi
node "$here/llama_cpp.mjs" "$NODE_MODULES" "$model" "$here/prompts.json" >"$work/llama_cpp.json"
mv "$work/llama_cpp.json" "$here/llama_cpp.json"

[ -x "$work/python/bin/python" ] || python3 -m venv "$work/python"
"$work/python/bin/python" -m pip install --quiet --disable-pip-version-check gguf==0.19.0 numpy safetensors
"$work/python/bin/python" "$here/reference.py" "$model" "$here/llama_cpp.json" "$here/reference.safetensors"
