#!/usr/bin/env python3
"""NCCL and cuDNN are found in Python's packages as pip leaves them (no libnccl.so without a number), where nothing else has them.

found.py SOURCE NCCL.H LIBNCCL CUDNN.H LIBCUDNN.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE, *FILES = sys.argv[1:]


def install(site):
    """nvidia/nccl and nvidia/cudnn of links to this machine's files. @return their folders"""
    headers = {"nccl": FILES[0], "cudnn": FILES[2]}
    for name, library in (("nccl", FILES[1]), ("cudnn", FILES[3])):
        for folder in ("include", "lib"):
            (site / "nvidia" / name / folder).mkdir(parents=True)
        for header in pathlib.Path(headers[name]).parent.glob(f"{name}*.h"):
            (site / "nvidia" / name / "include" / header.name).symlink_to(header.resolve())
        for one in pathlib.Path(library).parent.glob(f"lib{name}*.so.[0-9]"):
            (site / "nvidia" / name / "lib" / one.name).symlink_to(one.resolve())
    return [site / "nvidia" / name for name in headers]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        prefixes = install(folder / "site")
        done = subprocess.run(["cmake", "-S", SOURCE, "-B", folder / "build", "-DTAWPIPE_BUILD_TESTS=OFF", "-DTAWPIPE_BUILD_SIM=OFF",
                               "-DTAWPIPE_BUILD_EXAMPLES=OFF", "-DTAWPIPE_BUILD_BENCHMARKS=OFF", "-DTAWPIPE_ENABLE_CUDA=ON",
                               "-DTAWPIPE_ENABLE_MPI=OFF", "-DTAWPIPE_CUDA_ARCHITECTURES=90",
                               f"-DCMAKE_PREFIX_PATH={';'.join(map(str, prefixes))}"], capture_output=True, text=True)
        cache = folder / "build" / "CMakeCache.txt"
        known = cache.read_text() if cache.exists() else ""
        for library, version in (("NCCL", "2"), ("CUDNN", "9")):
            found = re.search(rf"^{library}_LIBRARY:FILEPATH=(.*)$", known, re.M)
            right = found is not None and found[1] == f"{folder}/site/nvidia/{library.lower()}/lib/lib{library.lower()}.so.{version}"
            print(f"{'ok' if right else 'FAILED'}: {library} is found in its package: {found and found[1]}")
            failed += not right
        if failed:
            print(done.stdout + done.stderr)
    return 1 if failed else 0


sys.exit(main())
