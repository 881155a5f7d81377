#!/usr/bin/env python3
"""Plans beside layouts that people chose: vendors' recipes and their neighbours, by the same simulator.

Usage: bench/recipes.py [TAWPIPE] [PROBLEM...]

Prints, for each problem, how long the plan took to find, its step, and the best of the layouts with its step. A layout
that does not fit, or that a batch does not divide, is left out and counted. Exit 1 where a layout beats a plan by more
than 0.01 %.

Layouts: NVIDIA's recipes (Megatron-Bridge and NeMo, performance recipes of Llama 3, GPT-3, Mixtral, Qwen3 and DeepSeek-V3;
Meta's of 405B, arXiv:2407.21783, table 4), each also with half and twice the chunks and the recomputation that fits.
"""
import json
import subprocess
import sys
import time

OVERLAP = ["--overlap-grad-reduce", "on", "--overlap-param-gather", "on", "--tp-comm-overlap", "on", "--usable-memory", "0.85"]
# name: cluster, nodes' devices together, model, sequence, global batch; layouts: TP, CP, EP, PP, chunks, microbatch
PROBLEMS = {
    "8B on 16": ("dgx-h100*2", 16, "llama-3-8b", 8192, 128, [(1, 1, 1, 1, 1, 1), (1, 2, 1, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1, 1, 1, 2, 4, 1)]),
    "70B on 64": ("dgx-h100*8", 64, "llama-3-70b", 8192, 128, [(4, 2, 1, 4, 5, 1), (8, 1, 1, 4, 5, 1), (4, 1, 1, 4, 10, 1), (8, 2, 1, 2, 4, 1)]),
    "GPT-3 on 128": ("dgx-h100*16", 128, "gpt-3-175b", 2048, 256, [(4, 1, 1, 8, 6, 1), (4, 1, 1, 8, 6, 2), (8, 1, 1, 8, 6, 2), (8, 1, 1, 16, 6, 1)]),
    "405B on 576": ("dgx-h100*72", 576, "llama-3-405b", 8192, 252, [(8, 2, 1, 9, 7, 1), (8, 1, 1, 9, 7, 1), (8, 1, 1, 18, 7, 1), (8, 2, 1, 18, 7, 1)]),
    "405B on 1,024": ("dgx-h100*128", 1024, "llama-3-405b", 8192, 512, [(8, 2, 1, 8, 8, 1), (8, 1, 1, 16, 8, 1), (8, 2, 1, 16, 8, 1), (8, 1, 1, 8, 8, 1)]),
    "405B on 16,384": ("dgx-h100*2048", 16384, "llama-3-405b", 8192, 2048, [(8, 1, 1, 16, 8, 1), (8, 2, 1, 16, 8, 1), (8, 2, 1, 8, 8, 1), (8, 4, 1, 16, 8, 1)]),
    "Mixtral 8x7B on 64": ("dgx-h100*8", 64, "mixtral-8x7b", 4096, 256, [(1, 1, 8, 4, 8, 1), (2, 1, 4, 4, 8, 1), (1, 1, 8, 1, 1, 1), (1, 1, 8, 2, 8, 1)]),
    "Qwen3 235B on 256": ("dgx-h100*32", 256, "qwen3-235b-a22b", 4096, 2048, [(2, 1, 16, 8, 4, 1), (2, 1, 8, 8, 4, 1), (1, 1, 16, 8, 4, 1), (4, 1, 8, 8, 4, 1)]),
    "DeepSeek-V3 on 1,024": ("dgx-h100*128", 1024, "deepseek-v3", 4096, 8192, [(1, 1, 64, 16, 4, 1), (2, 1, 32, 16, 4, 1), (2, 1, 32, 8, 8, 1), (1, 1, 64, 8, 4, 1)]),
}


def run(command: list) -> tuple:
    begin = time.perf_counter()
    done = subprocess.run(command + ["--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    text = done.stdout.decode()
    return (json.loads(text) if text.startswith("{") else None), time.perf_counter() - begin, done.stderr.decode().strip()


def variants(layout: tuple):
    tensor, context, expert, pipeline, chunks, size = layout
    for many in sorted({chunks, max(1, chunks // 2), 2 * chunks} if pipeline > 1 else {1}):
        for recompute in ("none", "selective", "full"):
            yield tensor, context, expert, pipeline, many, size, recompute


def step_of(tawpipe: str, problem: list, devices: int, layout: tuple):
    tensor, context, expert, pipeline, chunks, size, recompute = layout
    if devices % (tensor * context * expert * pipeline):
        return None
    schedule = ["--schedule", "ddp"] if pipeline == 1 else ["--schedule", "1f1b", "--option", "overlap=on"] if chunks == 1 else [
        "--schedule", "interleaved-1f1b", "--option", f"chunks={chunks}"]
    answer, _, _ = run([tawpipe, "simulate", *schedule, *problem, *OVERLAP, "--tensor-parallel", str(tensor), "--context-parallel",
                        str(context), *(["--expert-parallel", str(tensor * context * expert)] if expert > 1 else []),
                        "--data-parallel", str(devices // (tensor * context * expert * pipeline)), "--microbatch", str(size),
                        "--recompute", recompute])
    return None if answer is None or answer["out_of_memory"] else answer["makespan_s"]


def main() -> int:
    tawpipe = sys.argv[1] if len(sys.argv) > 1 else "build/bin/tawpipe"
    beaten = False
    print(f"{'problem':22} {'found in':>9} {'plan':>9} {'best layout':>12}")
    for name, (cluster, devices, model, sequence, batch, layouts) in PROBLEMS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        problem = ["--cluster", cluster, "--model", model, "--sequence", str(sequence), "--global-batch", str(batch)]
        answer, seconds, error = run([tawpipe, "plan", *problem])
        if answer is None:
            print(f"{name}: {error}")
            return 1
        plan = answer["plans"][0]["makespan_s"]
        known = {layout: step_of(tawpipe, problem, devices, layout) for one in layouts for layout in variants(one)}
        fit = {layout: step for layout, step in known.items() if step is not None}
        best = min(fit, key=fit.get, default=None)
        text = "none fits" if best is None else f"{fit[best]:12.4f}  TP{best[0]} CP{best[1]} EP{best[2]} PP{best[3]} VP{best[4]} {best[6]}"
        print(f"{name:22} {seconds:7.1f} s {plan:9.4f} {text}; {len(fit)} of {len(known)} fit", flush=True)
        beaten = beaten or (best is not None and fit[best] < plan * 0.9999)
    return 1 if beaten else 0


if __name__ == "__main__":
    sys.exit(main())
