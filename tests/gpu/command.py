#!/usr/bin/env python3
"""`tawpipe` on GPUs: command.py TAWPIPE RANKS.PY REFERENCE. Exit 77 without one.

All ranks on one GPU, a thread for each where there are two GPUs (the software GPU has as many as are asked for), and processes:
each trains as the host does, by graph and over a checkpoint too. Not: whether numbers are right (gpu_virtual, gpu_nccl and
`check-numerics` below hold them against a recorded run).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TAWPIPE, RANKS, REFERENCE = sys.argv[1:]
SOFTWARE = "software_gpu" in os.environ.get("LD_LIBRARY_PATH", "")
failed = 0


def check(holds, what):
    global failed
    if not holds:
        failed += 1
    print(("ok: " if holds else "FAILED: ") + what, flush=True)


def run(command, gpus=1, **settings):
    """settings: of the software GPU, by their names without SOFTWARE_GPU_."""
    more = {f"SOFTWARE_GPU_{name}": str(value) for name, value in settings.items()}
    if SOFTWARE:
        more["SOFTWARE_GPUS"] = str(gpus)
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=dict(os.environ, **more))
    return done.returncode, done.stdout, done.stderr


def flags(folder, steps, *more):
    return ["train", "--model", "llama-4x32", "--data", str(folder / "text.txt"), "--sequence", "16", "--global-batch", "8",
            "--warmup", "2", "--steps", str(steps), "--decay-steps", "8", *more]


def train(folder, what, *more, steps=5, gpus=1, processes=0, **settings):
    """The losses; processes: a rank each, as torchrun starts them."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    start = [sys.executable, RANKS, str(processes)] if processes else []
    code, out, err = run([*start, TAWPIPE, *flags(folder, steps, "--json", str(result), *more)], gpus, **settings)
    check(code == 0 and result.exists(), f"{what}: code {code}{'' if code == 0 else ': ' + err[-2000:] + out[-2000:]}")
    return json.loads(result.read_text())["losses"] if result.exists() else []


def two_gpus():
    if SOFTWARE:
        return True
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return listed.count("GPU ") > 1


