#!/usr/bin/env python3
"""Scores predicted training runs against measured ones; any tool's, as CSV of id,seconds,gib,low,high (README.md says the formats).

  bench/truth/score.py truth/*.csv --predictions tawpipe.csv calculon.csv             # each tool's, and rows that all of them express
  bench/truth/score.py truth/*.csv --predictions tawpipe.csv --hold-out internevo     # rows of whole sources apart from the others
  bench/truth/score.py truth/*.csv --predictions tawpipe.csv --by stack --json -

A row that a tool does not express is a miss: it counts in coverage, in `within 10 %`, in pairs and in verdicts, and has no error.
Needs only Python's standard library. Not: predictions (tawpipe_rows.py, calculon_rows.py, simumax_rows.py).
"""
import argparse
import collections
import csv
import itertools
import json
import math
import pathlib
import sys

COLUMNS = (  # of a truth table, in the order of README.md
    "source row hardware gpus gpus_per_node device_gib interconnect network stack stack_version attention graph_scope model params_b "
    "layers hidden heads kv_heads head_dim ffn vocab experts topk expert_ffn shared_expert_ffn dense_layers mtp router_load sequence "
    "global_batch micro_batch tp sp cp cp_exchange ep etp pp vp dp grid_order zero sharding_groups precision optimizer_dtype "
    "gradient_dtype recompute schedule overlap overlap_flags step_time_s statistic tokens_per_s_per_gpu tflops_per_gpu mfu "
    "peak_memory_gib memory_kind file commit licence note").split()
PREDICTED = ("id", "seconds", "gib", "low", "high")
JOB = ("source", "model", "layers", "hidden", "hardware", "gpus", "global_batch", "sequence", "precision")
DEGREES = ("micro_batch", "tp", "sp", "cp", "ep", "pp", "vp")
WORDS = ("zero", "recompute", "schedule", "overlap_flags")  # one that is not said is as any other
GIB = (("gb300", 279), ("gb200", 186), ("b300", 270), ("b200", 180), ("h200", 141), ("h100 96gb", 96), ("h100", 80), ("h800", 80),
       ("a100_40", 40), ("a100 40", 40), ("a100", 80), ("a800", 80), ("mi300x", 192), ("mi350x", 288), ("mi355x", 288))
LONG = 32768  # tokens of a long context


def device(row):
    return next(((name, gib) for name, gib in GIB if name in row["hardware"].lower()), ("another", 0))


def classes(row):
    precision = row["precision"].lower()
    bits = 4 if "fp4" in precision else 8 if "fp8" in precision or "mx" in precision else 16
    return {"kind": "mixture" if int(row["experts"] or 0) else "dense", "stack": row.get("stack") or "unsaid", "device": device(row)[0],
            "source": row["source"], "format": f"{bits} bits", "context": "long" if int(row["sequence"] or 0) >= LONG else "shorter"}


def number(text, file, line):
    try:
        value = float(text) if text else None
    except ValueError:
        value = -1
    if value is not None and not (0 < value < math.inf):
        sys.exit(f"score.py: {file}:{line}: {text!r} is no positive number; leave empty what is not predicted")
    return value


def predictions(file, ids):
    with open(file, encoding="utf-8", newline="") as text:
        table = csv.DictReader(text)
        if tuple(table.fieldnames or ()) != PREDICTED:
            sys.exit(f"score.py: {file}:1: the columns of predictions are {','.join(PREDICTED)}")
        found = {}
        for line, row in enumerate(table, 2):
            if row["id"] not in ids or row["id"] in found:
                sys.exit(f"score.py: {file}:{line}: no row of the tables, or predicted twice: {row['id']}")
            found[row["id"]] = {key: number(row[key], file, line) for key in PREDICTED[1:]}
    return found


