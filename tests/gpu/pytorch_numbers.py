#!/usr/bin/env python3
"""Trains a small decoder by PyTorch, in float64 and in bf16, and has PROGRAM compare: pytorch_numbers.py PROGRAM [--cpu].

What bf16 may be off by is what PyTorch's own bf16 is off by from float64 on this machine. Goes on in the environment of
tools/torch.sh where this Python has no PyTorch. Exit 77 without either, or without a GPU and --cpu.
Not: speed (bench/gpu/layer_pytorch.py).
"""
import array
import pathlib
import subprocess
import sys
import tempfile

import reference

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "torch"))
    import ranks

    ranks.use_torch()  # in the environment of tools/torch.sh, or ends
PROGRAM, CPU = sys.argv[1], "--cpu" in sys.argv
if not CPU and not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    sys.exit(77)
DEVICE = "cpu" if CPU else "cuda"

# Heads of 128, two queries for each key: what cuDNN's fused attention is for.
SIZES = {"n_layers": 4, "dim": 256, "n_heads": 2, "n_kv_heads": 1, "hidden": 512, "vocab_size": 256, "tied": 0, "head_dim": 128,
         "seq": 128, "micro_batch": 1, "n_micro": 8, "steps": 3}
if CPU:
    SIZES.update(seq=32, n_micro=4, steps=2)  # for the software GPU
CONSTANTS = {"rope_theta": 1e4, "norm_eps": 1e-5, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "lr": 1e-3}


def shapes():
    """In the order of tawpipe's ParameterOrder."""
    hidden, inner, key = SIZES["dim"], SIZES["hidden"], SIZES["n_kv_heads"] * SIZES["head_dim"]
    query = SIZES["n_heads"] * SIZES["head_dim"]
    yield "embedding.weight", (SIZES["vocab_size"], hidden)
    for i in range(SIZES["n_layers"]):
        for name, shape in (("attention.wq", (query, hidden)), ("attention.wk", (key, hidden)), ("attention.wv", (key, hidden)),
                            ("attention.wo", (hidden, query)), ("feed_forward.w1", (inner, hidden)),
                            ("feed_forward.w2", (hidden, inner)), ("feed_forward.w3", (inner, hidden)),
                            ("attention_norm", (hidden,)), ("ffn_norm", (hidden,))):
            yield f"decoders.{i}.{name}.weight", shape
    yield "norm.weight", (hidden,)
    yield "output.weight", (SIZES["vocab_size"], hidden)


def norm(x, gain):
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + CONSTANTS["norm_eps"])
    return (wide * scale).to(x.dtype) * gain


def rotate(x, heads):
    """[sequence, heads * size] as [1, heads, sequence, size], neighbouring pairs turned by their position."""
    size = SIZES["head_dim"]
    x = x.view(-1, heads, size).transpose(0, 1)
    steps = torch.arange(0, size, 2, dtype=torch.float64) / size
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), CONSTANTS["rope_theta"] ** -steps).to(DEVICE)
    wide = x if x.dtype == torch.float64 else x.float()
    cos, sin = angles.cos().to(wide.dtype), angles.sin().to(wide.dtype)
    even, odd = wide[..., 0::2], wide[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype).unsqueeze(0)


def attention(query, key, value):
    """Causal, of [1, heads, sequence, size]. PyTorch before 2.5 has no kernel that takes grouped queries: scores are made then."""
    group = query.shape[1] // key.shape[1]
    if torch.__version__ >= torch.torch_version.TorchVersion("2.5"):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=group > 1)
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(-1, -2) / SIZES["head_dim"] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return wide.masked_fill(later, float("-inf")).softmax(-1).to(query.dtype) @ value


