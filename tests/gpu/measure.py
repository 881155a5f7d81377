#!/usr/bin/env python3
"""`tawpipe measure` on a GPU: its file has what the format says, and predictions take it. Exit 77 without one.
On the software GPU the figures mean nothing. Usage: measure.py TAWPIPE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TAWPIPE = sys.argv[1]
SOFTWARE = "software_gpu" in os.environ.get("LD_LIBRARY_PATH", "")
ON = ["--largest", "64", "--device", "H100-80G"] if SOFTWARE else []


def run(*arguments):
    return subprocess.run([TAWPIPE, *arguments], capture_output=True, text=True, timeout=500)


def simulate(cost):
    done = run("simulate", "--schedule", "fsdp", "--cluster", "dgx-h100*1", "--model", "llama-3-8b", "--sequence", "8192",
               "--global-batch", "16", "--microbatch", "1", "--cost", cost, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["makespan_s"]


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "gpu.json"
    done = run("measure", *ON, "--out", str(path))
    if "no CUDA device was found" in done.stderr:
        assert done.returncode == 3 and not path.exists()
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(77)
    assert done.returncode == 0, done.stderr
    assert f"--cost kernels:file={path}" in done.stdout, done.stdout
    found = json.loads(path.read_text())
    figures = found["curves"]
    assert {"products", "inner-ramp", "weight-gradient", "even-rows", "odd-rows", "memory", "kernel-gap"} <= figures.keys(), figures
    assert all(0 < figures[name] <= 1 for name in ("products", "weight-gradient", "even-rows", "odd-rows", "memory")), figures
    assert all(kernel["seconds"] > 0 and kernel["fitted_seconds"] > 0 for kernel in found["kernels"])
    kinds = {kernel["kernel"] for kernel in found["kernels"]}
    assert {"product", "gradient of a weight", "memory", "attention", "attention backward"} == kinds, kinds
    assert min(found["host_link"].values()) > 0 and found["launch_seconds"] > 0

    by_hand = "kernels:" + ",".join(f"{name}={value!r}" for name, value in figures.items())
    assert simulate(f"kernels:file={path}") == simulate(by_hand)
    assert simulate(f"kernels:file={path},attention=0.7,attention-backward=0.7") < simulate(by_hand)
    refused = run("measure", *ON, "--gpu", "99", "--out", str(path) + "2")
    assert refused.returncode == 2 and "--gpu 99" in refused.stderr, refused.stderr
    refused = run("measure", "--largest", "100")
    assert refused.returncode == 2 and "multiple of 64" in refused.stderr, refused.stderr
    if SOFTWARE:
        refused = run("measure", "--largest", "64")
        assert refused.returncode == 2 and "--device" in refused.stderr, refused.stderr
    print(f"ok: {figures}")
