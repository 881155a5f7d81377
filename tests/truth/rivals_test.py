#!/usr/bin/env python3
"""The adapters of Calculon and SimuMax where there is a clone of theirs: what their authors publish of a run comes out of the row that
says it. Skips with a word without TAWPIPE_CALCULON and TAWPIPE_SIMUMAX, the folders of the clones, or without what these import.
Not: scores (score_test.py)."""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "truth"
sys.path.insert(0, str(BENCH))
from score import COLUMNS  # noqa: E402

# Seconds and GiB: `calculon llm-validation` (megatron-22B, full: 1.40 s, 48.15 GiB); SimuMax, docs/b200/b200_release_v1.2_summary.md
# (llama3_70b_l12_tp1_pp2_dp4_mbc4_cef: 828.76 ms, 66.44 GiB).
KNOWN = {
    "calculon": ("TAWPIPE_CALCULON", 1.40, 48.15, {
        "row": "22b", "hardware": "A100 80GB", "gpus": 8, "model": "megatron_22b", "params_b": 22, "layers": 48, "hidden": 6144, "heads": 64,
        "ffn": 24576, "sequence": 2048, "global_batch": 4, "micro_batch": 4, "tp": 8, "sp": 0, "zero": "none", "precision": "16-bit", "recompute": "full"}),
    "simumax": ("TAWPIPE_SIMUMAX", 0.82876, 66.44, {
        "row": "70b", "hardware": "B200 SXM", "gpus": 8, "model": "llama3-70b_l12", "layers": 12, "hidden": 8192, "heads": 64, "kv_heads": 8,
        "ffn": 28672, "vocab": 128256, "sequence": 4096, "global_batch": 16, "micro_batch": 1, "tp": 1, "pp": 2, "sp": 0, "zero": "1",
        "precision": "BF16", "recompute": "none", "schedule": "1F1B", "overlap_flags": "overlap off", "memory_kind": "allocated"})}

ran = 0
for tool, (variable, seconds, gib, row) in KNOWN.items():
    path = os.environ.get(variable)
    if not path:
        print(f"skipped: {variable} names no clone of {tool}")
        continue
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/table.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerow({"source": "published", **row})
        done = subprocess.run([sys.executable, BENCH / f"{tool}_rows.py", f"{folder}/table.csv", "--path", path], capture_output=True, text=True)
    if "No module named" in done.stderr:
        print(f"skipped: {done.stderr.strip()}")
        continue
    assert done.returncode == 0, done
    said = next(csv.DictReader(done.stdout.splitlines()))
    assert abs(float(said["seconds"]) / seconds - 1) < 0.005 and abs(float(said["gib"]) / gib - 1) < 0.005, (tool, said, done.stderr)
    ran += 1
sys.exit(0 if ran else 77)
