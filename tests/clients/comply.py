"""llm-comply's OpenAI chat checks. usage: comply.py URL PATH-OF-LLM-COMPLY

All must pass but the two that ask for what the server does not do; those must answer 400 and name the field, which
openai_client.py checks.
"""

import json
import subprocess
import sys
import urllib.request

URL, PROGRAM = sys.argv[1:3]
UNSUPPORTED = {"chat-tool-calling", "chat-image-input"}

with urllib.request.urlopen(f"{URL}/v1/models") as response:
    model = json.load(response)["data"][0]["id"]
command = [PROGRAM, "--base-url", f"{URL}/v1", "--api-key", "none", "--model", model, "--format", "openai-chat", "--json"]
result = subprocess.run(command, capture_output=True, text=True)
try:
    report = json.loads(result.stdout)
except json.JSONDecodeError:
    sys.exit(f"llm-comply printed no JSON:\n{result.stdout}\n{result.stderr}")
results = {entry["id"]: entry for entry in report["results"]}
failed = {name for name, entry in results.items() if entry["status"] not in ("passed", "skipped")}
for name, entry in sorted(results.items()):
    print(f"{entry['status']:8} {name}")
if len(results) < 8 or failed != UNSUPPORTED:
    for name in sorted(failed - UNSUPPORTED):
        print(json.dumps(results[name], indent=2)[:4000])
    sys.exit(f"llm-comply: expected exactly {sorted(UNSUPPORTED)} to be refused, but {sorted(failed)} failed")
print("llm-comply: all checks passed but tool calls and images, which are refused")
