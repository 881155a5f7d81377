#!/usr/bin/env python3
"""How many pairs of layouts predictions with independent normal errors would order right, for several mean errors.

A pair is two rows of one job (parameters, GPUs, batch, hidden size, layers) with different layouts and times.
Usage: pairs.py FILE.csv, in the columns of vTrain's measurements. Not: any prediction (`tawpipe reproduce vtrain`).
"""
import csv
import itertools
import math
import sys

JOB = ("Parameters (billion)", "# GPUs", "global batch", "hidden size", "# layers")
LAYOUT = ("micro batch", "tensor parallelism", "data parallelism", "pipeline parallelism")


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    gaps = []  # of the logarithms of two times
    for a, b in itertools.combinations(rows, 2):
        if any(a[key] != b[key] for key in JOB) or all(a[key] == b[key] for key in LAYOUT):
            continue
        gap = abs(math.log(float(a["iteration time (ms)"]) / float(b["iteration time (ms)"])))
        if gap > 0:
            gaps.append(gap)
    print(f"{len(gaps)} pairs, {sum(gap < 0.05 for gap in gaps)} within 5 %, {sum(gap < 0.1 for gap in gaps)} within 10 %")
    for mean in (0.02, 0.03, 0.04, 0.06, 0.08, 0.10):
        deviation = mean * math.sqrt(math.pi / 2)  # of one time; a pair's is the square root of 2 times that
        right = sum((1 + math.erf(gap / deviation / 2)) / 2 for gap in gaps) / len(gaps)
        print(f"mean error {mean:.0%}: {right:.1%} right")


main()