def loss_of(weights, tokens, targets):
    heads, kv_heads, size = SIZES["n_heads"], SIZES["n_kv_heads"], SIZES["head_dim"]
    x = weights["embedding.weight"][tokens]
    for i in range(SIZES["n_layers"]):
        w = lambda name: weights[f"decoders.{i}.{name}.weight"]
        y = norm(x, w("attention_norm"))
        query, key = rotate(y @ w("attention.wq").T, heads), rotate(y @ w("attention.wk").T, kv_heads)
        value = (y @ w("attention.wv").T).view(-1, kv_heads, size).transpose(0, 1).unsqueeze(0)
        y = attention(query, key, value)
        x = x + y.squeeze(0).transpose(0, 1).reshape(-1, heads * size) @ w("attention.wo").T
        y = norm(x, w("ffn_norm"))
        x = x + (F.silu(y @ w("feed_forward.w1").T) * (y @ w("feed_forward.w3").T)) @ w("feed_forward.w2").T
    logits = norm(x, weights["norm.weight"]) @ weights["output.weight"].T
    return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), targets)


def train(initial, tokens, targets, dtype):
    """Losses [step, microbatch], mean gradients of the first step, weights at the end, the sums and states as wide as can be."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    master = {name: value.to(wide).to(DEVICE) for name, value in initial.items()}
    first, second = ({name: torch.zeros_like(value) for name, value in master.items()} for _ in range(2))
    losses, gradients = [], None
    for step in range(1, SIZES["steps"] + 1):
        weights = {name: value.to(dtype).clone().requires_grad_() for name, value in master.items()}
        sums = {name: torch.zeros_like(value) for name, value in master.items()}
        for m in range(SIZES["n_micro"]):
            loss = loss_of(weights, tokens[m], targets[m])
            for name, gradient in zip(weights, torch.autograd.grad(loss, list(weights.values()))):
                sums[name] += gradient.to(wide) / SIZES["n_micro"]
            losses.append(loss.item())
        gradients = gradients or {name: value.clone() for name, value in sums.items()}
        for name, value in master.items():
            rate, g = CONSTANTS["lr"], sums[name]
            first[name].mul_(CONSTANTS["beta1"]).add_(g, alpha=1 - CONSTANTS["beta1"])
            second[name].mul_(CONSTANTS["beta2"]).addcmul_(g, g, value=1 - CONSTANTS["beta2"])
            root = (second[name] / (1 - CONSTANTS["beta2"] ** step)).sqrt() + CONSTANTS["eps"]
            if value.dim() > 1:
                value.mul_(1 - rate * CONSTANTS["weight_decay"])
            value.addcdiv_(first[name], root, value=-rate / (1 - CONSTANTS["beta1"] ** step))
    return losses, gradients, master


def off(found, wanted):
    """The difference's norm over the wanted one's."""
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def main():
    torch.manual_seed(0)
    initial = {}
    for name, shape in shapes():
        drawn = torch.randn(shape) * 0.05 if len(shape) > 1 else 1 + 0.1 * torch.randn(shape)
        initial[name] = drawn.to(torch.bfloat16)
    ids = torch.randint(0, SIZES["vocab_size"], (2, SIZES["n_micro"], SIZES["seq"]))
    tokens, targets = ids.to(DEVICE)
    losses, gradients, weights = train(initial, tokens, targets, torch.float64)
    rounded_losses, rounded_gradients, rounded_weights = train(initial, tokens, targets, torch.bfloat16)
    numbers = {**SIZES, **CONSTANTS, "loss_off": max(abs(a - b) for a, b in zip(losses, rounded_losses))}
    arrays = [("tokens", array.array("i", ids[0].flatten().tolist())), ("targets", array.array("i", ids[1].flatten().tolist())),
              ("losses", array.array("d", losses))]
    for name in initial:
        numbers[f"gradient_off/{name}"] = off(rounded_gradients[name], gradients[name])
        for kind, value in (("init", initial[name]), ("gradient", gradients[name]), ("last", weights[name])):
            arrays.append((f"{kind}/{name}", array.array("d", value.double().flatten().tolist())))
    # Of all together: a step of Adam is as long for a gradient near 0, whose sign is chance, as for any other.
    change = lambda last: torch.cat([(last[name] - initial[name].to(DEVICE)).double().flatten() for name in initial])
    numbers["change_off"] = off(change(rounded_weights), change(weights))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "pytorch.reference"
        reference.write(file, numbers, arrays)
        print(f"PyTorch {torch.__version__} on {DEVICE}: bf16 is off by {numbers['loss_off']:.1e} in losses", flush=True)
        return subprocess.run([PROGRAM, str(file)]).returncode


sys.exit(main())
