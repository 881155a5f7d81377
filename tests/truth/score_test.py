#!/usr/bin/env python3
"""bench/truth/score.py on a table whose scores are worked out here by hand, its refusals, and that its columns are those of README.md,
which check.py enforces; adapters of tools that are not there say what they need.
Not: whether predictions are good (bench/truth/README.md)."""
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCH = ROOT / "bench" / "truth"
sys.path.insert(0, str(BENCH))
import check  # noqa: E402
import score  # noqa: E402

JOB = {"source": "one", "hardware": "H100 80GB SXM", "gpus": 8, "stack": "Megatron-LM", "model": "m", "layers": 4, "hidden": 1024, "heads": 8, "ffn": 4096,
       "sequence": 4096, "global_batch": 8, "precision": "BF16", "file": "table.md", "licence": "MIT"}
ROWS = [
    JOB | {"row": "a", "tp": 1, "step_time_s": 1.0, "peak_memory_gib": 40, "memory_kind": "allocated"},
    JOB | {"row": "b", "tp": 2, "step_time_s": 2.0, "peak_memory_gib": 20, "memory_kind": "allocated"},
    JOB | {"row": "c", "tp": 4, "step_time_s": 4.0},
    JOB | {"row": "d", "tp": 4, "step_time_s": 4.4},  # the layout of c again: no pair with it
    JOB | {"row": "e", "source": "two", "experts": 8, "sequence": 65536, "precision": "MXFP8", "step_time_s": 10.0},
    JOB | {"row": "f", "source": "two", "memory_kind": "out of memory", "peak_memory_gib": 80},
    JOB | {"row": "g", "source": "two", "hardware": "another GPU", "device_gib": 16, "step_time_s": 5.0},
]
# a: +5 %, b: -20 % and 30 of 20 GiB, c: +25 % and too much memory, d not expressed; e: right; f fits, wrongly; g not expressed
PREDICTED = [("a", 1.05, 44, 0.9, 1.2), ("b", 1.6, 30, 1.5, 1.9), ("c", 5.0, 90, "", ""), ("e", 10.0, "", 9, 11), ("f", "", 70, "", "")]


def write(folder, rows=ROWS, predicted=PREDICTED, head=score.PREDICTED):
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, score.COLUMNS)
        table.writeheader()
        table.writerows(rows)
    with open(folder / "tool.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *predicted])


def run(*words):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)


def near(one, expected):
    return one is expected if expected is None else math.isclose(one, expected, rel_tol=1e-9, abs_tol=1e-12)


