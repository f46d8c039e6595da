"""NCCL and PyTorch symmetric memory beside ours: sums of bf16, alone and followed by residual and norm.

Usage: python3 allreduce_peers.py RANKS OUT.json
Graphs of 100 calls, medians of five rounds, the slowest rank. Every result is compared with a float32 sum first; what is
wrong is noted and not timed. Multicast stays off. The norm is one Triton kernel.
"""

import json
import os
import statistics
import sys

for switch, value in (("NCCL_NVLS_ENABLE", "0"), ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"), ("NVSHMEM_DISABLE_NVLS", "1")):
    os.environ[switch] = value

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import torch.multiprocessing as multiprocessing
import triton
import triton.language as tl

SIZES = sorted({1 << power for power in range(12, 28)} | {14336, 114688, 458752})
CALLS, ROUNDS = 100, 5
EPSILON = 1e-5


@triton.jit
def add_norm_kernel(x, residual, weight, out, width, epsilon, block: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < width
    total = tl.load(x + row * width + columns, mask=inside, other=0).to(tl.float32)
    total += tl.load(residual + row * width + columns, mask=inside, other=0).to(tl.float32)
    kept = total.to(tl.bfloat16)
    tl.store(residual + row * width + columns, kept, mask=inside)
    total = kept.to(tl.float32)
    factor = tl.rsqrt(tl.sum(total * total) / width + epsilon)
    scaled = total * factor * tl.load(weight + columns, mask=inside, other=0).to(tl.float32)
    tl.store(out + row * width + columns, scaled.to(tl.bfloat16), mask=inside)


def add_norm(x, residual, weight, out):
    rows, width = x.shape
    warps = 8 if width <= 4096 else 16
    add_norm_kernel[(rows,)](x, residual, weight, out, width, EPSILON, block=triton.next_power_of_2(width), num_warps=warps)


class Bench:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        self.device = torch.device("cuda", rank)
        self.group = dist.group.WORLD.group_name
        self.stream = torch.cuda.Stream()
        self.notes, self.dead = [], set()
        elements = SIZES[-1] // 2
        self.buffer = symmetric.empty(elements, dtype=torch.bfloat16, device=self.device)
        handle = symmetric.rendezvous(self.buffer, dist.group.WORLD)
        if handle.multicast_ptr:
            raise RuntimeError("multicast is on, and must stay off")
        generator = lambda seed: torch.Generator(self.device).manual_seed(seed)
        inputs = [torch.randn(elements, device=self.device, dtype=torch.bfloat16, generator=generator(1 + r)) for r in range(ranks)]
        self.mine, self.total = inputs[rank], sum(values.float() for values in inputs)
        self.work, self.out = torch.empty_like(self.mine), torch.empty_like(self.mine)

    def agree(self, right):
        votes = torch.tensor([0 if right else 1], device=self.device, dtype=torch.int32)
        dist.all_reduce(votes)
        return int(votes.item()) == 0

    def meet(self):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()

    def time(self, call):
        """Microseconds of one call, the slowest rank's."""
        calls = CALLS
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                call()
            self.meet()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                for _ in range(calls):
                    call()
            times = []
            for _ in range(ROUNDS):
                self.meet()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                graph.replay()
                begin.record(self.stream)
                graph.replay()
                end.record(self.stream)
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e3 / calls)
            self.meet()
            del graph
        slowest = torch.tensor([statistics.median(times)], device=self.device, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return round(float(slowest.item()), 3)

    def sum(self, name, elements):
        """The call, and where its result stands."""
        if name == "nccl":
            data = self.work[:elements]
            return (lambda: dist.all_reduce(data)), data, data
        data = self.buffer[:elements]
        if name == "torch_one_shot":
            out = self.out[:elements]
            return (lambda: torch.ops.symm_mem.one_shot_all_reduce_out(data, "sum", self.group, out)), data, out
        return (lambda: torch.ops.symm_mem.two_shot_all_reduce_(data, "sum", self.group)), data, data

    def right(self, name, elements):
        call, data, out = self.sum(name, elements)
        data.copy_(self.mine[:elements])
        self.meet()
        call()
        torch.cuda.synchronize()
        want = self.total[:elements]
        error = ((out.double() - want.double()).norm() / want.double().norm()).item()
        self.meet()
        # Sums in place grow from call to call: small values stay finite for long.
        data.copy_(self.mine[:elements] * 1e-6)
        self.meet()
        return error < 1e-2

    def measured(self, name, elements, call_of):
        """A time, or nothing where the peer fails or is wrong on any rank."""
        if name in self.dead:
            return None
        why = ""
        try:
            right = self.right(name, elements)
        except RuntimeError as error:
            right, why = False, repr(error)[:200]
        if not self.agree(right):
            self.notes.append(f"{name} of {2 * elements} bytes: {why or 'wrong'}")
            self.dead.add(name)
            return None
        return self.time(call_of(name, elements))

    def sums(self):
        rows = []
        for size in SIZES:
            for name in ("nccl", "torch_one_shot", "torch_two_shot"):
                if name == "torch_one_shot" and size > (64 << 20) // self.ranks:
                    continue
                time = self.measured(name, size // 2, lambda name, elements: self.sum(name, elements)[0])
                if time is not None:
                    rows.append({"name": name, "bytes": size, "microseconds": time})
        return rows

    def norms(self):
        rows = []
        for width in (4096, 7168):
            weight = torch.rand(width, device=self.device, dtype=torch.bfloat16) + 0.5
            for count in (1, 4, 8, 16, 32, 64, 128):
                residual = torch.zeros(count, width, device=self.device, dtype=torch.bfloat16)
                normed = torch.empty_like(residual)

                def pair(name, elements):
                    call, _, out = self.sum(name, elements)
                    out = out.view(count, width)

                    def both():
                        call()
                        add_norm(out, residual, weight, normed)

                    return both

                for name in ("nccl", "torch_one_shot", "torch_two_shot"):
                    time = self.measured(name, count * width, pair)
                    if time is not None:
                        rows.append({"name": f"{name} and Triton norm", "rows": count, "width": width, "microseconds": time})
        return rows


def worker(rank, ranks, path):
    torch.cuda.set_device(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("PEERS_PORT", "29517"))
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    bench = Bench(rank, ranks)
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    report = {"stack": f"PyTorch {torch.__version__}, NCCL {version}", "ranks": ranks}
    report["sums"] = bench.sums()
    report["norms"] = bench.norms()
    report["notes"] = bench.notes
    if rank == 0:
        with open(path, "w") as file:
            json.dump(report, file, indent=1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(worker, args=(int(sys.argv[1]), sys.argv[2]), nprocs=int(sys.argv[1]), join=True)
