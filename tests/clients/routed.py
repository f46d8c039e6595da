"""Checks a router in front of two servers. usage: routed.py ROUTER-URL FIRST-URL SECOND-URL"""

import json
import re
import sys
import time
import urllib.error
import urllib.request

ROUTER, *SERVERS = sys.argv[1:]
REQUESTS = 8


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def post(body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{ROUTER}/v1/chat/completions", data, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def answered(server):
    """Outputs that a server has ended well so far."""
    ending = r'^vllm:request_success_total\{.*finished_reason="(?:stop|length)".*\} (\d+)$'
    lines = re.findall(ending, get(f"{server}/metrics"), re.MULTILINE)
    return sum(int(count) for count in lines)


def wait(body):
    """The first answer; the router may need a moment to find its servers."""
    for _ in range(120):
        try:
            return json.loads(post(body))
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    sys.exit("the router does not answer")


model = json.loads(get(f"{SERVERS[0]}/v1/models"))["data"][0]["id"]
body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
text = wait(body)["choices"][0]["message"]["content"]
before = [answered(server) for server in SERVERS]
for _ in range(REQUESTS):
    answer = json.loads(post(body))
    if answer["choices"][0]["message"]["content"] != text:
        sys.exit(f"an answer differs: {answer}")
    events = [line[6:] for line in post({**body, "stream": True}).splitlines() if line.startswith("data: ")]
    if events.pop() != "[DONE]":
        sys.exit("a stream does not end with [DONE]")
    parts = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events]
    if "".join(parts) != text:
        sys.exit(f"a stream differs: {parts}")
shares = [answered(server) - old for server, old in zip(SERVERS, before)]
if sum(shares) != 2 * REQUESTS or min(shares) == 0:
    sys.exit(f"the servers got {shares} of {2 * REQUESTS} requests")
print(f"routed: {2 * REQUESTS} requests, {shares[0]} and {shares[1]}")
