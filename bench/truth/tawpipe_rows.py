#!/usr/bin/env python3
"""Predicts the rows of truth tables by `tawpipe reproduce --experts`, and says which it does not express and why.

  bench/truth/tawpipe_rows.py truth/*.csv --program build/bin/tawpipe --out tawpipe.csv
  bench/truth/tawpipe_rows.py --json truth.json --out tawpipe.csv    # of a run that is there already

The memory is of the kind that the row's source prints: reserved, or allocated. Which rows tawpipe itself calls out of memory, with
CUDA's context and NCCL, stands in docs/accuracy_memory.md: score.py compares all tools' figures with the device's memory.
Not: a score (score.py).
"""
import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys
import tempfile


def predicted(row):
    """The line of a row that is expressed."""
    kind = "reserved" if "measured_reserved_gib" in row and "measured_allocated_gib" not in row else "allocated"
    low, high = row["interval_s"]
    return (row["row"], *(f"{value:.6g}" for value in (row["predicted_s"], row[f"predicted_{kind}_gib"], low, high)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="truth tables (README.md)")
    parser.add_argument("--program", default="tawpipe", help="the command tawpipe")
    parser.add_argument("--json", help="what tawpipe reproduce --experts --json wrote, in place of tables")
    parser.add_argument("--out", default="-", help="the CSV of predictions; - is standard output")
    arguments = parser.parse_args()
    if bool(arguments.json) == bool(arguments.tables):
        parser.error("give tables, or --json FILE")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(arguments.json or pathlib.Path(folder) / "truth.json")
        if arguments.tables:
            subprocess.run([arguments.program, "reproduce", *arguments.tables, "--experts", "--json", file], check=True,
                           stdout=subprocess.DEVNULL)
        rows = [row for source in json.loads(file.read_text(encoding="utf-8"))["sources"] for row in source["predictions"]]
    reasons = collections.Counter(row["why_not"] for row in rows if "why_not" in row)
    lines = [predicted(row) for row in rows if "why_not" not in row]
    out = sys.stdout if arguments.out == "-" else open(arguments.out, "w", encoding="utf-8", newline="")
    csv.writer(out, lineterminator="\n").writerows([("id", "seconds", "gib", "low", "high"), *lines])
    out.flush()
    print(f"{len(lines)} rows expressed, {sum(reasons.values())} not:", file=sys.stderr)
    for why, count in reasons.most_common():
        print(f"{count:5}  {why}", file=sys.stderr)


main()
