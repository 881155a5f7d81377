#!/usr/bin/env python3
"""The errors of public runs by class, as the table in include/tawpipe/search/detail/measured_errors.hpp.

  tawpipe reproduce truth/*.csv --experts --json truth.json
  bench/accuracy/errors.py truth.json            # prints the table
  bench/accuracy/errors.py truth.json --score    # how many of runs left out the intervals hold
  bench/accuracy/errors.py truth.json --one-step # the error that is left when one step of a model is known
  bench/accuracy/errors.py truth.json --moved    # and when predictions are moved by the mean error of other sources

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


def mean_of_class(classes, key, wider_runs=3):
    """The mean error that expected_error.hpp has of a class, by a table without some runs."""
    software = collections.defaultdict(list)
    for of, _, weight, mean, _ in classes:
        software[of[0]].append((weight, mean))
    pooled = lambda runs: (sum(w for w, _ in runs), sum(w * mean for w, mean in runs) / sum(w for w, _ in runs))
    mean = sum(pooled(runs)[1] for runs in software.values()) / len(software)
    for depth in range(1, 5):
        like = [(weight, one) for of, _, weight, one, _ in classes if of[:depth] == key[:depth]]
        if not like:
            break
        weight, own = pooled(like)
        mean = (weight * own + wider_runs * mean) / (weight + wider_runs)
    return mean


def moved(rows):
    """Of dense models and of mixtures: runs, the mean error of their predictions, and of these times the mean ratio of measured
    to predicted time of their class in other sources."""
    found = {"dense": [], "mixtures": []}
    for source in {row["source"] for row in rows}:
        classes = list(table([row for row in rows if row["source"] != source]))
        for row in (row for row in rows if row["source"] == source):
            mean = mean_of_class(classes, tuple(row[key] for key in CLASS))
            errors = (abs(math.exp(-row["error"]) - 1), abs(math.exp(mean - row["error"]) - 1))
            found["mixtures" if row["mixture"] else "dense"].append(errors)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=argparse.FileType(encoding="utf-8"), help="what tawpipe reproduce --experts --json wrote")
    parser.add_argument("--score", action="store_true", help="the share of runs in interval_s, by source")
    parser.add_argument("--one-step", action="store_true", help="the error with one measured step of a model, by source")
    parser.add_argument("--moved", action="store_true", help="the error of predictions moved by that of other sources' runs")
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
    if arguments.moved:
        for kind, errors in moved(rows).items():
            before, after = (sum(error[i] for error in errors) / len(errors) for i in range(2))
            print(f"{kind}: {len(errors)} runs, {before:.1%} off, {after:.1%} moved by the mean error of other sources")
        return
    for (software, mixture, bits, generation), count, weight, mean, deviation in table(rows):
        print(f'    {{{{Software::{software}, {str(mixture).lower()}, {bits}, "{generation}"}}, '
              f"{count}, {weight:.1f}, {mean:.3f}, {deviation:.3f}}},")
    for kind, errors in sorted(pairs(rows).items()):
        print(f"pairs_of_{kind}: {len(errors)} pairs, half within {quantile(errors, 0.5):.3f}, 80 % within {quantile(errors, 0.8):.3f}")


main()
