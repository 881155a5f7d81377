#!/usr/bin/env python3
"""Builds and runs one part of the GPU tests and benchmarks: run.py PART RESULTS [OPTION]...

PART is build-and-speed, schedules or why; each ends within --seconds (540) and writes at most 8 JSON files into the folder
RESULTS, each step's as soon as it has ended. The steps stand in the order in which they are wanted; a step whose time is over is
ended, and what has no time left is left out and said so. Ends with 1 if a step failed, with 77 if all were skipped (no GPU).

  --build FOLDER     where it builds (build-gpu); a build of the whole repository with --built
  --built            builds nothing: takes the programs that are in --build
  --packages FOLDER  Debian packages (*.deb) that the command needs; without them it is built where they are installed
  --divide N         benchmarks by N smaller, for the software GPU
  --seconds N        for the whole part

Needs the CUDA toolkit with NCCL and cuDNN (or PyTorch's packages of them), CMake 3.25, a C++20 compiler and Python 3.9.
Not: the tests that need no GPU (./run-tests).
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

# Targets that a part builds, then its steps: (kind, name, seconds). A bench is a program that prints JSON lines, a script one in
# Python that does; tests are those of ctest with the label, in its order and with its limits, all in one file.
PARTS = {
    "build-and-speed": (
        ["bench_gpu_layer", "bench_gpu_tawpipe"],
        [("bench", "layer", 90), ("script", "layer_pytorch", 150), ("bench", "tawpipe", 60),
         ("build", "tawpipe_gpu_speed_tests", 150), ("tests", "gpu_speed", None)]),
    "schedules": (
        ["tawpipe_gpu_schedules_tests"],
        [("tests", "gpu_schedules", None)]),
    "why": (
        ["bench_gpu_kernels", "bench_gpu_beside", "tawpipe_gpu_why_tests"],
        [("bench", "kernels", 90), ("bench", "beside", 60), ("tests", "gpu_why", None)]),
}


def run(command, limit, skips=(), **more):
    """What became of a command that is given `limit` seconds, with all that it starts; skips: words that say that it could not."""
    began = time.monotonic()
    result = {"command": " ".join(map(str, command))}
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True, **more)
    except OSError as missing:
        return {**result, "exit": 127, "seconds": 0, "output": "", "errors": str(missing)}
    try:
        output, errors = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        code, errors = 124, f"{errors}\nended after {limit:.0f} s"
    if code != 0 and any(re.search(words, output + errors) for words in skips):
        code = SKIPPED
    return {**result, "exit": code, "seconds": round(time.monotonic() - began, 1), "output": output, "errors": errors}


def machine():
    query = run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], 20)
    commit = run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], 20)
    return {"device": query["output"].strip() if query["exit"] == 0 else None,
            "host": platform.platform(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": commit["output"].strip() or os.environ.get("TAWPIPE_COMMIT")}


def folders_of_python():
    """Where pip's packages keep NCCL, cuDNN and the toolkit's libraries, for machines that have them nowhere else."""
    try:
        import nvidia
    except ImportError:
        return []
    return [pathlib.Path(base) / name for base in nvidia.__path__ for name in ("nccl", "cudnn", "cu13")
            if (pathlib.Path(base) / name).is_dir()]


def json_lines(text):
    """The complete JSON objects of a program's output, a line each: those of one that was ended, too."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [one for one in found if isinstance(one, dict)]


def against_pytorch(ours, theirs):
    """How many times as fast as PyTorch each shape is."""
    seconds = {one["shape"]: one["forward_seconds"] + one["backward_seconds"] for one in ours if "shape" in one}
    ratios = {}
    for one in theirs:
        for kind in ("seconds", "compiled_seconds"):
            if kind in one and one["shape"] in seconds:
                ratios.setdefault(one["shape"], {})[kind] = one[kind] / seconds[one["shape"]]
    return ratios


