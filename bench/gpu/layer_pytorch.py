#!/usr/bin/env python3
"""The same decoder layers as layer.cpp by PyTorch, forward and backward in bf16, as JSON lines.

layer_pytorch.py BENCH_GPU_LAYER [DIVISOR] [--compile]: the shapes of that program, by DIVISOR smaller; --compile only fills the
compiler's cache. One product for q, k and v and one for gate and up, as a tuned layer has; attention is
scaled_dot_product_attention by FlashAttention and by cuDNN, compiled and eager. Weights' gradients are added up in bf16, as
PyTorch does.
Exit 77 without PyTorch or a GPU; --cpu in place of the divisor tries the script itself, on small sizes.
"""
import json
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: no PyTorch", file=sys.stderr)
    sys.exit(77)
CPU = "--cpu" in sys.argv
if not CPU and not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU", file=sys.stderr)
    sys.exit(77)
DEVICE = "cpu" if CPU else "cuda"
DIVISOR = 64 if CPU else int(next((one for one in sys.argv[2:] if one.isdigit()), "1"))
COMPILE_ONLY = "--compile" in sys.argv

SHAPES = [json.loads(line) for line in
          subprocess.run([sys.argv[1], "--shapes"], capture_output=True, text=True, check=True).stdout.splitlines()]
WAYS = ["compiled_cudnn", "compiled_flash", "eager_cudnn", "eager_flash"]


class Layer(torch.nn.Module):
    def __init__(self, hidden, intermediate, heads, kv_heads, sequence):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False, device=DEVICE, dtype=torch.bfloat16)
        self.qkv, self.o = linear(hidden, (heads + 2 * kv_heads) * self.size), linear(hidden, hidden)
        self.gate_up, self.down = linear(hidden, 2 * intermediate), linear(intermediate, hidden)
        self.norm1 = torch.nn.RMSNorm(hidden, device=DEVICE, dtype=torch.bfloat16)
        self.norm2 = torch.nn.RMSNorm(hidden, device=DEVICE, dtype=torch.bfloat16)
        angles = torch.outer(torch.arange(sequence), 10000.0 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", angles.cos().to(DEVICE, torch.bfloat16))
        self.register_buffer("sin", angles.sin().to(DEVICE, torch.bfloat16))

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * self.cos - b * self.sin, b * self.cos + a * self.sin), -1)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, sequence, -1, self.size).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True,
                                           enable_gqa=self.kv_heads != self.heads)
        x = x + self.o(y.transpose(1, 2).reshape(batch, sequence, hidden))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def measure(way, hidden, intermediate, heads, kv_heads, sequence):
    """Seconds of the quickest of ten."""
    torch._dynamo.reset()  # or a second shape is compiled for sizes that vary
    if not CPU:
        torch.backends.cuda.enable_flash_sdp(way.endswith("flash"))
        torch.backends.cuda.enable_cudnn_sdp(way.endswith("cudnn"))
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_math_sdp(False)
    torch.manual_seed(0)
    layer = Layer(hidden, intermediate, heads, kv_heads, sequence)
    run = torch.compile(layer, dynamic=False) if way.startswith("compiled") else layer
    x = torch.randn(1, sequence, hidden, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(x)
    best = float("inf")
    for i in range(1 if COMPILE_ONLY else 13):
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
    show({"device": "CPU" if CPU else torch.cuda.get_device_name(), "torch": torch.__version__,
          "cudnn": torch.backends.cudnn.version()})
    # The first shape is the one that is asked for.
    for shapes in (SHAPES[:1], SHAPES[1:]):
        for way in WAYS:
            if COMPILE_ONLY and not way.startswith("compiled"):
                continue
            for shape in shapes:
                name = shape["shape"]
                try:
                    seconds = measure(way, *(max(1, size // DIVISOR) for size in shape["sizes"]))
                    show({"shape": name, "pytorch": way, **({} if COMPILE_ONLY else {"seconds": seconds})})
                except Exception as error:  # no host compiler or Triton, or attention that has no such kernel
                    show({"shape": name, "pytorch": way, "failed": f"{type(error).__name__}: {str(error)[:200]}"})


main()
