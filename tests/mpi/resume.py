#!/usr/bin/env python3
"""Kills a random rank of `tawpipe train --backend mpi` with SIGKILL after a random step; the others must end by themselves with exit
code 3 and a message, and the run resumed from its last checkpoint must end with the same loss, bit for bit.
Not: other ways to fail (failure/). Usage: resume.py MPIEXEC NUMPROC_FLAG TAWPIPE KILLS (or TAWPIPE_KILLS in the environment)
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile

mpiexec, flag, tawpipe, kills = sys.argv[1:5]
kills = int(os.environ.get("TAWPIPE_KILLS", kills))
RANKS = 3
STEPS = 24
rng = random.Random(1)
folder = tempfile.mkdtemp(prefix="tawpipe-resume-")
text = os.path.join(folder, "text.txt")
with open(text, "w") as file:
    file.write("the quick brown fox jumps over the lazy dog. " * 200)


def command(result, *more):
    return [mpiexec, flag, str(RANKS), tawpipe, "train", "--backend", "mpi", "--cluster", "2+1", "--schedule", "tawpipe",
            "--model", "llama-4x64", "--data", text, "--sequence", "64", "--global-batch", "12", "--steps", str(STEPS),
            "--warmup", "4", "--json", result, *more]


def losses(result):
    with open(result) as file:
        return json.load(file)["losses"]


def ranks_of(launcher):
    """The rank processes: the launcher's children."""
    with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


whole = os.path.join(folder, "whole.json")
subprocess.run(command(whole), check=True, stdout=subprocess.DEVNULL)
expected = losses(whole)
killed = 0
for attempt in range(kills):
    run = os.path.join(folder, f"run{attempt}")
    result = os.path.join(folder, f"run{attempt}.json")
    launcher = subprocess.Popen(command(result, "--save", run, "--save-every", "2", "--log-every", "1"), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    last = rng.randrange(1, STEPS - 2)
    for line in launcher.stdout:
        if line.startswith("step") and int(line.split()[1].split("/")[0]) >= last:
            break
    victims = ranks_of(launcher) if launcher.poll() is None else []
    if victims:
        os.kill(rng.choice(victims), signal.SIGKILL)
    try:
        _, errors = launcher.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        launcher.kill()
        sys.exit(f"kill {attempt}: the other ranks still run after 200 s")
    if launcher.returncode == 0:
        continue  # it had ended before
    resumed = []
    if os.path.exists(os.path.join(run, "latest")):
        with open(os.path.join(run, "latest")) as file:
            if int(file.read().split("-")[1]) == STEPS:
                continue  # behind the last checkpoint: nothing was left to train, and perhaps nobody left to notice
        resumed = ["--resume", run]
    if "tawpipe: rank" not in errors:
        sys.exit(f"kill {attempt}: no rank said why it ended:\n{errors}")
    subprocess.run(command(result, *resumed), check=True, stdout=subprocess.DEVNULL)
    found = losses(result)
    killed += 1
    if found != expected[STEPS - len(found):]:
        sys.exit(f"kill {attempt}: the resumed run ends with {found[-1]!r} instead of {expected[-1]!r}")
print(f"{killed} of {kills} runs were killed before their end; all resumed to the same bits")
