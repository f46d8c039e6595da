"""Beside llama.cpp's own server, which times itself: compare_llama_server.py ARCHWAY MODEL.gguf [ROUNDS] [THREADS]

The server runs inside this process (`pip install xllamacpp==2026.10.11549`), so neither HTTP nor another language's loop is in
its times, unlike those of compare_llama_cpp.sh; its wheel is built for AVX2. ARCHWAY is the release build. Rounds (5) in turns,
each a warm-up and five runs of 16 tokens in and 128 out, and of 512 in; medians of the rounds, and their ratio.
"""

import json
import statistics
import subprocess
import sys

import xllamacpp

RUNS = 5
# Tokens in, tokens out, and what of the two programs' reports counts.
MEASURES = {
    "decode": (16, 128, "decode_tokens_per_second", "predicted_per_second"),
    "prefill": (512, 2, "prefill_tokens_per_second", "prompt_per_second"),
}


def llama_server(model, threads):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_ctx, params.n_parallel, params.n_batch, params.n_ubatch, params.verbosity = 2048, 1, 512, 512, 0
    return xllamacpp.Server(params)


def theirs(server, measure):
    prompt, out, _, rate = MEASURES[measure]
    rates = []
    for run in range(RUNS + 1):
        # Other tokens in each run: nothing may come from a cache.
        request = {
            "prompt": [100 + (11 * run + 17 * place) % 40000 for place in range(prompt)],
            "n_predict": out,
            "ignore_eos": True,
            "temperature": 0.0,
            "cache_prompt": False,
        }
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
        timings = answer["timings"]
        assert timings["prompt_n"] == prompt and timings["predicted_n"] == out, timings
        rates.append(timings[rate])
    return statistics.median(rates[1:])


def ours(archway, model, threads, measure):
    prompt, out, rate, _ = MEASURES[measure]
    lengths = ["--input-len", str(prompt), "--output-len", str(out), "--warmup", "1", "--runs", str(RUNS)]
    command = [archway, "bench", "latency", "--json", "--model", model, "--threads", str(threads), *lengths]
    report = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(report)[rate]["median"]


def main():
    if len(sys.argv) not in (3, 4, 5):
        sys.exit(__doc__)
    archway, model = sys.argv[1:3]
    rounds, threads = (int(word) for word in (sys.argv[3:] + ["5", "2"][len(sys.argv) - 3 :]))
    server = llama_server(model, threads)
    print(f"{xllamacpp.get_system_info()}\n")
    print("| what | archway, tok/s | llama.cpp, tok/s | ratio |\n|---|---|---|---|")
    for measure in MEASURES:
        pairs = [(ours(archway, model, threads, measure), theirs(server, measure)) for _ in range(rounds)]
        left, right = ([pair[side] for pair in pairs] for side in (0, 1))
        cells = (f"{statistics.median(side):,.0f} ({min(side):,.0f} to {max(side):,.0f})" for side in (left, right))
        print(f"| {measure} | {' | '.join(cells)} | {statistics.median(left) / statistics.median(right):.2f} |")


if __name__ == "__main__":
    main()
