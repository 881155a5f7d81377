#!/usr/bin/env python3
"""Stops runs of `tawpipe train --backend mpi` at random moments, from their first instruction on: SIGKILL or SIGSTOP to one rank,
SIGTERM or SIGINT to the launcher. All processes must end by themselves, with a code that says so; the run resumed from its last
checkpoint must end with the same losses, bit for bit; and nothing may be left beside the checkpoints.
Not: other ways to fail (failure/). Usage: kills.py MPIEXEC NUMPROC_FLAG TAWPIPE KILLS (or TAWPIPE_KILLS in the environment)
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

mpiexec, flag, tawpipe, kills = sys.argv[1:5]
kills = int(os.environ.get("TAWPIPE_KILLS", kills))
RANKS = 3
STEPS = 24
LIMIT = 200  # seconds: for what hangs; how long the end took is printed
OPEN_MPI_LIMIT = 30  # seconds for a launcher without ranks: stopped while it starts, Open MPI's can wait for its own lock forever
rng = random.Random(1)
folder = tempfile.mkdtemp(prefix="tawpipe-kills-")
text = os.path.join(folder, "text.txt")
with open(text, "w") as file:
    file.write("the quick brown fox jumps over the lazy dog. " * 200)


def command(result, *more):
    return [mpiexec, flag, str(RANKS), tawpipe, "train", "--backend", "mpi", "--cluster", "2+1", "--schedule", "tawpipe",
            "--model", "llama-4x64", "--data", text, "--sequence", "64", "--global-batch", "12", "--steps", str(STEPS),
            "--warmup", "4", "--connect-limit", "20", "--json", result, *more]


def losses(result):
    with open(result) as file:
        return json.load(file)["losses"]


def runs_tawpipe(pid):
    """Not before its first instruction: what the launcher has forked and not yet replaced is the launcher's own."""
    try:
        return os.path.samefile(f"/proc/{pid}/exe", tawpipe)
    except OSError:
        return False


def ranks_of(launcher):
    """The rank processes: the launcher's children."""
    try:
        with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children") as file:
            return [pid for pid in map(int, file.read().split()) if runs_tawpipe(pid)]
    except OSError:
        return []


def is_there(pid):
    """Whether a process runs on: one that has ended and is not yet waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def fail(attempt, what, *more):
    sys.exit("\n".join([f"stop {attempt}: {what}", *more]))


begin = time.monotonic()
whole = os.path.join(folder, "whole.json")
subprocess.run(command(whole), check=True, stdout=subprocess.DEVNULL)
length = time.monotonic() - begin
expected = losses(whole)
stopped = 0
longest = 0.0
for attempt in range(kills):
    kind = [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT][attempt % 4]
    run = os.path.join(folder, f"run{attempt}")
    result = os.path.join(folder, f"run{attempt}.json")
    errors_path = os.path.join(folder, f"errors{attempt}")
    with open(errors_path, "w") as errors_file:
        launcher = subprocess.Popen(command(result, "--save", run, "--save-every", "2"), stdout=subprocess.DEVNULL,
                                    stderr=errors_file)
    moment = rng.uniform(0, 1.2 * length) if attempt % 2 else rng.uniform(0, 0.4 * length)
    time.sleep(moment)
    ranks = ranks_of(launcher)
    to_rank = kind in (signal.SIGKILL, signal.SIGSTOP)
    if launcher.poll() is not None or (to_rank and not ranks):
        launcher.wait(LIMIT)
        continue  # it had ended before, or not begun
    victim = rng.choice(ranks) if to_rank else launcher.pid
    os.kill(victim, kind)
    begin = time.monotonic()
    seen = begin  # when a rank was last there
    while launcher.poll() is None or any(is_there(rank) for rank in ranks):
        now = time.monotonic()
        if any(is_there(rank) for rank in [*ranks, *ranks_of(launcher)]):
            seen = now
        if now - seen > OPEN_MPI_LIMIT:
            print(f"the launcher is left without ranks for {OPEN_MPI_LIMIT} s, and killed")
            launcher.kill()
            launcher.wait()
        elif now - begin > LIMIT:
            launcher.kill()
            fail(attempt, f"after {kind.name} at {moment:.2f} s some process still runs after {LIMIT} s")
        time.sleep(0.01)
    code = launcher.returncode
    took = time.monotonic() - begin
    longest = max(longest, took)
    with open(errors_path) as errors_file:
        errors = errors_file.read()
    print(f"{kind.name} at {moment:.2f} s: all ended {took:.1f} s later with code {code}")
    if code == 0:
        continue  # nobody was left to notice
    resumed = []
    if os.path.exists(run):
        leftovers = [name for name in os.listdir(run) if not name.startswith("step-") and name not in ("latest", "lock")]
        if leftovers:
            fail(attempt, f"{leftovers} left in the run's folder")
        if os.path.exists(os.path.join(run, "latest")):
            resumed = ["--resume", run]
    left = [name for name in os.listdir(folder) if name.endswith(".part")]
    if left and kind != signal.SIGKILL:
        fail(attempt, f"{left} left by {kind.name}", errors)
    if resumed:
        with open(os.path.join(run, "latest")) as file:
            if int(file.read().split("-")[1]) == STEPS:
                continue  # after the last checkpoint: nothing was left to train
    again = subprocess.run(command(result, *resumed), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if again.returncode != 0:
        fail(attempt, f"what {kind.name} stopped does not go on:", again.stderr)
    found = losses(result)
    stopped += 1
    if found != expected[STEPS - len(found):]:
        fail(attempt, f"the resumed run ends with {found[-1]!r} instead of {expected[-1]!r}")
    if any(name.endswith(".part") for name in os.listdir(folder)):
        fail(attempt, "the next run has left a .part file")
print(f"{stopped} of {kills} runs were stopped before their end; all resumed to the same bits; the last end took {longest:.1f} s")
