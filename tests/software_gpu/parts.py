#!/usr/bin/env python3
"""run.py's parts over the software GPU, as they run on a GPU but for sizes: parts.py RUN.PY BUILD.

Each ends in its time and leaves at most 8 files, whatever had time; a part that is cut short is not a failure.
Not: what the steps find (each is a test of its own).
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

RUN, BUILD = sys.argv[1:]
SECONDS = {"build-and-speed": 40, "why": 20, "schedules": 3}  # no time for any: all are left out


def main():
    failed = 0
    for part, seconds in SECONDS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            done = subprocess.run([sys.executable, RUN, part, folder, "--build", BUILD, "--built", "--divide", "64", "--seconds",
                                   str(seconds)], capture_output=True, text=True)
            took = time.monotonic() - began
            files = {path.name: json.loads(path.read_text()) for path in pathlib.Path(folder).iterdir()}
            steps = {name: step for file in files.values() for name, step in file["steps"].items()}
            measured = [name for name, step in steps.items() if step.get("result")]
            right = (done.returncode == 0 and took < seconds + 100 and 0 < len(files) <= 8 and
                     all(file["part"] == part and file["date"] for file in files.values()) and
                     (part != "schedules" or all(step["exit"] is None for step in steps.values())))
            print(f"{'ok' if right else 'FAILED'}: {part}: code {done.returncode}, {took:.0f} s, {sorted(files)}, with numbers "
                  f"{measured}{'' if right else done.stdout + done.stderr}", flush=True)
            failed += not right
    return 1 if failed else 0


sys.exit(main())
