#!/usr/bin/env python3
"""Which kernels `tawpipe train` multiplies with on a processor that OpenBLAS does not know: kernels.py TAWPIPE LIBRARY.

LIBRARY is tests/cli/unknown_processor.cpp. Skips (77) where the BLAS is not OpenBLAS, or where the processor has no AVX2.
"""
import json
import os
import pathlib
import subprocess
import sys

command, library = sys.argv[1:]
data = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/data/new_testament.txt"


def train(**variables):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"} | variables
    arguments = ["train", "--model", "llama-1x16", "--data", data, "--sequence", "16", "--global-batch", "2", "--steps", "1"]
    result = subprocess.run([command, *arguments, "--json", "-"], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result
    text = subprocess.run([command, *arguments], env=environment, capture_output=True, text=True).stdout
    gemms = json.loads(result.stdout)["gemms"]
    assert f"GEMMs by {gemms['library']}" in text and gemms["kernels"] in text, text
    return gemms


usual = train()
if not usual["library"].startswith("OpenBLAS"):
    print(f"skipped: the BLAS is {usual['library']}")
    sys.exit(77)
flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
if not {"avx2", "fma"} <= flags:
    print("skipped: the processor has no AVX2")
    sys.exit(77)
wide = "SkylakeX" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags else "Haswell"
assert train(LD_PRELOAD=library)["kernels"] == wide
assert train(LD_PRELOAD=library, OPENBLAS_CORETYPE="Nehalem")["kernels"] == "Nehalem"  # the user's own choice
