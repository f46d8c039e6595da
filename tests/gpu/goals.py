"""The goals of speed on GPUs, and whether a run met them: goals.py LOGS

LOGS: a folder with the logs of tests/gpu/goals.sh. Prints a Markdown table for docs/benchmarks.md.
Exit code 0: every goal that was measured is met; 1: one is missed; 2: nothing was measured.
"""

import json
import pathlib
import re
import sys

SHAPES = pathlib.Path(__file__).parents[2] / "models/shapes"
PASS = re.compile(
    r"^(?P<where>.*?)(?P<sequences>\d+) x (?P<rows>\d+) rows, context (?P<context>\d+), "
    r"(?P<wait>back to back|waiting after each): (?P<ms>[\d.]+) ms a step, \d+ GB/s of (?P<gb>[\d.]+) GB"
)


class NotMeasured(Exception):
    """A log is missing, or ends before the figure."""


class Logs:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def text(self, name):
        try:
            return (self.folder / f"{name}.log").read_text(errors="replace")
        except OSError:
            raise NotMeasured(f"no {name}.log") from None

    def number(self, name, pattern):
        """The last number that `pattern` finds in a log."""
        found = re.findall(pattern, self.text(name))
        if not found:
            raise NotMeasured(f"{name}.log lacks it")
        return float(found[-1])

    def labelled(self, name, label):
        """A row of the tables that `archway bench` prints."""
        return self.number(name, rf"(?m)^{re.escape(label)}:\s+([\d.]+)")

    def step(self, name, sequences, rows, context=512, where="", wait="back to back"):
        """Milliseconds of a pass that `models time` or `models rank-time` timed, and the gigabytes that it must read."""
        for found in map(PASS.match, self.text(name).splitlines()):
            wanted = (where, sequences, rows, context, wait)
            if found and wanted == (found["where"], *(int(found[key]) for key in ("sequences", "rows", "context")), found["wait"]):
                return float(found["ms"]), float(found["gb"])
        raise NotMeasured(f"{name}.log lacks it")

    def read_rate(self):
        """Gigabytes a second of plain reading."""
        return self.number("read", r"(?m)^read ([\d.]+) GB/s")


def share(logs, name):
    """Tokens a second of one sequence, and what its bytes take of the read rate."""
    ms, gigabytes = logs.step(name, 1, 1)
    return gigabytes / ms * 1e3 / logs.read_rate(), f"{ms:.3f} ms, {1e3 / ms:,.0f} tok/s, {{:.3f}}"


def ratio(logs, name, sequences, rows, where=""):
    """A pass over the decode step of one sequence, the larger of back to back and waiting after each."""
    def over(wait):
        return logs.step(name, sequences, rows, where=where, wait=wait)[0] / logs.step(name, 1, 1, where=where, wait=wait)[0]

    ms, _ = logs.step(name, sequences, rows, where=where)
    return max(over("back to back"), over("waiting after each")), f"{ms:.3f} ms, {{:.3f}} x"


def long_context(logs):
    """A step at 32,768 positions over what the step at 512 and the added bytes at the read rate predict."""
    (short, few), (long, many) = logs.step("speed-8b", 1, 1), logs.step("context-32768", 1, 1, context=32768)
    return long / (short + (many - few) / logs.read_rate() * 1e3), f"{long:.2f} ms, {{:.3f}} x"


def prefill(logs):
    """Operations of the layers' products a second, over those of a large product by cuBLAS. The output projection is made
    for the last row alone, and attention is not a product of weights: neither counts."""
    tokens, shape = 2048, json.loads((SHAPES / "llama-3.1-8b.json").read_text())
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    head = shape.get("head_dim") or hidden // heads
    layer = 2 * hidden * head * (heads + shape["num_key_value_heads"]) + 3 * hidden * shape["intermediate_size"]
    ms = logs.labelled("prefill", "Median first token (ms)")
    rate = 2 * shape["num_hidden_layers"] * layer * tokens / ms / 1e9
    return rate / logs.number("matmul", r"([\d.]+) TFLOP/s"), f"{ms:.1f} ms, {rate:.0f} TFLOP/s, {{:.2f}}"


def over_copy(logs):
    """Seconds of a warm start beyond reading the files."""
    ready, copied = logs.number("serve-warm", r"ready after ([\d.]+) s"), logs.number("copy", r"copied in ([\d.]+) s")
    return ready - copied, f"{ready:.2f} s where reading the files takes {copied:.2f}: {{:.2f}} s"


def break_even(logs, name):
    """How far the plan's break-even is from the measured one, in per cent."""
    predicted, measured = logs.number(name, r"the plan predicted ([\d.]+)"), logs.number(name, r"Break-even: ([\d.]+) tokens")
    return abs(predicted / measured - 1) * 100, f"{measured:.3f} tokens per verify, predicted {predicted:.3f}: {{:.1f}} %"


def found(name, pattern, text="{:,.0f}", scale=1.0):
    return lambda logs: (logs.number(name, pattern) * scale, text)


def labelled(name, label, text="{:,.0f}"):
    return lambda logs: (logs.labelled(name, label), text)


SIMULATED = r"SIMULATED.* speed-up ([\d.]+)"
PLANNED = "2 ranks, the plan's choice: "

