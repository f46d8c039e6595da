"""Holds the call counters of a server on several GPUs against what a profiler saw of the same steps.

Usage: python3 count_calls.py PROGRAMS MODEL COUNT_KERNELS.so [FLAG...]
Starts `archway serve MODEL FLAG...` under count_kernels.cpp, warms it up, then asks for outputs and compares: how often each
algorithm's kernels started on each device between two readings, and what /plan counted between the same two. Exit code 1 where
they differ, 2 where the server does not get ready.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

PROMPT, OUTPUT, REQUESTS = 64, 24, 6


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def complete(url, model, number):
    body = {"model": model, "prompt": [number + 2 + at for at in range(PROMPT)], "max_tokens": OUTPUT, "ignore_eos": True}
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + "/v1/completions", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def seen(trace):
    """{(device, name): count} since the process began."""
    now = trace + ".now"
    open(now, "w").close()
    for _ in range(500):
        if not os.path.exists(now):
            break
        time.sleep(0.02)
    else:
        raise SystemExit("the profiler's library writes nothing; is it loaded?")
    lines = [line.rstrip("\n") for line in open(trace)]
    if lines[0] != "# records lost: 0":
        raise SystemExit(lines[0])
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {(int(device), name): int(count) for device, count, _, name in rows}


def counted(url):
    """{(operation, algorithm, fused): count}, over sites, phases and sizes."""
    calls = {}
    for row in get(url + "/plan")["calls"]:
        key = (row["operation"], row["algorithm"], row["fusion"] != "none")
        calls[key] = calls.get(key, 0) + row["calls"]
    return calls


def of_kernel(name):
    """What a kernel's start is a call of; none for kernels that sum nothing."""
    if name.startswith("ncclDevKernel_AllReduce"):
        return ("all_reduce", "nccl", False)
    if name.startswith("ncclDevKernel_AllGather"):
        return ("all_gather", "nccl", False)
    if name.startswith("all_gather"):
        return ("all_gather", "one_shot", False)
    for algorithm in ("one_shot", "two_shot", "multimem"):
        if name.startswith(algorithm):
            return ("all_reduce", algorithm, "_norm" in name)
    return None


def difference(before, after):
    return {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}


def compare(kernels, calls):
    devices = sorted({device for device, _ in kernels})
    good = bool(calls) and len(devices) > 1
    for device in devices:
        of_device = {}
        for (where, name), count in kernels.items():
            key = of_kernel(name)
            if where == device and key is not None:
                of_device[key] = of_device.get(key, 0) + count
        for key in sorted(set(of_device) | set(calls)):
            operation, algorithm, fused = key
            ran, said = of_device.get(key, 0), calls.get(key, 0)
            good &= ran == said
            word = "equal" if ran == said else "DIFFERENT"
            print(f"GPU {device}: {operation} {algorithm}{' with norm' if fused else ''}: {ran} kernels, {said} counted: {word}")
    return good


def main():
    programs, model, library, *flags = sys.argv[1:]
    folder = tempfile.mkdtemp()
    trace = os.path.join(folder, "kernels.txt")
    environment = dict(os.environ, CUDA_INJECTION64_PATH=library, COUNT_KERNELS=trace)
    command = [os.path.join(programs, "archway"), "serve", model, "--port", "0", "--log-level", "warn", *flags]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        url = server.stdout.readline().strip()
        if not url:
            return 2
        for _ in range(1200):
            try:
                if get(url + "/health")["status"]:
                    break
            except OSError:
                time.sleep(0.05)
            if server.poll() is not None:
                return 2
        name = get(url + "/v1/models")["data"][0]["id"]
        complete(url, name, 0)
        kernels, calls = seen(trace), counted(url)
        tokens = sum(complete(url, name, number) for number in range(1, REQUESTS + 1))
        kernels, calls = difference(kernels, seen(trace)), difference(calls, counted(url))
        print(f"{tokens} tokens of {REQUESTS} requests")
        return 0 if compare(kernels, calls) else 1
    finally:
        server.terminate()
        server.wait(timeout=20)


if __name__ == "__main__":
    sys.exit(main())