def same_layout(a, b):
    return all((a.get(key) or "1") == (b.get(key) or "1") for key in DEGREES) and \
        all(a[key] == b[key] or not a[key] or not b[key] for key in WORDS)


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def score(rows, said):
    """The figures of one set of rows; errors as fractions of what was measured, None where there are none."""
    timed = {row["row"]: float(row["step_time_s"]) for row in rows if row["step_time_s"]}
    error = {key: said[key]["seconds"] / seconds - 1 for key, seconds in timed.items() if said.get(key, {}).get("seconds")}
    memory = [(row["row"], float(row["peak_memory_gib"])) for row in rows
              if row["peak_memory_gib"] and row.get("memory_kind") != "out of memory"]
    off = [said[key]["gib"] / gib - 1 for key, gib in memory if said.get(key, {}).get("gib")]
    ran_out = {row["row"] for row in rows if row.get("memory_kind") == "out of memory"}
    room = {row["row"]: float(row.get("device_gib") or device(row)[1]) for row in rows if row["row"] in timed or row["row"] in ran_out}
    fits = {key: said[key]["gib"] <= gib for key, gib in room.items() if gib and said.get(key, {}).get("gib")}
    inside = [said[key]["low"] <= seconds <= said[key]["high"] for key, seconds in timed.items()
              if said.get(key, {}).get("low") and said[key]["high"]]
    jobs = collections.defaultdict(list)
    for row in rows:
        if row["row"] in timed:
            jobs[tuple(row[key] for key in JOB)].append(row)
    pairs = [(a["row"], b["row"]) for members in jobs.values() for a, b in itertools.combinations(members, 2)
             if timed[a["row"]] != timed[b["row"]] and not same_layout(a, b)]
    expressed = [(a, b) for a, b in pairs if a in error and b in error]
    several = [members for members in jobs.values() if any(not same_layout(a, b) for a, b in itertools.combinations(members, 2))]
    first = [(min(known, key=lambda row: said[row["row"]]["seconds"]), members) for members in several
             if (known := [row for row in members if row["row"] in error])]
    return {"rows": len(rows), "timed": len(timed), "expressed": len(error), "coverage": len(error) / len(timed) if timed else None,
            "mean_error": mean(map(abs, error.values())), "bias": mean(error.values()),
            "within_10": sum(abs(one) <= 0.1 for one in error.values()) / len(timed) if timed else None,
            "memory_rows": len(memory), "memory_expressed": len(off), "memory_error": mean(map(abs, off)),
            "verdicts": len(room), "verdicts_expressed": len(fits),
            "false_out_of_memory": sum(not fits[key] for key in fits if key in timed),
            "ran_out": len(ran_out), "false_fits": sum(fits[key] for key in fits if key in ran_out),
            "intervals": len(inside), "inside": mean(inside), "pairs": len(pairs), "pairs_expressed": len(expressed),
            "pairs_right": sum((said[a]["seconds"] - said[b]["seconds"]) * (timed[a] - timed[b]) > 0 for a, b in expressed),
            "jobs": len(several), "jobs_expressed": len(first),
            "regret": mean(timed[one["row"]] / min(timed[row["row"]] for row in members) - 1 for one, members in first)}


def line(name, one):
    def share(key, sign=""):
        return "-" if one[key] is None else f"{one[key]:{sign}.1%}".replace("%", " %")

    return (f"| {name} | {one['expressed']} of {one['timed']} | {share('mean_error')} | {share('bias', '+')} | {share('within_10')} "
            f"| {share('memory_error')} ({one['memory_expressed']} of {one['memory_rows']}) "
            f"| {one['false_out_of_memory']} of {one['verdicts_expressed']}, {one['false_fits']} of {one['ran_out']} "
            f"| {share('inside')} | {one['pairs_right']} of {one['pairs_expressed']} of {one['pairs']} | {share('regret')} |")


HEAD = ("| rows | expressed | mean error | bias | within 10 %, of all | memory | false out of memory, false fits | in interval "
        "| pairs right | regret |\n|---|---|---|---|---|---|---|---|---|---|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="truth tables, CSV")
    parser.add_argument("--predictions", nargs="+", required=True, help="one CSV a tool")
    parser.add_argument("--hold-out", nargs="+", default=[], metavar="SOURCE",
                        help="whole sources that count apart: the tool has not seen them")
    parser.add_argument("--by", nargs="*", default=["kind", "stack", "device", "source", "format", "context"], help="the classes to show")
    parser.add_argument("--json", help="all figures into this file; - is standard output")
    arguments = parser.parse_args()
    rows = []
    for file in arguments.tables:
        with open(file, encoding="utf-8", newline="") as text:
            rows += csv.DictReader(text)
    sources = {row["source"] for row in rows}
    if unknown := [one for one in arguments.hold_out if one not in sources]:
        sys.exit(f"score.py: no rows of {', '.join(unknown)}; there are {', '.join(sorted(sources))}")
    tools = {pathlib.Path(file).stem: predictions(file, {row["row"] for row in rows}) for file in arguments.predictions}
    sets = {"all": rows}
    if arguments.hold_out:
        sets |= {"known sources": [row for row in rows if row["source"] not in arguments.hold_out],
                 "held-out sources": [row for row in rows if row["source"] in arguments.hold_out]}
    if len(tools) > 1:
        shared = {row["row"] for row in rows if all(said.get(row["row"], {}).get("seconds") for said in tools.values())}
        sets |= {f"{name}, expressed by every tool": [row for row in members if row["row"] in shared] for name, members in sets.items()}
    for key in arguments.by:
        for value in sorted({classes(row)[key] for row in rows}):
            sets[f"{key} {value}"] = [row for row in rows if classes(row)[key] == value]
    figures = {tool: {name: score(members, said) for name, members in sets.items()} for tool, said in tools.items()}
    if arguments.json:
        text = json.dumps(figures, indent=1) + "\n"
        print(text, end="") if arguments.json == "-" else pathlib.Path(arguments.json).write_text(text, encoding="utf-8")
    if arguments.json != "-":
        for tool, scores in figures.items():
            print(f"{tool}\n\n{HEAD}", *(line(name, one) for name, one in scores.items()), "", sep="\n")


if __name__ == "__main__":
    main()
