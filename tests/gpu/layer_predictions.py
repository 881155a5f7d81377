#!/usr/bin/env python3
"""The layers of bench_gpu_layer, predicted from what `tawpipe measure` found, and against PyTorch, as JSON lines.

layer_predictions.py TAWPIPE RESULTS [DIVISOR]: RESULTS/layer.jsonl has what was measured, RESULTS/measured.json the figures.
A prediction is of the middle one of three stages, each of one layer, as bench_gpu_layer measures it.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

TAWPIPE, RESULTS = sys.argv[1], pathlib.Path(sys.argv[2])
DIVISOR = int((sys.argv[3:] or ["1"])[0])


def predicted(folder, cost, sizes):
    hidden, intermediate, heads, kv_heads, sequence = (max(1, size // DIVISOR) for size in sizes)
    model, timeline = folder / "model.json", folder / "timeline.csv"
    model.write_text(json.dumps({
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "num_hidden_layers": 3, "vocab_size": 256, "max_position_embeddings": sequence,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
    device = json.loads((RESULTS / "measured.json").read_text())["device"]
    done = subprocess.run([TAWPIPE, "simulate", "--schedule", "gpipe", "--cluster", "1x3", "--device", device, "--model", model,
                           "--sequence", str(sequence), "--global-batch", "1", "--microbatch", "1", "--recompute", "none",
                           "--gradient-dtype", "float32", "--cost", cost, "--timeline", timeline], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {done.stderr}")
    with open(timeline) as rows:
        middle = [row for row in csv.DictReader(rows) if row["stage"] == "1" and row["op"] in ("forward", "backward")]
    return {f"{row['op']}_seconds": float(row["end_s"]) - float(row["start_s"]) for row in middle}


def main():
    lines = [json.loads(line) for line in (RESULTS / "layer.jsonl").read_text().splitlines()]
    ours = {one["shape"]: one for one in lines if "forward_seconds" in one}
    measured = RESULTS / "measured.json"
    costs = {"measured": f"kernels:file={measured}", "shipped": "kernels"} if measured.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        for shape, one in ours.items():
            both = one["forward_seconds"] + one["backward_seconds"]
            for kind, cost in costs.items():
                times = predicted(pathlib.Path(name), cost, one["sizes"])
                print(json.dumps({"predicted": shape, "by": kind, **times, "error": sum(times.values()) / both - 1}))
            for twin in lines:
                if twin.get("shape") == shape and "seconds" in twin:
                    print(json.dumps({"against": twin["pytorch"], "of": shape, "speed_of_ours": twin["seconds"] / both}))


main()
