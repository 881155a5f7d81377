#!/usr/bin/env python3
"""Times `tawpipe doctor` on many dumps: doctor.py COMMAND [--ranks N] [--megabytes M] [--form pickle|json].

Makes the dumps of a job that stands still, as PyTorch's flight recorder writes them: all ranks run collectives of 16 groups of
neighbours and of all, and one rank never comes to the last. Prints seconds and the peak of memory, and fails on a wrong verdict.
Not: dumps of a real recorder (tests/torch/recorder_test.py).
"""
import argparse
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time

GROUP = 16
KINDS = ["all_reduce", "_allgather_base", "_reduce_scatter_base", "broadcast"]
MISSING = 777  # never comes to the last call


def entry(record, group, seq, state):
    created = 1_700_000_000_000_000_000 + record * 1_000_000
    ended = state == "completed"
    sizes = [[4096, 1024]]
    return {"record_id": record, "pg_id": int(group[0]), "process_group": group, "thread_name": "pt_main_thread",
            "thread_id": "140000000000000", "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": record + 1,
            "profiling_name": "nccl:" + KINDS[record % len(KINDS)], "time_created_ns": created,
            "duration_ms": 1.5 if ended else None, "input_sizes": sizes, "input_dtypes": ["BFloat16"], "output_sizes": sizes,
            "output_dtypes": ["BFloat16"], "state": state, "time_discovered_started_ns": created + 1000,
            "time_discovered_completed_ns": created + 500_000 if ended else None, "retired": ended, "timeout_ms": 600_000,
            "is_p2p": False,
            "frames": [{"name": f"step_{i}", "filename": "/opt/train/model/parallel.py", "line": 100 + i} for i in range(6)]}


def dump(rank, ranks, calls):
    everybody = ["0", "default_pg"]
    own = [str(rank // GROUP + 1), "mesh_tp"]
    neighbours = list(range(rank // GROUP * GROUP, min(rank // GROUP * GROUP + GROUP, ranks)))
    entries = []
    seqs = {"0": 0, own[0]: 0}
    for record in range(calls):
        last = record == calls - 1
        if last and rank == MISSING % ranks:
            break
        group = everybody if last or record % 8 == 0 else own
        seqs[group[0]] += 1
        entries.append(entry(record, group, seqs[group[0]], "started" if last else "completed"))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))},
              own[0]: {"name": own[0], "desc": own[1], "ranks": str(neighbours)}}
    return {"version": "2.10", "comm_lib_version": "2.27.5", "pg_config": config, "entries": entries}


def write(rank, content, form, folder):
    data = pickle.dumps(content, protocol=2) if form == "pickle" else json.dumps(content).encode()
    (folder / f"rank_{rank}").write_bytes(data)
    return len(data)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("command")
    arguments.add_argument("--ranks", type=int, default=1024)
    arguments.add_argument("--megabytes", type=float, default=100)
    arguments.add_argument("--form", choices=["pickle", "json"], default="pickle")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "dumps"
        folder.mkdir()
        probe = len(pickle.dumps(dump(1, given.ranks, 50), protocol=2) if given.form == "pickle"
                    else json.dumps(dump(1, given.ranks, 50)).encode())
        half = len(pickle.dumps(dump(1, given.ranks, 25), protocol=2) if given.form == "pickle"
                   else json.dumps(dump(1, given.ranks, 25)).encode())
        each = (probe - half) / 25
        calls = max(10, int((given.megabytes * 1e6 / given.ranks - (probe - 50 * each)) / each) + 1)
        size = sum(write(rank, dump(rank, given.ranks, calls), given.form, folder) for rank in range(given.ranks))
        answer = pathlib.Path(scratch) / "answer.json"
        begin = time.monotonic()
        child = subprocess.Popen([given.command, "doctor", str(folder), "--json", str(answer)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - begin
        found = json.loads(answer.read_text())
        print(f"{given.form}: {given.ranks} dumps, {size / 1e6:.1f} MB, {calls} calls a rank: {took:.2f} s "
              f"({usage.ru_utime + usage.ru_stime:.2f} s of the processor), {usage.ru_maxrss / 1024:.0f} MB, {found['verdict']}, "
              f"culprits {sorted({one['rank'] for one in found['culprits']})}")
        if child.returncode != 1 or found["verdict"] != "missing" or {one["rank"] for one in found["culprits"]} != {MISSING % given.ranks}:
            sys.exit("a wrong verdict")


main()
