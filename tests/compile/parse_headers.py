#!/usr/bin/env python3
"""Parses the files below a folder by the commands that build them, up to a line `static_assert(false, "parsed to the end")` that
they have under TAWPIPE_PARSE_ONLY. Templates that bodies of functions instantiate are then left out, two thirds of the time.
Not: these templates (tawpipe_rooms). Usage: parse_headers.py BUILD FOLDER
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def parse(entry):
    """What the compiler says of the file, "" where it came to its end."""
    words = shlex.split(entry["command"])
    del words[(at := words.index("-o")):at + 2]
    words = [word for word in words if not word.startswith("-W")]  # tawpipe_rooms has them
    done = subprocess.run([*words, "-DTAWPIPE_PARSE_ONLY", "-Wfatal-errors", "-o", os.devnull], cwd=entry["directory"],
                          capture_output=True, text=True)
    return "" if re.search(r" error: .*parsed to the end", done.stderr) else done.stderr or "it has no end to be parsed to"


def main():
    build, folder = map(pathlib.Path, sys.argv[1:])
    commands = json.loads((build / "compile_commands.json").read_text())
    entries = [entry for entry in commands if folder in pathlib.Path(entry["file"]).parents]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, said in zip(entries, pool.map(parse, entries)):
            if said:
                failures += 1
                print(f"FAILED: {pathlib.Path(entry['file']).relative_to(folder)}\n{said}", flush=True)
    print(f"{len(entries)} files, {failures} failures")
    sys.exit(1 if failures or not entries else 0)


if __name__ == "__main__":
    main()
