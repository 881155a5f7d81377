#!/usr/bin/env python3
"""Ranks that were started with different things: none trains, all end with code 2, and one line says who has what.
Not: ranks that fail later (failure/, kills.py). Usage: agreement.py MPIEXEC NUMPROC_FLAG TAWPIPE
"""
import os
import subprocess
import sys
import tempfile

mpiexec, flag, tawpipe = sys.argv[1:4]
folder = tempfile.mkdtemp(prefix="tawpipe-agreement-")


def path(name):
    return os.path.join(folder, name)


def write(name, text):
    with open(path(name), "w") as file:
        file.write(text)


write("text", "the quick brown fox jumps over the lazy dog. " * 100)
write("other", "the quick brown fox jumps over the lazy cat. " * 100)


def rank(**changes):
    flags = {"--model": "llama-2x64", "--data": path("text"), "--sequence": "32", "--global-batch": "4", "--steps": "2",
             "--warmup": "1", "--cluster": "1x2", **{"--" + name.replace("_", "-"): value for name, value in changes.items()}}
    return [tawpipe, "train", "--backend", "mpi", *(word for pair in flags.items() if pair[1] is not None for word in pair)]


def run(first, second):
    command = [mpiexec, flag, "1", *first, ":", flag, "1", *second]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def check(second, *words, first=None):
    result = run(first or rank(), rank(**second))
    errors = [line for line in result.stderr.splitlines() if line.startswith("tawpipe: ") and "tawpipe: note: " not in line]
    if result.returncode != 2 or "step" in result.stdout or len(errors) != 1 or not all(word in errors[0] for word in words):
        sys.exit(f"{second}: code {result.returncode}, expected 2 and one line with {words}:\n{result.stdout}{result.stderr}")


fine = run(rank(save=path("a")), rank(save=path("a")))
if fine.returncode != 0:
    sys.exit(f"equal ranks do not train:\n{fine.stdout}{fine.stderr}")
if run(rank(save=path("b"), seed="5"), rank(save=path("b"), seed="5")).returncode != 0:
    sys.exit("equal ranks do not train with --seed 5")
same = "; start all ranks with the same"
check({"learning_rate": "0.5"}, "rank 1 was started with --learning-rate 0.5, and rank 0 with 0.001" + same)
check({"steps": "3"}, "rank 1 was started with --steps 3, and rank 0 with 2" + same)
check({"dtype": "f64"}, "rank 1 was started with --dtype f64, and rank 0 with f32" + same)
check({"schedule": "1f1b"}, "rank 1 was started with --schedule 1f1b, and rank 0 with tawpipe" + same)
check({"data": path("other")}, "rank 1 was started with --data 4500 bytes, CRC-32 ", "and rank 0 with 4500 bytes, CRC-32 ")
check({"model": "llama-2x32"}, "rank 1 was started with --model 2 layers, hidden 32", "and rank 0 with 2 layers, hidden 64")
check({"data": path("missing")}, "cannot read", "missing")  # on rank 1 only
check({"steps": "4", "model": None, "resume": path("b"), "seed": None}, "rank 1 was started with --resume step 2, checkpoint ",
      first=rank(steps="4", model=None, resume=path("a")))
print("ranks that differ are refused")
