#!/usr/bin/env python3
"""Inputs that once took minutes, gigabytes or the process: each ends with one clear error or a right answer, within a memory limit.
Not: wrong input of ordinary size (bad_input_test.cpp), schedules that train something else (tests/data/mutants).
Usage: hostile.py TAWPIPE [--seconds N]: N processor seconds at most for each case (5, for an optimized build)
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

arguments = argparse.ArgumentParser()
arguments.add_argument("tawpipe")
arguments.add_argument("--seconds", type=int, default=5)
options = arguments.parse_args()

MEMORY = 1 << 30
FIXED = ["--cost", "fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0.1s"]
folder = tempfile.TemporaryDirectory(prefix="tawpipe-hostile-")
failures = []


def write(name, content):
    """A path in the folder of this run; content: text, or a value that is written as JSON"""
    path = os.path.join(folder.name, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def nested(depth):
    return "[" * depth + "]" * depth


def ends(words, code, *told, notes=0):
    """Runs `tawpipe words`: it must end with the code, within the limits, and say all of `told`; an error is one line, after so many
    notes."""
    name = " ".join(words).replace(folder.name, "F")[:110]
    out = tempfile.TemporaryFile("w+")
    limits = lambda: (resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds)),
                      resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    process = subprocess.Popen([options.tawpipe, *words], stdout=out, stderr=subprocess.STDOUT, preexec_fn=limits)
    _, status, used = os.wait4(process.pid, 0)
    out.seek(0)
    said = out.read()
    problems = []
    if not os.WIFEXITED(status):
        problems.append(f"ended by signal {os.WTERMSIG(status)}")
    elif os.WEXITSTATUS(status) != code:
        problems.append(f"code {os.WEXITSTATUS(status)} in place of {code}")
    problems += [f"does not say '{text}'" for text in told if text not in said]
    if code == 2 and len(said.splitlines()) != 1 + notes:
        problems.append(f"{len(said.splitlines())} lines in place of one")
    if used.ru_maxrss * 1024 > MEMORY:
        problems.append(f"took {used.ru_maxrss * 1024 / 1e6:.0f} MB")
    print(f"{'FAILED' if problems else 'ok    '} {used.ru_utime + used.ru_stime:6.2f} s {used.ru_maxrss / 1024:6.0f} MiB  {name}")
    for problem in problems:
        print("       ", problem)
        failures.append(problem)
    if problems:
        print(said[-1500:])


llama = ["--model", "llama-2-7b", "--sequence", "4096", "--cluster", "3x8"]
one = ["--model", "llama-1x16", "--sequence", "16", "--global-batch", "1"]

# Numbers beyond those of JSON, and values that are too deep for any stack
ends(["calibrate", "--kineto", write("kineto.json", '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1e999,"dur":1}]}'),
      "--cluster", "1x8"], 2, "kineto.json", "1e999")
ends(["calibrate", "--kineto", write("tid.json", '{"traceEvents":[{"ph":"X","tid":' + nested(5_000_000) + "}]}"), "--cluster", "1x8"],
     2, "tid.json", "deep")
ends(["what-if", write("ts.json", '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1e999,"dur":1}]}')], 2, "ts.json", "1e999")
for words in (["what-if"], ["calibrate"], ["calibrate", "--cluster", "1x8", "--kineto"], ["topology", "import"],
              ["simulate", "--cluster", "1x2", *FIXED, "--schedule-file"], ["simulate", "--graph"], ["doctor"]):
    endless = "/dev/zero"
    if words == ["doctor"]:  # whose files end in a rank
        endless = os.path.join(folder.name, "rank0")
        os.symlink("/dev/zero", endless)
    ends([*words, endless], 2, "begins with 64 KiB of zeros")
ends(["what-if", write("days.json", '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1},'
                       '{"ph":"X","cat":"kernel","name":"k","ts":1e300,"dur":1}]}')], 2, "days.json", "day")
ends(["what-if", write("wide.csv", "dp_rank,stage,rank,step,optype,start_ts,duration\n0,0,0,1,forward-compute,1,1e300\n")], 2,
     "wide.csv", "seconds")
ends(["what-if", write("stages.csv", "dp_rank,stage,rank,step,optype,start_ts,duration\n0,33000000,0,1,forward-compute,1,1\n")], 2,
     "stages.csv", "stage")
ends(["simulate", "--schedule", "fsdp", "--cluster",
      write("deep.cluster.json", '{"name": "a", "device": {"name": "d", "memory": ' + nested(300_000) + "}}"), *one], 2, "deep")
ends(["doctor", write("deep_trace_rank_0", '{"entries": ' + nested(300_000) + "}")], 2, "deep")
ends(["validate", "--schedule-file", write("deep.json", nested(300_000))], 2, "deep")
ends(["simulate", "--schedule", "fsdp", "--cluster", "1x2", "--sequence", "16", "--global-batch", "2", "--model",
      write("model/config.json", '{"model_type": ' + nested(300_000) + "}")], 2, "deep")
ends(["simulate", "--config", write("nested.toml", "[" + ".".join("a" * 40_000) + "]\nx=1\n")], 2, "nested.toml", "line")

# Clusters and schedules whose parts multiply
leaf = {"name": "a", "nodes": 2048, "fabric": {"nodes_per_leaf": 1, "spines": 2048, "uplink": {"bandwidth": "1GB/s"}},
        "node_types": [{"name": "t", "edges": [{"between": ["g", "n"], "kind": "pcie", "bandwidth": "1GB/s"}],
                        "vertices": [{"name": "g", "kind": "device", "device": "A100-80G"},
                                     {"name": "n", "kind": "adapter", "bandwidth": "1GB/s"}]}]}
ends(["topology", "show", write("leaf.cluster.json", leaf)], 2, "4194304 links is too large")
ends(["topology", "show", "1000x1000"], 0, "network")
ends(["validate", "--schedule-file", write("rows.csv", "".join(f"{r}F0,{r}B0\n" for r in range(7000))), "--cluster", "1000x8", *FIXED],
     0, "ends in every timing")
ends(["validate", "--schedule-file",
      write("ends.json", {"groups": [list(range(8000))], "ranks": 8000, "tasks": [{"op": "all_reduce", "group": 0}] * 1200,
                          "stages": 1, "workload": {"devices": 1, "microbatches": 1}}), "--cluster", "1000x8", *FIXED],
     1, "1202 errors")

# Sums and products that would wrap
far = {"name": "lat", "device": "A100-80G", "nodes": 1, "devices_per_node": 2,
       "intra_node": {"bandwidth": "1000GB/s", "latency_ps": 10**15}}
ends(["simulate", "--schedule", "1f1b", "--cluster", write("far.cluster.json", far), "--model", "llama-2000x64", "--sequence", "16",
      "--global-batch", "1", "--tensor-parallel", "2"], 2, "may span 106 days")
petabytes = {"ranks": 1, "stages": 1, "workload": {"model": "llama-2-7b", "batch": {"sequence": 16, "global_batch": 1}},
             "buffers": [{"rank": 0, "kind": "weights", "bytes": (1 << 50) - 2}] * 16384,
             "tasks": [{"op": op, "rank": 0, "stage": 0, "microbatch": 0} for op in ("forward", "backward")]}
ends(["simulate", "--schedule-file", write("petabytes.json", petabytes), "--cluster", "1x1", *FIXED], 2, "is not valid",
     "9.2 exabytes", notes=1)
parameters = {"ranks": 1 << 20, "layout": {"tensor": 1 << 20}, "workload": {"devices": 1, "microbatches": 1},
              "stages": [{"parameters": 10**15}] * 16, "tasks": [{"op": "forward", "rank": 0, "stage": 0, "microbatch": 0}]}
ends(["simulate", "--schedule-file", write("parameters.json", parameters), "--cluster", "1x1", *FIXED], 2, "parameters together")
ends(["simulate", "--schedule", "1f1b", "--cluster", "16384x8", "--model", "llama-3-405b", "--sequence", "8192", "--global-batch",
      "8388608", "--tensor-parallel", "8", "--data-parallel", "1024"], 2, "tasks")

for schedule in ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "gpipe", "tawpipe", "weipipe", "fsdp", "ddp"):
    ends(["simulate", "--schedule", schedule, "--cluster", "1x8", "--model", "llama-3-8b", "--sequence", "4096", "--global-batch",
          "1000000"], 2, "tasks")

# Options and batches that ask for more than there is
ends(["simulate", "--schedule", "fsdp", "--option", "shards=1000000000", *llama, "--global-batch", "24"], 2, "shards")
ends(["simulate", "--schedule", "tawpipe", "--option", "buffers=1000000000", *llama, "--global-batch", "24"], 2, "buffers")
ends(["train", "--cluster", "1000x1", "--data", write("text", "the quick brown fox " * 100), "--model", "llama-1x16", "--sequence",
      "16", "--global-batch", "1000", "--steps", "1"], 0, "1000 ranks")
ends(["simulate", "--schedule", "fsdp", "--spread", "100000", "--limit", "16MiB", *llama, "--global-batch", "24"], 2, "--spread 100000")

print(f"{len(failures)} failures" if failures else "all end as they should")
sys.exit(1 if failures else 0)
