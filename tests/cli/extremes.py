#!/usr/bin/env python3
"""Sizes at the ends of what is legal, drawn at random from a fixed seed, over the commands that add up bytes, times, operations and
tokens: each answer is right or one line says what is too large. No figure is negative, has wrapped or stands at the limit of 64 bits,
and of twice the batch nothing is less.
Not: input that is wrong (hostile.py, bad_input_test.cpp). Usage: extremes.py TAWPIPE
"""
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

TAWPIPE = os.path.abspath(sys.argv[1])
LIMIT = 9.2e18  # of 64 bits
SIGNED = {"change", "gain", "saved", "slower", "lost", "faster", "left_gap", "gap"}
ABSENT = {"least_s", "memory_bytes", "makespan_s", "model"}
folder = tempfile.TemporaryDirectory(prefix="tawpipe-extremes-")
draws = random.Random(9)
run_draws = random.Random(5)
failures = 0


def write(name, value):
    path = os.path.join(folder.name, name)
    with open(path, "w") as file:
        json.dump(value, file)
    return path


def faults_of(value, key=""):
    """What is wrong with the numbers of an answer."""
    if isinstance(value, dict):
        return [fault for name, one in value.items() for fault in faults_of(one, name)]
    if isinstance(value, list):
        return [fault for one in value for fault in faults_of(one, key)]
    if value is None:
        return [] if key in ABSENT else [f"{key} is null"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return []
    if not math.isfinite(value):
        return [f"{key} is {value}"]
    if value < 0 and key not in SIGNED:
        return [f"{key} is {value}"]
    return [f"{key} is at the limit, {value}"] if isinstance(value, int) and value > LIMIT else []


def run(*words):
    """The answer of a command; None: refused. Counts a failure unless it is one of both, and fit to be shown."""
    global failures
    path = os.path.join(folder.name, "answer.json")
    json_flag = ["--json", path] if words[0] not in ("export",) else []
    done = subprocess.run([TAWPIPE, *map(str, words), *json_flag], capture_output=True, text=True, errors="replace", timeout=600)
    faults = []
    answer = None
    if done.returncode in (0, 1) and json_flag:
        with open(path) as file:
            answer = json.load(file)
        faults += faults_of(answer)
    elif done.returncode == 2:
        if len(done.stderr.splitlines()) != 1:
            faults.append("an error of several lines")
    elif done.returncode not in (0, 1):
        faults.append(f"code {done.returncode}")
    told = done.stdout + done.stderr
    for wrong in ("wait for each other", "9223372036854775807", "-9223372036854775808", "nan", "inf "):
        if wrong in told.replace(" ".join(map(str, words)), "") and wrong not in " ".join(map(str, words)):
            faults.append(f"says '{wrong}'")
    if re.search(r"(?<![\w.=])-\d", re.sub(r"-\d[\d.]*\s?%", "", done.stderr if done.returncode == 2 else done.stdout)):
        faults.append("a negative figure")
    if faults:
        failures += 1
        print("FAILED", " ".join(map(str, words)).replace(folder.name, "F"), *(f"\n       {fault}" for fault in faults[:5]),
              f"\n       {told.strip()[:300]}")
    return answer


def power(low, high):
    """A whole number, as likely near the one end as near the other."""
    return min(high, max(low, round(2 ** draws.uniform(math.log2(low), math.log2(high)))))


def cluster():
    if draws.random() < 0.5:
        return f"{power(1, 64)}x{draws.choice([1, 2, 8])}"
    return write("cluster.json", {"name": "drawn", "device": draws.choice(["A100-80G", "H100-80G", "A800-80G"]),
                                  "nodes": power(1, 64), "devices_per_node": draws.choice([1, 2, 8]),
                                  "intra_node": {"bandwidth": f"{power(1, 10**6)}GB/s", "latency_ps": power(1, 10**17)},
                                  "inter_node": {"bandwidth": f"{power(1, 10**9)}KB/s", "latency_ps": power(1, 10**17)}})


def model():
    if draws.random() < 0.5:
        return draws.choice(["llama-2-70b", "llama-3-405b", "deepseek-v3", f"llama-{power(1, 4096)}x64"])
    heads = 2 ** draws.randint(0, 7)
    return write("config.json", {"model_type": "llama", "num_hidden_layers": power(1, 1024), "hidden_size": heads * 128 * 2 ** draws.randint(0, 3),
                                 "num_attention_heads": heads, "intermediate_size": power(1, 1 << 19), "vocab_size": power(1, 1 << 22)})


def training_run():
    """Flags of a whole run."""
    return ["--train-tokens", run_draws.choice(["1", "15T", "1000000T"]), "--price", run_draws.choice(["0.001", "1e9USD"]),
            "--power", "300W", "--mtbf", f"{10 ** run_draws.randint(0, 15)}s", "--restart-time", f"{10 ** run_draws.randint(-2, 8)}s",
            "--repair-time", f"{10 ** run_draws.randint(-2, 8)}s", "--checkpoint", run_draws.choice(["async", "sync"]),
            "--checkpoint-bandwidth", f"{10 ** run_draws.randint(-3, 9)}GB/s", *run_draws.choice([[], ["--spare-nodes", "1000"]])]


def totals(summary):
    """Of which twice the batch has no less."""
    return {"makespan_ps": summary["makespan_ps"], "tasks": summary["tasks"], **summary["traffic"]}


def less(one, two):
    """What is less in the second."""
    return [key for key in one if isinstance(one[key], (int, float)) and not isinstance(one[key], bool) and two[key] < one[key]]


# As they were found
run("bound", "--cluster", "a800x24-10gbe", "--model", "llama-48x1024", "--sequence", 16384, "--tokens", 2**63 - 1)
for batch in (2**30, 2**40):
    run("bound", "--cluster", "dgx-h100", "--model", "llama-3-405b", "--sequence", 2**24, "--global-batch", batch)
run("plan", "--cluster", "dgx-h100", "--model", "llama-3-8b", "--sequence", 2**24, "--global-batch", 2**40,
    "--schedules", "1f1b,ddp", "--budget", 100000)
run("simulate", "--schedule", "ddp", "--cluster", "16384x8", "--model", "llama-3-405b", "--sequence", 8192, "--global-batch", 8388608,
    "--microbatch", 64)
ninety_days = "--cost", "fixed:forward=7776000s,backward_input=7776000s,backward_weight=7776000s,transfer=8640000s"
run("simulate", "--schedule", "1f1b", "--cluster", "1x4", "--microbatches", 8, *ninety_days)
run("compare", "--cluster", "1x4", "--microbatches", 8, *ninety_days)

answered = refused = 0
for _ in range(16):
    sequence = power(1, 1 << 24)
    size = power(1, max(1, (1 << 24) // sequence))
    flags = ["--cluster", cluster(), "--model", model(), "--sequence", sequence, "--microbatch", size]
    schedule = draws.choice(["1f1b", "zb-h1", "gpipe", "tawpipe", "weipipe", "fsdp", "ddp"])
    one, two = (run("simulate", "--schedule", schedule, *flags, "--global-batch", size * 16 * times, "--limit", "64MiB", *training_run()) for times in (1, 2))
    if one and two and (lower := less(totals(one), totals(two))):
        failures += 1
        print("FAILED", schedule, *flags, "of twice the batch less:", *lower)
    bounds = [run("bound", *flags[:6], "--global-batch", size * 16 * times) for times in (1, 2**20)]
    if all(bounds) and (lower := less({"bound_s": bounds[0]["bound_s"], **bounds[0]["work"]}, {"bound_s": bounds[1]["bound_s"], **bounds[1]["work"]})):
        failures += 1
        print("FAILED bound", *flags, "of a larger batch less:", *lower)
    answered += one is not None
    refused += one is None
print(f"{answered} answered, {refused} refused; {failures} failures")
sys.exit(1 if failures or not answered or not refused else 0)
