#!/usr/bin/env python3
"""Runs the commands that README.md and docs/ show with a `$` and what they print, and compares: every line that is shown must be
printed, in that order. `$ cat FILE` gives the file that the next command reads.
Not: commands without their output (tools/check_links.py checks their flags). Usage: blocks.py TAWPIPE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent
tawpipe = os.path.abspath(sys.argv[1])
failures = ran = 0


def shown_commands(text):
    """(command, lines below it) of each `$` in blocks of code."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, rest = part.replace("\\\n", " ").partition("\n")
            yield command, [line for line in rest.splitlines() if line.strip()]


with tempfile.TemporaryDirectory() as folder:
    os.symlink(root / "tests", os.path.join(folder, "tests"))
    os.symlink(tawpipe, os.path.join(folder, "tawpipe"))
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for command, lines in shown_commands(page.read_text()):
            if command.startswith("cat "):
                (pathlib.Path(folder) / command.split()[1]).write_text("\n".join(lines) + "\n")
                continue
            programs = [part.split()[0] for part in command.split("|")]
            if programs[0] != "tawpipe" or any(shutil.which(program) is None for program in programs[1:]):
                print(f"left out: {page.name}: {command[:90]}")
                continue
            result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=environment)
            printed = iter(line.rstrip() for line in result.stdout.splitlines())
            missing = next((line for line in lines if line.rstrip() not in printed), None)
            ran += 1
            if missing is not None:
                failures += 1
                print(f"FAILED: {page.name}: {command}\nshows    {missing}\nprinted:\n{result.stdout}{result.stderr}")
print(f"{ran} commands run, {failures} failures")
sys.exit(1 if failures or ran == 0 else 0)
