#!/usr/bin/env python3
"""The errors of public runs by class, as the table in include/tawpipe/search/detail/measured_errors.hpp.

  tawpipe reproduce truth/*.csv --experts --json truth.json
  bench/accuracy/errors.py truth.json            # prints the table
  bench/accuracy/errors.py truth.json --score    # how many of runs left out the intervals hold
  bench/accuracy/errors.py truth.json --one-step # the error that is left when one step of a model is known

A class is software, mixture or dense, bits of GEMMs, generation of the device. Runs of one source, model, device and format are
alike, so n of them weigh as sqrt(n). A pair is two layouts of one job of one source.
Not: the predictions (`tawpipe reproduce`).
"""
import argparse
import collections
import itertools
import json
import math

CLASS = ("software", "mixture", "bits", "generation")


def runs(answer):
    for source in answer["sources"]:
        for row in source["predictions"]:
            if row.get("measured_s", 0) > 0 and row["software"] != "unknown":
                yield {**row, "source": source["source"], "error": math.log(row["measured_s"] / row["predicted_s"])}


def group(row):
    return (row["source"], row["row"].split("/")[0], row["generation"], row["bits"])


def table(rows):
    sizes = collections.Counter(map(group, rows))
    classes = collections.defaultdict(list)
    for row in rows:
        classes[tuple(row[key] for key in CLASS)].append(row)
    for key, members in sorted(classes.items()):
        weights = [1 / math.sqrt(sizes[group(row)]) for row in members]
        weight = sum(weights)
        mean = sum(w * row["error"] for w, row in zip(weights, members)) / weight
        variance = sum(w * (row["error"] - mean) ** 2 for w, row in zip(weights, members)) / weight
        yield key, len(members), weight, mean, math.sqrt(variance)


def quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def pairs(rows):
    """Of two layouts of one job, by how much the logarithm of the ratio of their times was off."""
    jobs = collections.defaultdict(list)
    for row in rows:
        jobs[row["source"], row["job"]].append(row)
    found = collections.defaultdict(list)
    for members in jobs.values():
        for a, b in itertools.combinations(members, 2):
            if a["layout"] == b["layout"]:
                continue
            kind = "others" if a["software"] != "megatron" else "mixtures" if a["mixture"] else "dense"
            found[kind].append(abs(a["error"] - b["error"]))
    return found


def one_step(rows):
    """By source: runs of which another one has the same model, device and format, the mean error of their predictions, and of
    the same times the ratio of any other's measured to predicted time."""
    sources = collections.defaultdict(lambda: ([], []))
    groups = collections.defaultdict(list)
    for row in rows:
        groups[group(row)].append(row["error"])
    for (source, *_), errors in groups.items():
        for i, error in enumerate(errors if len(errors) > 1 else []):
            others = errors[:i] + errors[i + 1:]
            before, after = sources[source]
            before.append(abs(math.exp(-error) - 1))
            after.append(sum(abs(math.exp(other - error) - 1) for other in others) / len(others))
    return sources


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=argparse.FileType(encoding="utf-8"), help="what tawpipe reproduce --experts --json wrote")
    parser.add_argument("--score", action="store_true", help="the share of runs in interval_s, by source")
    parser.add_argument("--one-step", action="store_true", help="the error with one measured step of a model, by source")
    arguments = parser.parse_args()
    answer = json.load(arguments.file)
    if arguments.score:
        for source in answer["sources"]:
            rows = [row for row in source["predictions"] if row.get("measured_s", 0) > 0]
            if rows:
                inside = sum(row["interval_s"][0] <= row["measured_s"] <= row["interval_s"][1] for row in rows)
                width = sum(row["interval_s"][1] / row["interval_s"][0] - 1 for row in rows) / len(rows)
                print(f"{source['source']}: {inside} of {len(rows)} inside, mean width {width:.0%}")
        return
    rows = list(runs(answer))
    if arguments.one_step:
        for source, (before, after) in one_step(rows).items():
            if before:
                print(f"{source}: {len(before)} runs, {sum(before) / len(before):.1%} off, "
                      f"{sum(after) / len(after):.1%} with one measured step")
        return
    for (software, mixture, bits, generation), count, weight, mean, deviation in table(rows):
        print(f'    {{{{Software::{software}, {str(mixture).lower()}, {bits}, "{generation}"}}, '
              f"{count}, {weight:.1f}, {mean:.3f}, {deviation:.3f}}},")
    for kind, errors in sorted(pairs(rows).items()):
        print(f"pairs_of_{kind}: {len(errors)} pairs, half within {quantile(errors, 0.5):.3f}, 80 % within {quantile(errors, 0.8):.3f}")


main()
