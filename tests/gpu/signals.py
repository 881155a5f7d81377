#!/usr/bin/env python3
"""`tawpipe train --backend cuda --save` on two GPUs that is told to stop, as processes by a signal to one of them, and as threads of
one: all end after the same step with its checkpoint, and the run resumed from there gives the losses of one that was never stopped.
Exit 77 without a GPU. Not: a run that fails (ranks.py --kill). Usage: signals.py TAWPIPE
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import ranks

TAWPIPE = sys.argv[1]
SOFTWARE = "software_gpu" in os.environ.get("LD_LIBRARY_PATH", "")
LIMIT = 400  # seconds: for what hangs


def start(folder, processes, steps, *more):
    """One process with a thread for each GPU, or a process for each."""
    command = [TAWPIPE, "train", "--backend", "cuda", "--cluster", "1x2" if processes == 1 else "1+1", "--model", "llama-4x32", "--data",
               str(folder / "text.txt"), "--sequence", "16", "--global-batch", "8", "--warmup", "2", "--decay-steps", "100",
               "--log-every", "1", "--steps", str(steps), *more]
    port = ranks.free_port()
    started = []
    for rank in range(processes):
        own = ranks.environment(rank, processes, port, ranks.gpus() < 2) if processes > 1 else dict(os.environ)
        own["SOFTWARE_GPUS"] = "2"
        with open(folder / f"err{rank}", "w") as errors:
            started.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=errors, text=True))
    return started


def end(started):
    for process in started:
        process.communicate(timeout=LIMIT)
    return [process.returncode for process in started]


def losses(folder, processes, steps, name, *more):
    codes = end(start(folder, processes, steps, "--json", str(folder / name), *more))
    assert set(codes) == {0}, (codes, (folder / "err0").read_text())
    return json.loads((folder / name).read_text())["losses"]


def check(processes, number):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)
        run = folder / "run"
        started = start(folder, processes, 100_000_000, "--save", str(run), "--json", str(folder / "run.json"))
        while not (line := started[0].stdout.readline()).startswith("step"):
            if not line:
                end(started)
                told = (folder / "err0").read_text()
                if "no CUDA device was found" in told:
                    print(f"skipped: {told.strip()}")
                    sys.exit(77)
                raise AssertionError(told)
        started[-1].send_signal(number)
        codes = end(started)
        told = (folder / "err0").read_text()
        assert set(codes) == {128 + number}, (codes, told)
        step = int((run / "latest").read_text().strip().removeprefix("step-"))
        assert told.count(f"stopped by {number.name} after step {step}; checkpoint {run}/step-{step:06}") == 1, told
        before = json.loads((folder / "run.json").read_text())["losses"]
        assert len(before) == step, (before, step)
        rest = losses(folder, processes, step + 2, "rest.json", "--resume", str(run))
        assert before + rest == losses(folder, processes, step + 2, "whole.json"), (before, rest)
        print(f"ok: {processes} processes, {number.name}: all ended after step {step}")


if not SOFTWARE and ranks.gpus() == 0:
    print("skipped: no CUDA device was found")
    sys.exit(77)
check(2, signal.SIGTERM)
if SOFTWARE or ranks.gpus() > 1:
    check(1, signal.SIGINT)
