#!/usr/bin/env python3
"""Preprocessed lines of every room, all its headers together, against tests/compile/budget.json: more than 3 % over it fails.

Headers that bring Boost, JSON, fmt or pugixml count apart from the rest of their room. Lines do not vary with the machine;
seconds do. They do vary with the compiler, so another than the recorded one skips (exit 77). `--record` writes what is measured
now. Not: a measure of headers that need MPI, CUDA or a BLAS.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

sys.dont_write_bytecode = True  # of the checker
import check_layers

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/compile/budget.json"
OTHER_MACHINES = {"mpi", "cuda", "blas"}
GROWTH = 1.03


def compiler_name(compiler):
    macros = subprocess.run([compiler, "-dM", "-E", "-x", "c++", "/dev/null"], check=True, capture_output=True, text=True).stdout
    values = dict(re.findall(r"#define (__clang_major__|__GNUC__) (\d+)", macros))
    return f"clang {values['__clang_major__']}" if "__clang_major__" in values else f"gcc {values.get('__GNUC__')}"


def groups_of(root):
    """{"room" or "room with boost": [header]}"""
    table = tomllib.loads((root / "tools/layers.toml").read_text(encoding="utf-8"))
    checker = check_layers.Checker(root, table)
    groups = {}
    for path in sorted((root / "include/tawpipe").rglob("*.hpp")):
        name = path.relative_to(root / "include/tawpipe").as_posix()
        parties = checker.third_parties_behind(name).keys() - {"posix"}
        if parties & OTHER_MACHINES or {"mpi", "cuda"} & set(name.split("/")):
            continue
        room = name.split("/")[0]
        groups.setdefault(room + (f" with {', '.join(sorted(parties))}" if parties else ""), []).append(name)
    return groups


def make_generated(folder):
    """Empty headers for those that the build makes, which are texts alone."""
    for name in tomllib.loads((ROOT / "tools/layers.toml").read_text(encoding="utf-8"))["generated"]:
        header = pathlib.Path(folder) / "tawpipe" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.touch()


def lines_of(compiler, headers, generated):
    text = "".join(f'#include "tawpipe/{header}"\n' for header in headers)
    result = subprocess.run([compiler, "-std=c++20", "-E", "-P", "-x", "c++", "-I", str(ROOT / "include"), "-I", generated, "-"],
                            input=text, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"error: does not preprocess: {result.stderr.strip().splitlines()[0]}")
    return result.stdout.count("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--record", action="store_true", help="write the lines measured now as the record")
    arguments = parser.parse_args()

    name = compiler_name(arguments.compiler)
    record = json.loads(RECORD.read_text())
    if name != record["compiler"] and not arguments.record:
        print(f"skipped: the record is for {record['compiler']}, this is {name}")
        return 77
    groups = groups_of(ROOT)
    with tempfile.TemporaryDirectory() as generated, concurrent.futures.ThreadPoolExecutor(2) as pool:
        make_generated(generated)
        found = pool.map(lambda headers: lines_of(arguments.compiler, headers, generated), groups.values())
        measured = dict(zip(groups, found))
    if arguments.record:
        RECORD.write_text(json.dumps({"compiler": name, "lines": measured}, indent=2) + "\n")
        print(f"recorded {len(measured)} rooms in {RECORD.relative_to(ROOT)}")
        return 0
    failures = 0
    for group, lines in measured.items():
        budget = record["lines"].get(group, 0)
        if lines > budget * GROWTH:
            print(f"error: {group} grew from {budget} to {lines} preprocessed lines; take an include out, or record what is "
                  "worth it: tools/compile_budget.py --record")
            failures += 1
    print(f"{len(measured)} rooms, {failures} over their budget")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
