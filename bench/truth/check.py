#!/usr/bin/env python3
"""Whether truth tables keep to the format of README.md: its columns and no others, words that it allows, numbers where it says a unit,
an id once, a licence and a file for each row that has all columns.

  bench/truth/check.py truth/*.csv

Prints file:line and what would be right; exit 1 on an error. Not: whether a number is true (its source).
"""
import csv
import difflib
import pathlib
import re
import sys

README = pathlib.Path(__file__).resolve().parent / "README.md"
NEEDED = ("source", "row", "hardware", "gpus", "model", "precision", "recompute", "schedule", "zero", "overlap_flags", "experts",
          "step_time_s", "peak_memory_gib")


def columns():
    """{name: (unit or kind, allowed words)} of the tables of README.md whose first column is `column`."""
    found, inside = {}, False
    for line in README.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        inside = line.startswith("|") and (inside or cells[0] == "column")
        if inside and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            words = re.findall(r"`([^`]+)`", cells[1]) if cells[1].startswith("one of") or cells[1].startswith("list of") else []
            found[name[1]] = (cells[1].partition(":")[0], words)
    return found


def wrong(kind, words, cell):
    """Why a cell is not of its kind; nothing where it is."""
    if not cell or kind == "text":
        return ""
    if kind == "one of":
        return "" if cell in words else f"is none of: {', '.join(words)}"
    if kind == "list of":
        bad = [one for one in cell.split(";") if one.partition("=")[0] not in words]
        return f"has {', '.join(bad)}, none of: {', '.join(words)}" if bad else ""
    if kind == "order":
        return "" if re.fullmatch(r"(tp|cp|dp|ep|pp)(-(tp|cp|dp|ep|pp))*", cell) else "is no order such as tp-cp-dp-pp"
    if kind == "network":
        return "" if re.fullmatch(r"(\d+x)?\d+ \w+", cell) else "is no network such as 8x400 InfiniBand"
    try:
        return "" if float(cell) >= 0 else "is negative"
    except ValueError:
        return f"is no number ({kind})"


def errors(file, known, seen):
    with open(file, encoding="utf-8", newline="") as text:
        table = csv.DictReader(text)
        names = table.fieldnames or []
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                yield 1, f"no column is called {name}{f'; {near[0]} is' if near else ''}"
        for name in NEEDED:
            if name not in names:
                yield 1, f"the table has no column {name}"
        if set(NEEDED) - set(names):
            return
        for row in table:
            line = table.line_num
            for name, cell in row.items():
                if name in known and (why := wrong(*known[name], cell)):
                    yield line, f"{name}: {cell!r} {why}"
            if row["row"] in seen:
                yield line, f"row: {row['row']} is there already, in {seen[row['row']]}"
            seen[row["row"]] = f"{file}:{line}"
            if row.get("memory_kind") == "out of memory" and row["step_time_s"]:
                yield line, "step_time_s: a run that ran out of memory has no time"
            if "licence" in names and not (row["licence"] and row["file"]):
                yield line, "licence, file: each row says where it was read and under which licence"


def main():
    known, seen, count = columns(), {}, 0
    for file in sys.argv[1:] or sys.exit(__doc__):
        for line, why in errors(file, known, seen):
            print(f"{file}:{line}: error: {why}")
            count += 1
    print(f"{len(seen)} rows, {count} errors")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
