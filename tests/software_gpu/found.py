#!/usr/bin/env python3
"""What run.py finds and does on machines that are not this one: found.py RUN.PY NCCL.H LIBNCCL CUDNN.H LIBCUDNN.

NCCL and cuDNN in Python's packages as pip leaves them (no libnccl.so without a number), a step over its limit with all that it
started, a program that says that it cannot run here. Not: the parts (parts.py).
"""
import argparse
import importlib.util
import pathlib
import re
import sys
import tempfile
import time

RUN, *FILES = sys.argv[1:]
spec = importlib.util.spec_from_file_location("run", RUN)
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)
failed = 0


def check(holds, what):
    global failed
    failed += not holds
    print(("ok: " if holds else "FAILED: ") + what, flush=True)


def install(site):
    """nvidia/nccl and nvidia/cudnn of links to this machine's files."""
    headers = {"nccl": FILES[0], "cudnn": FILES[2]}
    for name, library in (("nccl", FILES[1]), ("cudnn", FILES[3])):
        for folder in ("include", "lib"):
            (site / "nvidia" / name / folder).mkdir(parents=True)
        for header in pathlib.Path(headers[name]).parent.glob(f"{name}*.h"):
            (site / "nvidia" / name / "include" / header.name).symlink_to(header.resolve())
        for one in pathlib.Path(library).parent.glob(f"lib{name}*.so.[0-9]"):
            (site / "nvidia" / name / "lib" / one.name).symlink_to(one.resolve())


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        install(folder / "site")
        sys.path.insert(0, str(folder / "site"))
        for loaded in [one for one in sys.modules if one.split(".")[0] == "nvidia"]:
            del sys.modules[loaded]
        part = run.Part(argparse.Namespace(part="why", results=folder / "results", divide=1, build=folder / "build", built=False,
                                           packages=None, seconds=300))
        configured = part.configure()
        cache = folder / "build" / "CMakeCache.txt"
        known = cache.read_text() if cache.exists() else ""
        for library, version in (("NCCL", "2"), ("CUDNN", "9")):
            found = re.search(rf"^{library}_LIBRARY:FILEPATH=(.*)$", known, re.M)
            where = f"{folder}/site/nvidia/{library.lower()}/lib/lib{library.lower()}.so.{version}"
            check(configured and found is not None and found[1] == where, f"{library} is found in its package: {found and found[1]}")
        if not configured:
            print(part.files["build"]["steps"]["configure"])

        began = time.monotonic()
        over = run.run(["sh", "-c", "echo begun; sleep 1000 & wait"], 2)
        check(over["exit"] == 124 and "begun" in over["output"] and time.monotonic() - began < 100,
              "a step over its limit is ended with what it started, and what it said is kept")
        refused = run.run(["sh", "-c", "echo Device not supported >&2; exit 1"], 60, skips=["Device not supported"])
        check(refused["exit"] == run.SKIPPED, "a sanitizer that refuses the device is skipped, not failed")
        check(run.run(["./no such program"], 60)["exit"] == 127, "a program that was not built fails, and the part goes on")
    return 1 if failed else 0


sys.exit(main())
