#!/usr/bin/env python3
"""Steps of `tawpipe train` on one GPU beside those that `tawpipe simulate` predicts, as JSON lines.

training.py TAWPIPE MEASURED.JSON [DIVISOR]: predictions by the figures of `tawpipe measure`, and by the shipped ones; sizes by
DIVISOR smaller. A step is the middle one of those after the first two.
Exit 77 without a GPU. Not: whether the numbers are right (tests/gpu).
"""
import array
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

TAWPIPE, MEASURED = sys.argv[1:3]
DIVISOR = int((sys.argv[3:] or ["1"])[0])
VOCAB = 32768 // DIVISOR

# name: (hidden, intermediate, heads, key and value heads, layers), (sequence, sequences a step), flags of both, flags of train
SHAPES = {"2048": (2048, 8192, 32, 8, 6), "4096": (4096, 14336, 32, 8, 3)}
RUNS = [("2048", (4096, 8), (), ()), ("2048", (4096, 8), (), ("--graph", "--try-gemms")),
        ("2048", (4096, 8), ("--recompute", "full"), ("--try-gemms",)),
        ("2048", (4096, 8), ("--offload", "activations"), ("--try-gemms",)),
        ("2048", (512, 16), (), ()), ("2048", (512, 16), (), ("--graph",)), ("4096", (8192, 4), (), ("--try-gemms",))]


def seconds_of(steps):
    return sorted(steps[2:])[len(steps[2:]) // 2]


def main():
    device = json.loads(pathlib.Path(MEASURED).read_text())["device"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        random.seed(0)
        with open(folder / "tokens.bin", "wb") as out:
            array.array("H", random.choices(range(VOCAB), k=200000)).tofile(out)
        for shape, (sequence, batch), both, train in RUNS:
            hidden, inner, heads, kv_heads, layers = SHAPES[shape]
            divided = max(8, hidden // DIVISOR), max(8, inner // DIVISOR), max(2, heads // DIVISOR), max(1, kv_heads // DIVISOR)
            model, result = folder / "model.json", folder / "result.json"
            model.write_text(json.dumps({
                "model_type": "llama", "hidden_size": divided[0], "intermediate_size": divided[1], "num_attention_heads": divided[2],
                "num_key_value_heads": divided[3], "num_hidden_layers": layers, "vocab_size": VOCAB,
                "max_position_embeddings": sequence, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
            sizes = ["--model", model, "--sequence", str(max(8, sequence // DIVISOR)), "--global-batch", str(batch),
                     "--schedule", "1f1b", "--cluster", "1x1", *(("--recompute", "none") if not "--recompute" in both else ()), *both]
            begun = time.monotonic()
            done = subprocess.run([TAWPIPE, "train", "--backend", "cuda", "--gpus", "1", "--dtype", "bf16", "--steps", "8",
                                   "--data", folder / "tokens.bin", "--json", result, *sizes, *train], capture_output=True, text=True)
            whole = time.monotonic() - begun
            if "no CUDA device was found" in done.stderr:
                print(f"skipped: {done.stderr.strip()}", file=sys.stderr)
                return 77
            line = {"hidden": divided[0], "layers": layers, "sequence": sequence, "sequences": batch, "flags": [*both, *train]}
            if done.returncode != 0:
                print(json.dumps({**line, "error": done.stderr[-300:]}), flush=True)
                continue
            measured = json.loads(result.read_text())
            line["step_seconds"] = seconds_of(measured["step_seconds"])
            line["command_seconds"] = round(whole, 1)
            line["gpu_memory"] = measured.get("gpu_memory")
            for kind, cost in {"measured": f"kernels:file={MEASURED}", "shipped": "kernels"}.items():
                graphs = ("--cuda-graphs", "iteration") if "--graph" in train else ()
                told = subprocess.run([TAWPIPE, "simulate", "--device", device, "--layer-code", "tawpipe",
                                       "--gradient-dtype", "float32", "--cost", cost, "--json", "-", *sizes, *graphs],
                                      capture_output=True, text=True)
                if told.returncode != 0:
                    line[kind] = told.stderr[-300:]
                    continue
                said = json.loads(told.stdout)
                line[kind] = {"step_seconds": said["makespan_s"], "error": said["makespan_s"] / line["step_seconds"] - 1,
                              "peak_memory_bytes": max(said["peak_memory_bytes"])}
            print(json.dumps(line), flush=True)
    return 0


sys.exit(main())
