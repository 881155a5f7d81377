#!/usr/bin/env python3
"""The same decoder layers as layer.cpp by PyTorch, forward and backward in bf16, as JSON lines: layer_pytorch.py [DIVISOR].

Exit 77 without PyTorch or a GPU; --cpu in place of the divisor tries the script itself, on small sizes. Weights' gradients are
added up in bf16, as PyTorch does; attention is its scaled_dot_product_attention. Not: a tuned layer.
"""
import json
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: no PyTorch", file=sys.stderr)
    sys.exit(77)
CPU = sys.argv[1:] == ["--cpu"]
if not CPU and not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU", file=sys.stderr)
    sys.exit(77)
DEVICE = "cpu" if CPU else "cuda"
DIVISOR = 64 if CPU else int((sys.argv[1:] or ["1"])[0])

SHAPES = [("llama-2-7b, 16384", 4096, 11008, 32, 32, 16384), ("llama-2-7b, 4096", 4096, 11008, 32, 32, 4096),
          ("llama-3-8b, 8192", 4096, 14336, 32, 8, 8192), ("2048 wide, 16384", 2048, 5504, 16, 16, 16384)]


class Layer(torch.nn.Module):
    def __init__(self, hidden, intermediate, heads, kv_heads, sequence):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False, device=DEVICE, dtype=torch.bfloat16)
        self.q, self.o = linear(hidden, hidden), linear(hidden, hidden)
        self.k, self.v = linear(hidden, kv_heads * self.size), linear(hidden, kv_heads * self.size)
        self.gate, self.up, self.down = linear(hidden, intermediate), linear(hidden, intermediate), linear(intermediate, hidden)
        self.norm1 = torch.nn.RMSNorm(hidden, device=DEVICE, dtype=torch.bfloat16)
        self.norm2 = torch.nn.RMSNorm(hidden, device=DEVICE, dtype=torch.bfloat16)
        angles = torch.outer(torch.arange(sequence), 10000.0 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", angles.cos().to(DEVICE, torch.bfloat16))
        self.register_buffer("sin", angles.sin().to(DEVICE, torch.bfloat16))

    def rotate(self, x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * self.cos - b * self.sin, a * self.sin + b * self.cos), -1).flatten(-2)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        y = self.norm1(x)
        split = lambda z, n: z.view(batch, sequence, n, self.size).transpose(1, 2)
        q, k = self.rotate(split(self.q(y), self.heads)), self.rotate(split(self.k(y), self.kv_heads))
        y = F.scaled_dot_product_attention(q, k, split(self.v(y), self.kv_heads), is_causal=True,
                                           enable_gqa=self.kv_heads != self.heads)
        x = x + self.o(y.transpose(1, 2).reshape(batch, sequence, hidden))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def measure(compiled, hidden, intermediate, heads, kv_heads, sequence):
    """Seconds of the quickest of ten."""
    torch.manual_seed(0)
    layer = Layer(hidden, intermediate, heads, kv_heads, sequence)
    run = torch.compile(layer) if compiled else layer
    x = torch.randn(1, sequence, hidden, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(x)
    best = float("inf")
    for i in range(13):
        if CPU:
            begin = time.perf_counter()
            run(x).backward(gradient)
            seconds = time.perf_counter() - begin
        else:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run(x).backward(gradient)
            end.record()
            torch.cuda.synchronize()
            seconds = begin.elapsed_time(end) * 1e-3
        if i > 2:
            best = min(best, seconds)
    return best


def main():
    show = lambda one: print(json.dumps(one), flush=True)
    show({"device": "CPU" if CPU else torch.cuda.get_device_name(), "torch": torch.__version__})
    # The first shape is the one that is asked for; compiling takes long, so the others' come last.
    for compiled, shapes in ((False, SHAPES[:1]), (True, SHAPES[:1]), (False, SHAPES[1:]), (True, SHAPES[1:])):
        for name, *sizes in shapes:
            try:
                seconds = measure(compiled, *(max(1, size // DIVISOR) for size in sizes))
                show({"shape": name, "compiled_seconds" if compiled else "seconds": seconds})
            except Exception as error:  # torch.compile needs a host compiler and Triton, which may be absent
                if not compiled:
                    raise
                show({"shape": name, "compiled": f"failed: {type(error).__name__}"})


main()
