#!/usr/bin/env python3
"""How many pairs of layouts predictions with independent normal errors would order right, for several mean errors.

A pair is two rows of one job (parameters, GPUs, batch, hidden size, layers) with different layouts and times.
Not: any prediction (`tawpipe reproduce vtrain`).
"""
import argparse
import csv
import itertools
import math
import sys

JOB = ("Parameters (billion)", "# GPUs", "global batch", "hidden size", "# layers")
LAYOUT = ("micro batch", "tensor parallelism", "data parallelism", "pipeline parallelism")
TIME = "iteration time (ms)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=argparse.FileType(encoding="utf-8"), help="CSV in the columns of vTrain's measurements")
    rows = list(csv.DictReader(parser.parse_args().file))
    if missing := {*JOB, *LAYOUT, TIME}.difference(rows[0] if rows else ()):
        sys.exit(f"pairs.py: the file has no column {', '.join(sorted(missing))}")
    gaps = []  # of the logarithms of two times
    for a, b in itertools.combinations(rows, 2):
        if any(a[key] != b[key] for key in JOB) or all(a[key] == b[key] for key in LAYOUT):
            continue
        gap = abs(math.log(float(a[TIME]) / float(b[TIME])))
        if gap > 0:
            gaps.append(gap)
    print(f"{len(gaps)} pairs, {sum(gap < 0.05 for gap in gaps)} within 5 %, {sum(gap < 0.1 for gap in gaps)} within 10 %")
    for mean in (0.02, 0.03, 0.04, 0.06, 0.08, 0.10):
        deviation = mean * math.sqrt(math.pi / 2)  # of one time; a pair's is the square root of 2 times that
        right = sum((1 + math.erf(gap / deviation / 2)) / 2 for gap in gaps) / len(gaps)
        print(f"mean error {mean:.0%}: {right:.1%} right")


main()
