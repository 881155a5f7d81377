#!/usr/bin/env python3
"""How fast is the CPU decoder beside PyTorch? layers_pytorch.py BENCH_LAYERS: one decoder layer, forward and backward in float32, by
this library and by PyTorch eager, each on one thread, in turns; the ratio of tokens in a second of processor time.

BENCH_LAYERS is build/bench/bench_layers. Run it with a Python that has PyTorch (tools/torch.sh makes one). Exit 1 if a ratio is below
1. Not: torch.compile, several threads, or the head.
"""
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: no PyTorch; tools/torch.sh makes an environment with it", file=sys.stderr)
    sys.exit(77)

ROUNDS = 7
# As in layers.cpp: hidden, intermediate, heads, sequence, sequences.
CASES = {"hidden_128": (128, 352, 4, 128, 4), "hidden_512": (512, 1408, 8, 256, 2)}


class Layer(torch.nn.Module):
    def __init__(self, hidden, intermediate, heads, sequence):
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False)
        self.q, self.k, self.v, self.o = (linear(hidden, hidden) for _ in range(4))
        self.gate, self.up, self.down = linear(hidden, intermediate), linear(hidden, intermediate), linear(intermediate, hidden)
        self.norm1, self.norm2 = torch.nn.RMSNorm(hidden), torch.nn.RMSNorm(hidden)
        angles = torch.outer(torch.arange(sequence), 10000.0 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def rotate(self, x):  # as transformers does
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x):
        batch, sequence, hidden = x.shape
        split = lambda z: z.view(batch, sequence, self.heads, self.size).transpose(1, 2)
        y = self.norm1(x)
        y = F.scaled_dot_product_attention(self.rotate(split(self.q(y))), self.rotate(split(self.k(y))), split(self.v(y)), is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, sequence, hidden))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def pytorch(hidden, intermediate, heads, sequence, sequences):
    """Tokens in a second of processor time, the best of some runs of half a second in all."""
    torch.manual_seed(0)
    layer = Layer(hidden, intermediate, heads, sequence)
    x = torch.randn(sequences, sequence, hidden, requires_grad=True)
    gradient = torch.randn_like(x)
    best, begin = float("inf"), time.process_time()
    while time.process_time() - begin < 0.5:
        start = time.process_time()
        layer(x).backward(gradient)  # gradients are added up, as here
        best = min(best, time.process_time() - start)
    return sequences * sequence / best


def ours(program, name):
    # The command's own choice of kernels (sim/choose_kernels.hpp); a program of its own makes it by this variable.
    run = subprocess.run([program, f"--benchmark_filter=^{name}/layer/both$", "--benchmark_format=json", "--benchmark_min_time=0.5"],
                         capture_output=True, text=True, check=True, env=os.environ)
    return json.loads(run.stdout)["benchmarks"][0]["tokens"]


def main():
    torch.set_num_threads(1)
    program = sys.argv[1]
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    slower = False
    for name, case in CASES.items():
        pairs = [(ours(program, name), pytorch(*case)) for _ in range(ROUNDS)]
        ratios = sorted(mine / theirs for mine, theirs in pairs)
        print(f"{name}: {statistics.median(p[0] for p in pairs):,.0f} tokens/s, PyTorch {statistics.median(p[1] for p in pairs):,.0f}: "
              f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
        slower |= statistics.median(ratios) < 1
    sys.exit(1 if slower else 0)


main()
