#!/usr/bin/env python3
"""Training steps of whole small models by PyTorch and transformers on one GPU, as JSON lines: what the host's calls cost.

step_pytorch.py: for each model and number of tokens a microbatch (one sequence): seconds of a microbatch's forward and backward
(end to end), those in which the GPU computes (the sum of its kernels), kernels launched, seconds of an AdamW step, peak memory.
With few tokens a microbatch takes the host's time; with many the kernels'. bf16 weights and gradients, eager, with each layer
compiled, and by FSDP2 over this one GPU (float32 weights, computed with in bf16), whose hooks and copies cost as over several.
Exit 77 without PyTorch, transformers or a GPU; --cpu tries the script itself, on small sizes.
"""
import json
import sys
import time

CPU = "--cpu" in sys.argv
try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)
if not CPU and not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU", file=sys.stderr)
    sys.exit(77)
DEVICE = "cpu" if CPU else "cuda"
REPEATS = 1 if CPU else 5

LLAMA = {"vocab_size": 32768, "rms_norm_eps": 1e-5}
MODELS = {
    # name: (configuration, sizes, tokens a microbatch, ways)
    "llama-1b": ("LlamaConfig", {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
                                 "num_key_value_heads": 8, "num_hidden_layers": 16},
                 (16, 512, 1024, 2048, 4096, 8192), ("eager", "compiled", "fsdp2")),
    "llama-8b-8-layers": ("LlamaConfig", {**LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                                          "num_key_value_heads": 8, "num_hidden_layers": 8},
                          (16, 1024, 4096, 8192), ("eager",)),
    "qwen3-30b-a3b-6-layers": ("Qwen3MoeConfig", {**LLAMA, "hidden_size": 2048, "intermediate_size": 6144,
                                                  "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
                                                  "norm_topk_prob": True, "num_attention_heads": 32, "num_key_value_heads": 4,
                                                  "head_dim": 128, "num_hidden_layers": 6},
                               (16, 1024, 4096, 8192), ("eager",)),
}


def synchronize():
    if not CPU:
        torch.cuda.synchronize()


def seconds(call):
    """Of one call, by the clock, the middle of REPEATS."""
    times = []
    for _ in range(REPEATS):
        synchronize()
        begin = time.perf_counter()
        call()
        synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def kernels_of(call):
    """Seconds in which kernels ran, one after another, and how many there were."""
    if CPU:
        return 0.0, 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        synchronize()
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(event.device_time for event in kernels) * 1e-6, len(kernels)


def sharded(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo" if CPU else "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = torch.distributed.init_device_mesh(DEVICE, (1,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def measure(name, way):
    kind, sizes, tokens_of, _ = MODELS[name]
    if CPU:
        sizes = {**sizes, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 4,
                 "num_key_value_heads": 2, **({"head_dim": 16, "moe_intermediate_size": 32, "num_experts": 8} if "Moe" in kind else {})}
        tokens_of = (16,)
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**sizes, max_position_embeddings=max(tokens_of), use_cache=False)
    with torch.device(DEVICE):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    if way == "compiled":
        for layer in model.model.layers:
            layer.compile(dynamic=False)
    if way == "fsdp2":
        model = sharded(model.float())
    optimizer = torch.optim.AdamW(model.parameters(), fused=not CPU)
    for tokens in tokens_of:
        if way != "eager" and tokens in (512, 4096):
            continue  # a compiler's time for each shape
        if not CPU:
            torch.cuda.reset_peak_memory_stats()
        torch._dynamo.reset()
        ids = torch.randint(sizes["vocab_size"], (1, tokens), device=DEVICE)

        def microbatch():
            model(input_ids=ids, labels=ids).loss.backward()

        for _ in range(3):
            microbatch()
        both, (busy, count) = seconds(microbatch), kernels_of(microbatch)
        print(json.dumps({
            "model": name, "layers": sizes["num_hidden_layers"], "tokens": tokens, "way": way, "forward_backward_seconds": both,
            "kernel_seconds": busy, "kernels": count, "optimizer_seconds": seconds(optimizer.step),
            "parameters": sum(one.numel() for one in model.parameters()),
            "peak_bytes": 0 if CPU else torch.cuda.max_memory_allocated(),
            "experts": str(getattr(config, "_experts_implementation", None))}), flush=True)


print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__,
                  "device": "cpu" if CPU else torch.cuda.get_device_name()}), flush=True)
for name, (_, _, _, ways) in MODELS.items():
    for way in ways:
        try:
            measure(name, way)
        except Exception as error:  # one way that this release lacks does not end the others
            print(json.dumps({"model": name, "way": way, "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