# What, its figure, the goal, whether more is better, and the stretch goal.
GOALS = [
    ("8B, batch 1: share of the read rate", lambda logs: share(logs, "speed-8b"), 0.88, True, 0.93),
    ("1B, batch 1: share of the read rate", lambda logs: share(logs, "speed-1b"), 0.78, True, None),
    ("8B, batch 8 over batch 1", lambda logs: ratio(logs, "batches-8b", 8, 1), 1.10, False, None),
    ("8B, batch 32 over batch 1", lambda logs: ratio(logs, "batches-8b", 32, 1), 1.35, False, None),
    ("8B, verify 4 tokens over a decode step", lambda logs: ratio(logs, "speed-8b", 1, 4), 1.05, False, None),
    ("8B, verify 8 tokens over a decode step", lambda logs: ratio(logs, "speed-8b", 1, 8), 1.08, False, None),
    ("8B, verify 16 tokens over a decode step", lambda logs: ratio(logs, "speed-8b", 1, 16), 1.15, False, None),
    ("8B, context 32,768 over the prediction from bytes", long_context, 1.15, False, None),
    ("8B, prefill of 2,048 tokens over a cuBLAS product", prefill, 0.55, True, 0.70),
    ("SmolLM2, batch 1, tok/s", labelled("demo", "Median decode (tokens/s)"), 2000, True, None),
    ("SmolLM2 with its head over plain", labelled("eagle-demo", "Speed-up", "{:.2f} x"), 1.0, True, None),
    ("SmolLM2, break-even, difference in %", lambda logs: break_even(logs, "eagle-demo"), 10, False, None),
    ("8B, SIMULATED 3.0 tokens per verify over plain", found("eagle-8b", SIMULATED, "{:.2f} x"), 2.2, True, None),
    ("8B, break-even, difference in %", lambda logs: break_even(logs, "eagle-8b"), 10, False, None),
    ("start to ready, no compiled kernels, s", found("serve-cold", r"ready after ([\d.]+) s", "{:.2f} s"), 20, False, None),
    ("start to ready, compiled kernels, s", found("serve-warm", r"ready after ([\d.]+) s", "{:.2f} s"), 6, False, None),
    ("the same over reading the files, s", over_copy, 2, False, None),
    ("passes recorded at start, ms", found("serve-warm", r"passes recorded in (\d+) ms", "{:.0f} ms"), 3000, False, None),
    ("memory that the plan does not explain, %", found("serve-warm", r": ([\d.]+) % of the memory is", "{:.1f} %"), 3, False, None),
    ("a refused launch, s", found("refused", r"refused in ([\d.]+) s", "{:.2f} s"), 0.5, False, None),
    ("64 streams: GPU busy, %", found("serve-warm", r"(?m)^(\d+) %, \d+ MiB", "{:.0f} %"), 95, True, None),
    ("64 streams: tok/s", labelled("serve-warm", "Output token throughput (tok/s)"), None, True, None),
    ("64 streams: first token, median, ms", labelled("serve-warm", "Median TTFT (ms)"), None, False, None),
    ("64 streams: first token, 99 %, ms", labelled("serve-warm", "P99 TTFT (ms)"), None, False, None),
    ("64 streams: between tokens, median, ms", labelled("serve-warm", "Median ITL (ms)", "{:.1f}"), None, False, None),
    ("64 streams: between tokens, 99 %, ms", labelled("serve-warm", "P99 ITL (ms)", "{:.1f}"), None, False, None),
    ("8B on two GPUs, tok/s", lambda logs: (1e3 / logs.step("ranks-8b", 1, 1, where=PLANNED)[0], "{:,.0f}"), 440, True, 490),
    ("8B on two GPUs, NCCL's step over the plan's",
     lambda logs: (logs.step("ranks-8b", 1, 1, where="2 ranks, nccl: ")[0] / logs.step("ranks-8b", 1, 1, where=PLANNED)[0], "{:.2f} x"),
     None, True, None),
    ("8B on two GPUs, verify 8 tokens over a decode step", lambda logs: ratio(logs, "ranks-8b", 1, 8, PLANNED), 1.08, False, None),
    ("8B on two GPUs, SIMULATED 3.0 tokens per verify over plain", found("eagle-ranks", SIMULATED, "{:.2f} x"), None, True, None),
    ("8B on two GPUs, break-even, difference in %", lambda logs: break_even(logs, "eagle-ranks"), 10, False, None),
]


def verdict(value, goal, more, stretch):
    def reached(bound):
        return value >= bound if more else value <= bound

    if goal is None:
        return "reported"
    if not reached(goal):
        return f"**missed** by {abs(value / goal - 1) * 100:.1f} %"
    return "met" if stretch is None else "met, stretch too" if reached(stretch) else "met, stretch missed"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    logs, measured, missed = Logs(sys.argv[1]), 0, 0
    print("| what | figure | goal | verdict |\n|---|---|---|---|")
    for what, figure, goal, more, stretch in GOALS:
        aim = "" if goal is None else f"{'at least' if more else 'at most'} {goal:,}"
        aim += "" if stretch is None else f", stretch {stretch:,}"
        try:
            value, text = figure(logs)
        except NotMeasured as reason:
            print(f"| {what} | | {aim} | not measured: {reason} |")
            continue
        result = verdict(value, goal, more, stretch)
        measured, missed = measured + 1, missed + result.startswith("**")
        print(f"| {what} | {text.format(value)} | {aim} | {result} |")
    return 2 if not measured else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
