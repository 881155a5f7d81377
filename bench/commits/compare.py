#!/usr/bin/env python3
"""Two commits side by side: processor time of building, simulating, validating and lowering schedules, bytes of a task.

    bench/commits/compare.py [BASE [NEW]]      BASE: HEAD~1; NEW: the working tree

driver.cpp is compiled against the headers of both (release, one compiler), and the two programs run in turn --rounds times:
the least time of each row counts. Ends with 1 if a row is slower than --limit (1.03), or a task takes more bytes.
--instructions counts a row's instructions by valgrind in place of time: the same on a busy machine.
Not: a statement about another machine.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile


def headers_of(commit, folder):
    """The commit's include/ below `folder`; of the working tree its own."""
    root = subprocess.run(["git", "rev-parse", "--show-toplevel"], check=True, capture_output=True, text=True).stdout.strip()
    if commit is None:
        return os.path.join(root, "include")
    os.makedirs(folder)
    archive = subprocess.Popen(["git", "-C", root, "archive", commit, "include"], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], check=True, stdin=archive.stdout)
    if archive.wait() != 0:
        sys.exit(f"{commit} is no commit with headers")
    return os.path.join(folder, "include")


def compiled(compiler, headers, program):
    driver = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver.cpp")
    subprocess.run([*compiler.split(), "-std=c++20", "-O3", "-DNDEBUG", "-I", headers, driver, "-o", program], check=True)
    return program


def rows_of(program, part):
    out = subprocess.run([program, part], check=True, capture_output=True, text=True).stdout
    return {name: (float(seconds), float(size)) for name, seconds, _, size in (line.split() for line in out.splitlines())}


def counted_rows_of(program, part):
    """Billions of instructions in place of seconds."""
    rows = rows_of(program, part)
    for name, (_, size) in rows.items():
        said = subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", "--callgrind-out-file=/dev/null", program,
                               name], check=True, capture_output=True, text=True).stderr
        rows[name] = (int(re.search(r"Collected : (\d+)", said)[1]) / 1e9, size)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", default="HEAD~1")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.03)
    parser.add_argument("--rows", default="", help="a part of their names, such as simulate/")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        programs = [compiled(options.compiler, headers_of(commit, os.path.join(folder, side)), os.path.join(folder, side + ".out"))
                    for side, commit in (("base", options.base), ("new", options.new))]
        measure, rounds = (counted_rows_of, 1) if options.instructions else (rows_of, options.rounds)
        runs = [[measure(program, options.rows) for program in programs] for _ in range(rounds)]
    least = [{name: (min(run[side][name][0] for run in runs), size) for name, (_, size) in runs[0][side].items()} for side in (0, 1)]
    worse = 0
    print(f"{'':24}{options.base:>12}{options.new or 'this tree':>12}{'ratio':>8}{'bytes a task':>16}")
    for name, (before, size_before) in least[0].items():
        after, size_after = least[1][name]
        ratio = after / before if before > 0 else 1
        worse += ratio > options.limit or size_after > size_before
        unit = "G" if options.instructions else "s"
        print(f"{name:24}{before:11.4f}{unit}{after:11.4f}{unit}{ratio:8.3f}{size_before:8.1f}{size_after:8.1f}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
