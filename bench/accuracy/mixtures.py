#!/usr/bin/env python3
"""Errors of predicted mixtures of experts by model, device and release, from the JSON of `tawpipe reproduce --experts`.

A mixture is a row whose table has `experts`; its release is what follows the # of its id.
Not: any prediction (`tawpipe reproduce --experts *.csv --json FILE`).
"""
import argparse
import collections
import csv
import json
import statistics
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=argparse.FileType(encoding="utf-8"), help="what reproduce --json wrote")
    parser.add_argument("tables", nargs="+", type=argparse.FileType(encoding="utf-8"), help="the tables that it read")
    arguments = parser.parse_args()
    truth = {(row["source"], row["row"]): row for table in arguments.tables for row in csv.DictReader(table)}
    mixtures, left = [], collections.Counter()
    for source in json.load(arguments.json)["sources"]:
        for made in source["predictions"]:
            row = truth.get((source["source"], made["row"]))
            if row is None:
                sys.exit(f"mixtures.py: no table has row {made['row']} of {source['source']}")
            if not row["experts"]:
                continue
            if "why_not" in made:
                left[row["model"], made["why_not"]] += 1
                continue
            configuration, _, release = made["row"].partition("#")
            mixtures.append({"model": row["model"], "device": row["hardware"].removeprefix("DGX-"), "release": release,
                             "configuration": configuration, "measured": made["measured_s"], "memory": made["out_of_memory"],
                             "error": made["predicted_s"] / made["measured_s"] - 1})
    print(line("all", mixtures))
    for key in ("model", "device", "release"):
        print()
        for value in sorted({one[key] for one in mixtures}):
            print(line(f"{key} {value}", [one for one in mixtures if one[key] == value]))
    print("\nmeasured in several releases")
    for name in dict.fromkeys(one["configuration"] for one in mixtures):
        runs = sorted((one["release"], one["measured"], one["error"]) for one in mixtures if one["configuration"] == name)
        if len(runs) > 1:
            print(name, *(f"  {release:9} {seconds:6.2f} s {error:+.1%}" for release, seconds, error in runs), sep="\n")
    print("\nnot predicted")
    for (model, why), count in sorted(left.items()):
        print(f"{count:3} {model}: {why}")


def line(name, rows):
    errors = [row["error"] for row in rows]
    sizes = [abs(error) for error in errors]
    return (f"{name:34} {len(rows):3} rows, mean {statistics.mean(sizes):.1%}, median {statistics.median(sizes):.1%}, "
            f"bias {statistics.mean(errors):+.1%}, {min(errors):+.1%} to {max(errors):+.1%}, "
            f"{sum(row['memory'] for row in rows)} out of memory")


main()
