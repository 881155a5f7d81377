#!/usr/bin/env python3
"""Runs the engine and SimGrid on the same task graphs, on this machine, one after the other.

    bench/peers/compare.py --build build star-100k chain-100k mix-100k --json peers.json

Prints makespans and seconds a task side by side. Each GRAPH is a name that make_graph knows or a file of format tg1.
Seconds are processor time of the simulation alone: reading the graph and making the platform are not counted.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def output_of(command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr.decode(errors='replace').strip()[:300]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", type=pathlib.Path, help="the build folder")
    parser.add_argument("--json", help="write the result to this file, or - for standard output")
    parser.add_argument("graphs", nargs="*", default=["star-100k", "chain-100k", "mix-100k"])
    arguments = parser.parse_args()
    programs = arguments.build / "bench"
    simgrid = programs / "bench_simgrid"
    if not simgrid.exists():
        print("SimGrid is not installed (Debian: libsimgrid-dev): the engine runs alone", file=sys.stderr)
    rows = []
    table = sys.stderr if arguments.json == "-" else sys.stdout
    print(f"{'graph':<14}{'tasks':>9}{'ours us/task':>14}{'SimGrid':>10}{'times':>8}{'our makespan s':>20}{'SimGrid':>20}{'difference':>12}",
          file=table)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.graphs:
            path = pathlib.Path(name)
            if not path.exists():
                path = pathlib.Path(folder) / f"{name}.tg"
                path.write_bytes(output_of([programs / "make_graph", name]))
            ours = json.loads(output_of([programs / "bench_engine", "--json", "-", path]))["graphs"][0]
            row = {"graph": name, "tasks": ours["tasks"], "tawpipe": {key: ours[key] for key in ("seconds", "bytes_per_task", "makespan_s")}}
            line = f"{name:<14}{ours['tasks']:>9}{1e6 * ours['seconds'] / max(ours['tasks'], 1):>14.3f}"
            if simgrid.exists():
                theirs = json.loads(output_of([simgrid, path]))
                row["simgrid"] = theirs
                row["speedup"] = theirs["seconds"] / ours["seconds"]
                row["relative_difference"] = ours["makespan_s"] / theirs["makespan_s"] - 1
                line += f"{1e6 * theirs['seconds'] / max(ours['tasks'], 1):>10.3f}{row['speedup']:>8.0f}"
                line += f"{ours['makespan_s']:>20.12f}{theirs['makespan_s']:>20.12f}{row['relative_difference']:>12.1e}"
            else:
                line += f"{'':>18}{ours['makespan_s']:>20.12f}"
            print(line, file=table, flush=True)
            rows.append(row)
    if arguments.json:
        text = json.dumps({"graphs": rows}, indent=2) + "\n"
        if arguments.json == "-":
            sys.stdout.write(text)
        else:
            pathlib.Path(arguments.json).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
