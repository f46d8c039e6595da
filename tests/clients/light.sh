#!/usr/bin/env bash
# Runs the light clients against a server: openai (Python), llm-comply, schemathesis.
#
# usage: light.sh [SERVE-ARGUMENT...]     default: --mock-engine --served-model-name mock
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"

environment light --requirement "$here/requirements.txt"
if [ $# -eq 0 ]; then
    set -- --mock-engine --served-model-name mock
fi
serve "$@"

echo "== openai"
"$python" "$here/openai_client.py" "$url"
echo "== llm-comply"
"$python" "$here/comply.py" "$url" "$bin/llm-comply"
echo "== schemathesis"
# Valid by the schema and refused all the same: what depends on the model (lengths, token ids) or on two fields at
# once (`stream_options` without `stream`). So 400 counts as an answer to valid data, but never a 500.
cat >"$clients/schemathesis.toml" <<'TOML'
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "404"]
TOML
# It keeps a cache in its working folder.
cd "$clients"
"$bin/schemathesis" --config-file "$clients/schemathesis.toml" run "$url/openapi.json" \
    --max-examples "${EXAMPLES:-60}" --seed 1 --no-color --warnings off