def near(losses, expected, tolerance):
    return len(losses) == len(expected) > 0 and all(abs(a - b) <= tolerance * b for a, b in zip(losses, expected))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)
        cuda = ("--backend", "cuda", "--cluster")
        code, out, err = run([TAWPIPE, *flags(folder, 1, *cuda, "1x1", "--gpus", "1")])
        if "no CUDA device was found" in err:
            print(f"skipped: {err.strip()}")
            return 77
        host = train(folder, "host", "--cluster", "2x2")
        virtual = train(folder, "4 virtual ranks", *cuda, "2x2", "--gpus", "1")
        check(near(virtual, host, 1e-5), "virtual ranks train as the host does")
        check(train(folder, "by graph", *cuda, "2x2", "--gpus", "1", "--graph") == virtual, "a graph gives the same bits")
        chunked = train(folder, "a loss in chunks", *cuda, "2x2", "--gpus", "1", "--loss-chunk", "20")
        check(near(chunked, host, 1e-5), "a loss in chunks trains alike")
        tried = train(folder, "tried GEMMs", *cuda, "1x2", "--gpus", "1", "--try-gemms")
        check(near(tried, host, 1e-5), "products that were tried train alike")
        for dtype in ("bf16", "f16"):
            rounded = train(folder, dtype, *cuda, "1x2", "--gpus", "1", "--dtype", dtype)
            check(near(rounded, host, 0.02), f"{dtype} follows: {rounded}, {host}")
        code, out, err = run([TAWPIPE, *flags(folder, 1, *cuda, "1x1", "--dtype", "bf16", "--sequence", "15")])
        check(code == 0 and "plain kernels" in err and "at least 15 times as long" in err, f"slow attention is told of: {err.strip()}")

        if two_gpus():
            threads = train(folder, "2 threads", *cuda, "1x2", gpus=2)
            check(near(threads, host, 1e-5), "threads over NCCL train as the host does")
            code, out, err = run([TAWPIPE, *flags(folder, 1, *cuda, "1x2", "--graph")], gpus=2)
            check(code == 2 and "wait for each other in the driver" in err, f"graphs of two GPUs in a process are refused: {err.strip()}")
        processes = train(folder, "2 processes", *cuda, "1+1", processes=2)
        check(near(processes, host, 1e-5), "processes over NCCL train as the host does")
        capped = train(folder, "communications on 2 processors", *cuda, "1x2", "--max-ctas", "2", gpus=2, processes=2, SMS=2)
        check(capped == processes, "a cap of processors changes no bits")
        windows = ("--schedule", "fsdp", "--zero-cta")
        if two_gpus():
            plain = train(folder, "fsdp", *cuda, "1x2", *windows[:2], gpus=2)
            copied = train(folder, "fsdp without SMs", *cuda, "1x2", *windows, gpus=2)
            check(copied == plain, "gathers in windows change no bits")
            gathers = json.loads((folder / "result.json").read_text())["all_gathers"]
            check(gathers["in_iteration"] == gathers["in_windows"] > 0, f"all gathers are in windows: {gathers}")
        code, out, err = run([TAWPIPE, *flags(folder, 1, *cuda, "1x2", "--gpus", "1", *windows)])
        check(code == 2 and "a GPU each" in err, f"virtual ranks have no windows: {err.strip()}")
        code, out, err = run([TAWPIPE, *flags(folder, 1, "--cluster", "1x2", *windows)])
        check(code == 2 and "--zero-cta is for --backend cuda" in err, f"nor has the host: {err.strip()}")
        if SOFTWARE:
            code, out, err = run([TAWPIPE, *flags(folder, 1, *cuda, "1x2", *windows)], gpus=2, NCCL_VERSION="2.27.3")
            check(code == 2 and "need NCCL 2.28 or later" in err and "NCCL 2.27.3" in err, f"nor has an older NCCL: {err.strip()}")
        near_graph = train(folder, "2 processes of a host by graph", *cuda, "1x2", "--graph", gpus=2, processes=2)
        check(near_graph == processes, "a graph with NCCL gives the same bits")
        memory = json.loads((folder / "result.json").read_text())["gpu_memory"]
        check(0 < memory["communicators"] < 10 and memory["free_after_connecting_bytes"] < memory["free_before_connecting_bytes"],
              f"the report has the memory of communicators: {memory}")
        start = [sys.executable, RANKS, "2", TAWPIPE, *flags(folder, 2, *cuda, "1+1", "--graph")]
        code, out, err = run(start)
        check(code == 0 and "task by task, not by graph" in out, f"messages between hosts go without a graph: code {code}")
        train(folder, "3 steps of processes", *cuda, "1+1", "--save", str(folder / "run"), steps=3, processes=2)
        rest = train(folder, "the rest on virtual ranks", *cuda, "2x2", "--gpus", "1", "--resume", str(folder / "run"))
        check(near(rest, host[3:], 1e-5), "a checkpoint of processes goes on with virtual ranks")

        timeline, plan, costs = (str(folder / name) for name in ("t.csv", "s.json", "costs.json"))
        train(folder, "with a timeline", *cuda, "1x2", "--timeline", timeline, "--schedule-out", plan, steps=2, gpus=2)
        code, out, err = run([TAWPIPE, "calibrate", "--timeline", timeline, "--schedule-file", plan, "--cluster", "1x2", "--out", costs])
        check(code == 0, f"calibrate from it: code {code} {err.strip()}")
        code, out, err = run([TAWPIPE, "simulate", "--schedule-file", plan, "--cluster", "1x2", "--cost", "measured:" + costs,
                              "--json", "-"])
        check(code == 0 and json.loads(out)["makespan_s"] > 0, f"simulate by it: code {code} {err.strip()}")

        for schedule in ("tawpipe", "weipipe", "fsdp", "zb-h1"):
            code, out, err = run([TAWPIPE, "check-numerics", "--backend", "cuda", "--gpus", "1", "--cluster", "2x2", "--schedule",
                                  schedule, "--reference", REFERENCE])
            check(code == 0, f"check-numerics {schedule}: code {code}{'' if code == 0 else ': ' + out + err}")
        if SOFTWARE:
            slow = ("--schedule", "1f1b", "--task-limit", "10", "--connect-limit")
            train(folder, "connecting takes longer than a task may", *cuda, "1x2", *slow, "100", gpus=2, processes=2, CONNECT_SECONDS=15)
            start = [sys.executable, RANKS, "2", TAWPIPE, *flags(folder, 2, *cuda, "1x2", *slow, "10")]
            code, out, err = run(start, gpus=2, CONNECT_SECONDS=100)
            check(code == 3, f"connecting has a limit of its own: code {code}: {(out + err)[-300:]}")
        code, out, err = run([TAWPIPE, *flags(folder, 2, *cuda, "1x2", "--gpus", "4")], gpus=2)
        check(code == 2 and "--gpus" in err, f"more GPUs than there are: {err.strip()}")
    return 1 if failed else 0


sys.exit(main())
