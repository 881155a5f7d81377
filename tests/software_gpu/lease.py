#!/usr/bin/env python3
"""lease.sh over the software GPU, as it runs on a GPU but for sizes: lease.py LEASE.SH BUILD.

Programs are packed and carried; each call ends in its time, leaves at most nine files, and no step fails, whatever had time.
Not: what the steps find (each is a test of its own).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

LEASE, BUILD = sys.argv[1:]
# Of the second call what is short, and what its end cuts off.
CALLS = {"1": (60, ""), "2": (30, "throw|ncu|command")}
failed = 0


def check(holds, what):
    global failed
    failed += not holds
    print(("ok: " if holds else "FAILED: ") + what, flush=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        archive = folder / "lease.tar.gz"
        environment = dict(os.environ, LEASE_ARCHIVE=str(archive), LEASE_DIVIDE="64",
                           LEASE_MEASURE="--largest 64 --device H100-80G")
        packed = subprocess.run([LEASE, "pack", BUILD], capture_output=True, text=True, env=environment)
        size = archive.stat().st_size if archive.exists() else 0
        # One of a Release build has 27 MiB, 12 of them OpenBLAS.
        check(packed.returncode == 0 and 0 < size < 36 << 20, f"the archive has {size / 2**20:.1f} MiB {packed.stderr[-2000:]}")
        for call, (seconds, names) in CALLS.items():
            results = folder / call
            began = time.monotonic()
            done = subprocess.run([LEASE, call, str(results)], capture_output=True, text=True,
                                  env=dict(environment, LEASE_SECONDS=str(seconds), LEASE_STEPS=names))
            took = time.monotonic() - began
            files = sorted(path.name for path in results.iterdir())
            facts, *steps = [json.loads(line) for line in (results / "steps.jsonl").read_text().splitlines()]
            ended = [step["step"] for step in steps if step["exit"] == 0]
            right = done.returncode == 0 and took < seconds + 100 and len(files) <= 9 and facts["date"] and ended
            if call == "2":
                right = right and steps[-1] == {"call": 2, "step": "command", "exit": None, "seconds": steps[-1]["seconds"]}
            check(right, f"call {call}: code {done.returncode}, {took:.0f} s, {files}, ended {ended}"
                         f"{'' if right else done.stdout + done.stderr}")
        usage = subprocess.run([LEASE], capture_output=True, text=True)
        check(usage.returncode == 2 and "lease.sh pack" in usage.stderr, "without arguments it says what they are")
    return 1 if failed else 0


sys.exit(main())
