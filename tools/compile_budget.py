#!/usr/bin/env python3
"""Preprocessed lines of every header against tests/compile/budget.json: more than 3 % over the record fails.

Lines do not vary with the machine; seconds do. They do vary with the compiler, so another than the recorded one
skips (exit 77). `--record` writes what is measured now. Not: a measure of anything else.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/compile/budget.json"
OTHER_MACHINES = re.compile(r"^(execute|layers)/(mpi|cuda)/|^layers/host/")  # need MPI, CUDA or BLAS
GROWTH, SLACK = 1.03, 100  # a header of a few lines may grow by some lines of its own

# What each room should stay below (first match); over it is a warning, over the record an error.
CEILINGS = [
    (r"core/(units|ids|id_vector)\.hpp", 4_000), (r"core/", 20_000), (r"graph/dag\.hpp", 30_000),
    (r"graph/|analysis/|topology/(routing|clusters|nvidia_smi|nccl|cluster_file|detail/)", 130_000), (r"model/huggingface", 100_000), (r"report/|execute/|plan/", 55_000),
    (r"tawpipe\.hpp", 45_000), (r"", 40_000),
]


def compiler_name(compiler):
    macros = subprocess.run([compiler, "-dM", "-E", "-x", "c++", "/dev/null"], check=True, capture_output=True, text=True).stdout
    values = dict(re.findall(r"#define (__clang_major__|__GNUC__) (\d+)", macros))
    return f"clang {values['__clang_major__']}" if "__clang_major__" in values else f"gcc {values.get('__GNUC__')}"


def lines_of(compiler, header):
    result = subprocess.run([compiler, "-std=c++20", "-E", "-P", "-x", "c++", "-I", str(ROOT / "include"), "-"],
                            input=f'#include "tawpipe/{header}"\n', capture_output=True, text=True)
    if result.returncode != 0:
        return header, None, result.stderr.strip().splitlines()[0]
    return header, result.stdout.count("\n"), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--record", action="store_true", help="write the lines measured now as the record")
    arguments = parser.parse_args()

    name = compiler_name(arguments.compiler)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"compiler": name, "lines": {}}
    if name != record["compiler"] and not arguments.record:
        print(f"skipped: the record is for {record['compiler']}, this is {name}")
        return 77

    include = ROOT / "include/tawpipe"
    headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.hpp"))
    headers = [header for header in headers if not OTHER_MACHINES.search(header)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        measured = list(pool.map(lambda header: lines_of(arguments.compiler, header), headers))

    failures = 0
    for header, lines, problem in measured:
        if lines is None:
            print(f"error: {header} does not preprocess: {problem}")
            failures += 1
            continue
        ceiling = next(limit for pattern, limit in CEILINGS if re.match(pattern, header))
        recorded = record["lines"].get(header)
        if lines > ceiling:
            print(f"warning: {header} is {lines} preprocessed lines; its room aims at {ceiling}")
        if arguments.record:
            continue
        if recorded is None:
            print(f"note: {header} is not in the record yet: {lines} lines")
        elif lines > recorded * GROWTH and lines > recorded + SLACK:
            print(f"error: {header} grew from {recorded} to {lines} preprocessed lines ({lines / recorded - 1:+.1%}); "
                  "take an include out, or record the growth: tools/compile_budget.py --record")
            failures += 1

    if arguments.record and not failures:
        lines = {header: count for header, count, _ in measured}
        RECORD.write_text(json.dumps({"compiler": name, "lines": lines}, indent=2) + "\n")
        print(f"recorded {len(lines)} headers in {RECORD.relative_to(ROOT)}")
    elif not failures:
        print(f"{len(measured)} headers within their budget")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
