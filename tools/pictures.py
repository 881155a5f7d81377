#!/usr/bin/env python3
"""Draws the pictures of the docs: a timeline of each schedule, charts, and the one at the README's head.

pictures.py COMMAND           writes docs/pictures/ anew with this `tawpipe`
pictures.py COMMAND --check   tells which would differ, byte by byte, which no page shows, and
                              which schedules have none; exit 1 if there are any
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
THIRDS = "--cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"
# Pipelines of 4 stages with 8 microbatches; a message takes no time, so that the order alone is seen.
PIPELINE = f"--cluster 1x4 --microbatches 8 {THIRDS}"
# Messages that take a tenth of a forward show what is in flight while something is computed.
WEIGHTS = "--cluster 2x2 --microbatches 8 --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=100ms"
PAPER = f"--cluster 3x2 --microbatches 6 {THIRDS}"
PIPELINES = ("1f1b", "gpipe", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zb-auto", "interleaved-zb", "zb-v",
             "v-half", "v-min", "dualpipe", "dualpipe-v", "chimera")
SHARDED = ("fsdp", "ddp", "zero1", "zero2", "hsdp", "hfsdp", "hpz")
WEIPIPES = ("weipipe", "weipipe-naive", "weipipe-zb1", "weipipe-zb2")

# Gathers that take over half a forward, waited for and beside computation.
GATHERS = "--cluster 2x2 --microbatches 8 --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=600ms"

PICTURES = {
    "exposed": f"simulate --schedule fsdp --option prefetch=0 {GATHERS} --gantt",
    "hidden": f"simulate --schedule fsdp --option prefetch=1 {GATHERS} --gantt",
    "tawpipe": f"simulate --schedule tawpipe --option order=paper {PAPER} --gantt",
    "tawpipe-eager": f"simulate --schedule tawpipe {WEIGHTS} --gantt",
    **{name: f"simulate --schedule {name} --option order=paper {PAPER} --gantt" for name in WEIPIPES},
    **{name: f"simulate --schedule {name} {WEIGHTS} --gantt" for name in SHARDED},
    **{name: f"simulate --schedule {name} {PIPELINE} --gantt" for name in PIPELINES},
    "network": "sweep --vary inter-node=1Gbps:100Gbps:log:9 --schedules tawpipe,weipipe,fsdp:prefetch=1,1f1b:overlap=on "
               "--cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 --global-batch 384 --microbatch 4 "
               "--cost roofline --chart",
    "paper-cells": "reproduce tawpipe --chart",
}


def draw(command, folder):
    """The pictures in `folder`, and what could not be drawn."""
    failed = []
    for name, arguments in PICTURES.items():
        words = [str(command), *arguments.split(), str(folder / f"{name}.svg")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            failed.append(f"{' '.join(words)}\n  {done.stderr.strip()}")
    return failed


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    command = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2:] != ["--check"]:
        FOLDER.mkdir(exist_ok=True)
        failed = draw(command, FOLDER)
        sys.exit("\n".join(failed) or None)
    text = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    with tempfile.TemporaryDirectory() as made:
        found = draw(command, pathlib.Path(made))
        for name in PICTURES:
            kept = FOLDER / f"{name}.svg"
            new = pathlib.Path(made, f"{name}.svg")
            if not new.exists() or not kept.exists() or new.read_bytes() != kept.read_bytes():
                found.append(f"docs/pictures/{name}.svg is not what the command draws; run tools/pictures.py {sys.argv[1]}")
            if f"pictures/{name}.svg" not in text:
                found.append(f"docs/pictures/{name}.svg is shown on no page")
    listed = subprocess.run([str(command), "list", "schedules", "--json", "-"], capture_output=True, check=True).stdout
    for schedule in json.loads(listed):
        if schedule["name"] not in PICTURES:
            found.append(f"schedule {schedule['name']} has no picture in tools/pictures.py")
    for kept in FOLDER.glob("*"):
        if kept.stem not in PICTURES:
            found.append(f"{kept.relative_to(ROOT)} is not drawn by tools/pictures.py")
    print("\n".join(found) or f"{len(PICTURES)} pictures are as the command draws them")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
