#!/usr/bin/env python3
"""Makes a wheel by tools/wheel, installs it in an empty virtual environment, and runs the tests of this folder there, with nothing
else on the path: neither compiler nor libraries of ours are needed.

install_test.py SOURCE WORK COMMAND COMPILED: COMMAND is the `tawpipe` that must answer the same, COMPILED the folder with the
libraries that the build of COMMAND compiled from the same sources. Exit 77, with a word why, where PyPI cannot be reached or
Python has no venv.
"""
import os
import pathlib
import shutil
import subprocess
import sys

SKIP = 77


def run(*command, **more):
    return subprocess.run([str(part) for part in command], **more)


def main():
    source, work, command, compiled = sys.argv[1:]
    source, work = pathlib.Path(source), pathlib.Path(work)
    tools, user, made = work / "tools", work / "user", work / "made"
    for folder in (tools, user, made):
        shutil.rmtree(folder, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    # -O0 compiles in less than half of the time of a release; modules for MPI are tested with the command (label mpi).
    done = run(source / "tools/wheel", made, "-Ccmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0",
               f"-Ccmake.define.TAWPIPE_COMPILED_FOLDER={compiled}", "-Ccmake.define.TAWPIPE_ENABLE_MPI=OFF",
               env={**os.environ, "WHEEL_TOOLS": str(tools), "PYTHON": sys.executable})
    if done.returncode != 0:
        return done.returncode
    wheel, = made.glob("tawpipe-*.whl")
    assert "-manylinux_" in wheel.name, wheel
    assert len(list(made.glob("tawpipe-*.tar.gz"))) == 1

    run(sys.executable, "-m", "venv", "--without-pip", user, check=True)  # the other's pip installs there too
    pip = [tools / "bin/pip", "--python", user, "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    if run(*pip, "numpy").returncode != 0:
        print("skipped: PyPI cannot be reached: numpy is not installed")
        return SKIP
    run(*pip, "--no-deps", wheel, check=True)
    environment = {**os.environ, "PATH": str(user / "bin"), "TAWPIPE_COMMAND": command}
    tests = ["test_tawpipe.py", "test_plan.py", "test_fields.py", "test_today.py", "test_experts.py", "test_run_cost.py", "test_command.py"]
    return max(run(user / "bin/python", source / "tests/python" / test, cwd=work, env=environment).returncode for test in tests)


sys.exit(main())
