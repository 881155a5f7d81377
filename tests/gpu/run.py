#!/usr/bin/env python3
"""Builds and runs all GPU tests and benchmarks and writes one JSON file a result: tests/gpu/run.py RESULTS [BUILD-FOLDER].

Needs the CUDA toolkit with NCCL and cuDNN, CMake 3.25, a C++20 compiler and Python 3: no other package. PyTorch, where the Python
that runs this can import it, is measured beside. Ends with 0 if no test failed, and with 77 if all were skipped (no GPU).
Not: the tests that need no GPU (./run-tests).
"""
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 540  # seconds a test or benchmark


def run(command, limit=LIMIT, **more):
    began = time.monotonic()
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more)
    except OSError as missing:
        return {"command": " ".join(map(str, command)), "exit": 127, "seconds": 0, "output": "", "errors": str(missing)}
    try:
        output, errors = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
        output, errors = process.communicate()
        code, errors = 124, f"{errors}\nended after {limit} s"
    return {"command": " ".join(map(str, command)), "exit": code, "seconds": round(time.monotonic() - began, 1), "output": output,
            "errors": errors}


def machine():
    query = run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    commit = run(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    return {"device": query["output"].strip() if query["exit"] == 0 else None,
            "topology": run(["nvidia-smi", "topo", "-m"])["output"],
            "host": platform.platform(), "cores": os.cpu_count(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": commit["output"].strip() or None}


def folders_of_python():
    """Where pip's packages keep NCCL and cuDNN, for machines that have them nowhere else."""
    try:
        import nvidia
    except ImportError:
        return []
    return [str(folder) for base in nvidia.__path__ for folder in pathlib.Path(base).glob("*")
            if folder.name in ("nccl", "cudnn")]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    results = pathlib.Path(sys.argv[1]).resolve()
    build = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build-gpu").resolve()
    results.mkdir(parents=True, exist_ok=True)
    facts = machine()

    def write(name, result):
        (results / f"{name}.json").write_text(json.dumps({**facts, **result}, indent=1) + "\n")
        state = {0: "ok", 77: "skipped"}.get(result["exit"], f"FAILED ({result['exit']})")
        print(f"{name}: {state}, {result['seconds']} s", flush=True)
        return result["exit"]

    environment = dict(os.environ)
    if nvcc := shutil.which("nvcc"):
        environment.setdefault("CUDACXX", nvcc)
    prefixes = ";".join(folders_of_python())
    off = [f"-DTAWPIPE_BUILD_{part}=OFF" for part in ("SIM", "TESTS", "EXAMPLES", "BENCHMARKS")]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    architectures = ["-DTAWPIPE_CUDA_ARCHITECTURES=native"] if facts["device"] else []
    configured = run(["cmake", *generator, "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", *off,
                      "-DTAWPIPE_BUILD_GPU_TESTS=ON", "-DTAWPIPE_ENABLE_CUDA=ON", "-DTAWPIPE_INSTALL=OFF",
                      f"-DCMAKE_PREFIX_PATH={prefixes}", *architectures], env=environment)
    built = configured if configured["exit"] else run(["cmake", "--build", str(build), "--parallel", str(os.cpu_count())], limit=3600)
    if write("build", built):
        print(built["output"][-4000:], built["errors"][-4000:])
        return 1

    tests = json.loads(run(["ctest", "--test-dir", str(build), "-L", "^gpu$", "--show-only=json-v1"])["output"])
    codes = []
    for test in tests["tests"]:
        codes.append(write(test["name"].replace("gpu.", "test_"), run(test["command"])))
    for program in sorted((build / "bench").glob("bench_gpu_*")):
        result = run([str(program)])
        if result["exit"] == 0:
            result["result"] = json.loads(result["output"])
        codes.append(write(program.name, result))
    pytorch = run([sys.executable, str(ROOT / "bench/gpu/layer_pytorch.py")])
    layer = results / "bench_gpu_layer.json"
    if pytorch["exit"] == 0 and layer.exists() and "result" in (ours := json.loads(layer.read_text())):
        pytorch["result"] = json.loads(pytorch["output"].splitlines()[-1])
        theirs = {one["shape"]: one for one in pytorch["result"]["layers"]}
        pytorch["ours_over_theirs"] = {
            one["shape"]: {kind: theirs[one["shape"]][kind] / (one["forward_seconds"] + one["backward_seconds"])
                           for kind in ("seconds", "compiled_seconds") if kind in theirs[one["shape"]]}
            for one in ours["result"]["layers"]}
    write("bench_gpu_layer_pytorch", pytorch)
    failed = [code for code in codes if code not in (0, 77)]
    print(f"{len(codes)} programs: {codes.count(0)} ok, {codes.count(77)} skipped, {len(failed)} failed; results in {results}")
    return 1 if failed else 77 if 0 not in codes else 0


if __name__ == "__main__":
    sys.exit(main())