def equal(figures, expected):
    for key, value in expected.items():
        assert near(figures[key], value), (key, figures[key], value)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    write(folder)
    done = run(BENCH / "score.py", folder / "table.csv", "--predictions", folder / "tool.csv", "--hold-out", "two", "--json", "-")
    assert done.returncode == 0, done
    scores = json.loads(done.stdout)["tool"]
    # Six rows have a time, four of them a prediction. Errors +0.05, -0.2, +0.25, 0; a and e are within 10 % of six.
    # Memory: 44 of 40 and 30 of 20. Of f, a, b, c, which say memory, c is called out of memory and ran, f the other way.
    # Intervals of a, b, e: 2.0 is above 1.9. Pairs of layouts: ab, ac, ad, bc, bd; d is a miss, so three are expressed, all right.
    # The first choice of job one, a, is the fastest; two has no two layouts.
    equal(scores["all"], {"rows": 7, "timed": 6, "expressed": 4, "coverage": 4 / 6, "mean_error": 0.5 / 4, "bias": 0.1 / 4, "within_10": 2 / 6,
                          "memory_rows": 2, "memory_expressed": 2, "memory_error": 0.3, "verdicts": 7, "verdicts_expressed": 4,
                          "false_out_of_memory": 1, "ran_out": 1, "false_fits": 1, "intervals": 3, "inside": 2 / 3,
                          "pairs": 5, "pairs_expressed": 3, "pairs_right": 3, "jobs": 1, "jobs_expressed": 1, "regret": 0})
    equal(scores["known sources"], {"timed": 4, "expressed": 3, "mean_error": 0.5 / 3, "within_10": 1 / 4})
    equal(scores["held-out sources"], {"timed": 2, "expressed": 1, "mean_error": 0, "within_10": 1 / 2, "false_fits": 1, "pairs": 0, "regret": None})
    equal(scores["kind mixture"], {"timed": 1, "expressed": 1})
    equal(scores["format 8 bits"], {"timed": 1})
    equal(scores["context long"], {"timed": 1})
    equal(scores["stack Megatron-LM"], {"timed": 6})
    equal(scores["device h100"], {"timed": 5})

    # Who skips c and d wins an error, but loses coverage; who puts b before a has a pair wrong and waits 2 s in place of 1.
    write(folder, predicted=[("a", 2, "", "", ""), ("b", 1, "", "", "")])
    done = run(BENCH / "score.py", folder / "table.csv", "--predictions", folder / "tool.csv", "--by", "--json", "-")
    equal(json.loads(done.stdout)["tool"]["all"], {"expressed": 2, "within_10": 0, "pairs": 5, "pairs_expressed": 1, "pairs_right": 0, "regret": 1.0})

    # Two tools: rows that both express.
    (folder / "second.csv").write_text("id,seconds,gib,low,high\na,1,,,\n")
    done = run(BENCH / "score.py", folder / "table.csv", "--predictions", folder / "tool.csv", folder / "second.csv", "--by", "--json", "-")
    equal(json.loads(done.stdout)["tool"]["all, expressed by every tool"], {"timed": 1, "expressed": 1, "mean_error": 1.0})
    done = run(BENCH / "score.py", folder / "table.csv", "--predictions", folder / "tool.csv")
    assert "| all | 2 of 6 | 75.0 % | +25.0 % | 0.0 % | - (0 of 2) | 0 of 0, 0 of 1 | - | 0 of 1 of 5 | 100.0 % |" in done.stdout, done

    for rows, head, word in ([("a", 1, "", "", ""), ("a", 1, "", "", "")], score.PREDICTED, "predicted twice"), \
            ([("z", 1, "", "", "")], score.PREDICTED, "no row of the tables"), ([("a", 0, "", "", "")], score.PREDICTED, "no positive number"), \
            ([("a", "soon", "", "", "")], score.PREDICTED, "no positive number"), ([("a", 1)], ("id", "seconds"), "columns of predictions"):
        write(folder, predicted=rows, head=head)
        done = run(BENCH / "score.py", folder / "table.csv", "--predictions", folder / "tool.csv")
        assert done.returncode == 1 and word in done.stderr, (word, done)
    write(folder)
    done = run(BENCH / "score.py", folder / "table.csv", "--predictions", folder / "tool.csv", "--hold-out", "three")
    assert done.returncode == 1 and "no rows of three; there are one, two" in done.stderr, done

    # The format: README.md and the scorer name the same columns, in one order, and a table keeps to them.
    assert list(check.columns()) == score.COLUMNS, set(check.columns()) ^ set(score.COLUMNS)
    done = run(BENCH / "check.py", folder / "table.csv")
    assert done.returncode == 0 and done.stdout == "7 rows, 0 errors\n", done
    for change, word in ({"memory_kind": "resident"}, "memory_kind: 'resident' is none of: allocated, reserved"), ({"tp": "two"}, "tp: 'two' is no number"), \
            ({"overlap": "grad_reduce;wings"}, "overlap: 'grad_reduce;wings' has wings"), ({"row": "a"}, "row: a is there already"), \
            ({"grid_order": "fastest first"}, "is no order"), ({"network": "quick"}, "is no network"), ({"licence": ""}, "each row says"), \
            ({"memory_kind": "out of memory"}, "has no time"), ({"sharding_groups": "optimizer=8;wings=2"}, "has wings=2"):
        write(folder, rows=[*ROWS, ROWS[0] | {"row": "h"} | change])
        done = run(BENCH / "check.py", folder / "table.csv")
        assert done.returncode == 1 and word in done.stdout, (word, done)
    (folder / "old.csv").write_text("source,row,hardwear\n")
    done = run(BENCH / "check.py", folder / "old.csv")
    assert done.returncode == 1 and "no column is called hardwear; hardware is" in done.stdout, done

    # Wider tables have all columns, and say what their notes say.
    narrow = "source,row,hardware,gpus,interconnect,model,experts,sequence,precision,recompute,schedule,zero,overlap_flags,dp,cp,step_time_s,peak_memory_gib,note,file"
    (folder / "old.csv").write_text(f"{narrow}\ninternevo,x#1,A100,8,4 x 100 Gb/s RoCE a node,7b,,2048,BF16,none,none,optimizer sharded over all,"
                                    "overlap_grad_reduce=1,8,1,4,,time mean of five,a.md\n")
    assert run(BENCH / "widen.py", folder / "old.csv", "--out", folder / "wide").returncode == 0
    with open(folder / "wide" / "old.csv", newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    assert list(row) == score.COLUMNS
    assert (row["stack"], row["network"], row["sharding_groups"], row["overlap"], row["statistic"], row["device_gib"], row["licence"]) == \
        ("InternEvo", "4x100 RoCE", "optimizer=8", "grad_reduce", "mean", "80", "Apache-2.0"), row
    done = run(BENCH / "check.py", folder / "wide" / "old.csv")
    assert done.returncode == 0, done

    for tool in ("calculon", "simumax"):
        done = run("-S", BENCH / f"{tool}_rows.py", folder / "table.csv", "--path", folder)
        assert done.returncode == 1 and "give --path CLONE" in done.stderr, (tool, done)

    # Our own adapter takes the memory that the row's source prints.
    ours = {"sources": [{"predictions": [
        {"row": "a", "predicted_s": 1, "interval_s": [0.9, 1.2], "predicted_allocated_gib": 44, "predicted_reserved_gib": 46},
        {"row": "b", "predicted_s": 2, "interval_s": [1.9, 2.2], "predicted_allocated_gib": 44, "predicted_reserved_gib": 46,
         "measured_reserved_gib": 45}, {"row": "c", "why_not": "no layout"}]}]}
    (folder / "ours.json").write_text(json.dumps(ours))
    done = run(BENCH / "tawpipe_rows.py", "--json", folder / "ours.json")
    assert done.stdout == "id,seconds,gib,low,high\na,1,44,0.9,1.2\nb,2,46,1.9,2.2\n" and "1  no layout" in done.stderr, done
