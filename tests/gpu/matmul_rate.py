"""The rate of a large product by cuBLAS, the peer of prefill: 8192 x 8192 x 8192 in bf16, the median of 20 after 5."""

import statistics

import torch

SIZE = 8192
left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
out = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
times = []
for _ in range(25):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.mm(left, right, out=out)
    end.record()
    end.synchronize()
    times.append(start.elapsed_time(end))
milliseconds = statistics.median(times[5:])
print(f"{SIZE} x {SIZE} x {SIZE} bf16: {milliseconds:.3f} ms, {2 * SIZE**3 / milliseconds / 1e9:.1f} TFLOP/s")
