#!/usr/bin/env python3
"""Builds a wheel from the sources, installs it in a clean virtual environment, and runs the tests of this folder there.

install_test.py SOURCE WORK COMMAND COMPILED: COMMAND is the `tawpipe` whose table must be the same, COMPILED the folder with the
libraries that the build of COMMAND compiled from the same sources. Exit 77, with a word why, where PyPI cannot be reached or
Python has no venv.
"""
import os
import pathlib
import shutil
import subprocess
import sys

SKIP = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def run(*command, **more):
    return subprocess.run([str(part) for part in command], **more)


def main():
    source, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    tools, user = work / "tools", work / "user"
    for folder in (tools, user):
        shutil.rmtree(folder, ignore_errors=True)
        without = ["--without-pip"] if folder == user else []  # the other's pip installs there too
        if run(sys.executable, "-m", "venv", *without, folder, capture_output=True).returncode != 0:
            skip("this Python makes no virtual environments; on Debian: apt-get install python3-venv")
    if sys.platform == "linux" and not pathlib.Path(get_include(tools / "bin/python"), "Python.h").exists():
        skip("Python's headers are missing; on Debian: apt-get install python3-dev")
    quiet = ["--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    if run(tools / "bin/pip", "install", *quiet, "scikit-build-core", "nanobind").returncode != 0:
        skip("PyPI cannot be reached: scikit-build-core and nanobind are not installed")
    if run(tools / "bin/pip", "--python", user, "install", *quiet, "numpy").returncode != 0:
        skip("PyPI cannot be reached: numpy is not installed")
    # The build folder stays: a second run compiles only what changed. -O0 compiles in less than half of the time of a release.
    environment = dict(os.environ, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()), PATH=f"{tools / 'bin'}:{os.environ['PATH']}")
    wheels = work / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    run(tools / "bin/pip", "wheel", *quiet, "--no-build-isolation", "--no-deps", f"-Cbuild-dir={work / 'build'}",
        "-Ccmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0", f"-Ccmake.define.TAWPIPE_COMPILED_FOLDER={sys.argv[4]}", "-w", wheels, source,
        check=True, env=environment)
    wheel, = wheels.glob("tawpipe-*.whl")
    run(tools / "bin/pip", "--python", user, "install", *quiet, "--no-deps", wheel, check=True)
    environment["TAWPIPE_COMMAND"] = sys.argv[3]
    tests = ["test_tawpipe.py", "test_experts.py", "test_run_cost.py"]
    sys.exit(max(run(user / "bin/python", source / "tests/python" / test, cwd=work, env=environment).returncode for test in tests))


def get_include(python):
    return run(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))", capture_output=True, text=True,
               check=True).stdout.strip()


main()