class Part:
    def __init__(self, arguments):
        self.name, self.results, self.divide = arguments.part, arguments.results.resolve(), arguments.divide
        self.build, self.built, self.packages = arguments.build.resolve(), arguments.built, arguments.packages
        self.deadline = time.monotonic() + arguments.seconds
        self.results.mkdir(parents=True, exist_ok=True)
        self.facts = machine()
        self.codes, self.files = [], {}
        self.environment = dict(os.environ)
        if nvcc := shutil.which("nvcc"):
            self.environment.setdefault("CUDACXX", nvcc)
        self.prefixes = folders_of_python()

    def note(self, file, name, result):
        """Adds a step's result to a file, and writes that."""
        kept = self.files.setdefault(file, {"part": self.name, **self.facts, "steps": {}})
        kept["steps"][name] = result
        target = self.results / f"{self.name}.{file}.json"
        target.with_suffix(".part").write_text(json.dumps(kept, indent=1) + "\n")
        target.with_suffix(".part").replace(target)
        self.codes.append(result["exit"])
        states = {0: "ok", SKIPPED: "skipped", None: "left out: the part's time was over"}
        state = states.get(result["exit"], f"FAILED ({result['exit']})")
        print(f"{name}: {state}, {result['seconds']} s", flush=True)
        if result["exit"] not in (0, SKIPPED, None):
            print((result["output"] + result["errors"])[-3000:], flush=True)

    def step(self, file, name, command, seconds, keep=None, skips=()):
        limit = min(seconds, self.deadline - 5 - time.monotonic())  # the part's last seconds are for writing
        if limit < 2:
            result = {"command": " ".join(map(str, command)), "exit": None, "seconds": 0, "output": "", "errors": ""}
        else:
            result = run(command, limit, skips, env=self.environment)
            if result["exit"] == 124 and limit < seconds:
                result["exit"] = None
        if keep:
            keep(result)
        result["output"], result["errors"] = result["output"][-20000:], result["errors"][-20000:]
        self.note(file, name, result)
        return result["exit"] == 0

    def configure(self):
        prefixes, with_command = list(map(str, self.prefixes)), ["-DTAWPIPE_BUILD_SIM=OFF"]
        if self.packages:
            unpacked = self.build / "packages"
            unpacked.mkdir(parents=True, exist_ok=True)
            for package in sorted(self.packages.glob("*.deb")):
                self.step("build", f"unpack {package.name}", ["dpkg", "-x", str(package), str(unpacked)], 60)
            prefixes.append(str(unpacked / "usr"))
            libraries = unpacked / "usr/lib" / f"{platform.machine()}-linux-gnu"
            blas = libraries / "openblas-pthread"
            self.environment["CPATH"] = str(unpacked / "usr/include" / f"{platform.machine()}-linux-gnu" / "openblas-pthread")
            self.add_libraries([libraries, blas])
            with_command = [f"-DCMAKE_LIBRARY_PATH={blas}", "-DTAWPIPE_BUILD_SIM=ON"]
        off = [f"-DTAWPIPE_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "BENCHMARKS")]
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        architectures = ["-DTAWPIPE_CUDA_ARCHITECTURES=native"] if self.facts["device"] else ["-DTAWPIPE_CUDA_ARCHITECTURES=90"]
        return self.step("build", "configure",
                         ["cmake", *generator, "-S", str(ROOT), "-B", str(self.build), "-DCMAKE_BUILD_TYPE=Release", *off,
                          *with_command, "-DTAWPIPE_BUILD_GPU_TESTS=ON", "-DTAWPIPE_ENABLE_CUDA=ON",
                          "-DTAWPIPE_ENABLE_MPI=OFF", "-DTAWPIPE_INSTALL=OFF", f"-DCMAKE_PREFIX_PATH={';'.join(prefixes)}",
                          *architectures], 60)

    def compile(self, targets, seconds):
        """As much of it as can be: the steps say what is missing."""
        command = ["cmake", "--build", str(self.build), "--parallel", str(self.facts["cores"]), "--target", *targets, "--", "-k"]
        if shutil.which("ninja"):
            command.append("0")
        if not self.built:
            self.step("build", f"build {' '.join(targets)}", command, seconds)

    def add_libraries(self, folders):
        """Behind what the caller has named: the software GPU stays first."""
        named = [self.environment.get("LD_LIBRARY_PATH", ""), *map(str, folders)]
        self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, named))

    def bench(self, name, command, seconds):
        def keep(result):
            result["result"] = json_lines(result.pop("output"))
            result["output"] = ""
            if name == "layer_pytorch" and "layer" in self.files:
                ours = self.files["layer"]["steps"]["layer"].get("result", [])
                result["ours_over_theirs"] = against_pytorch(ours, result["result"])
        self.step(name, name, command, seconds, keep)

    def tests(self, label):
        listed = run(["ctest", "--test-dir", str(self.build), "-L", f"^{label}$", "--show-only=json-v1"], 60)
        tests = json.loads(listed["output"])["tests"] if listed["exit"] == 0 else []
        for test in tests:
            properties = {one["name"]: one["value"] for one in test.get("properties", [])}
            self.step("tests", test["name"], test.get("command", ["not built"]), properties.get("TIMEOUT", 120),
                      skips=properties.get("SKIP_REGULAR_EXPRESSION", ()))

    def run(self):
        targets, steps = PARTS[self.name]
        began = time.monotonic()
        if not self.built:
            if not self.configure():
                return 1
            self.compile(targets, 300)
        build = len(self.codes)
        self.add_libraries(folder / "lib" for folder in self.prefixes)
        for kind, name, seconds in steps:
            if kind == "build":
                self.compile([name], seconds)
            elif kind == "tests":
                self.tests(name)
            elif kind == "bench":
                self.bench(name, [str(self.build / "bench" / f"bench_gpu_{name}"), str(self.divide)], seconds)
            else:
                self.bench(name, [sys.executable, str(ROOT / "bench/gpu" / f"{name}.py"), str(self.divide)], seconds)
        counts = [self.codes.count(code) for code in (0, SKIPPED, None)]
        failed = len(self.codes) - sum(counts)
        print(f"{self.name}: {counts[0]} ok, {counts[1]} skipped, {counts[2]} left out, {failed} failed in "
              f"{time.monotonic() - began:.0f} s; results in {self.results}")
        return 1 if failed else SKIPPED if set(self.codes[build:]) == {SKIPPED} else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu")
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--packages", type=pathlib.Path)
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540)
    return Part(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
