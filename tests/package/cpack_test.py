#!/usr/bin/env python3
"""Makes the packages and runs the command out of them: cpack_test.py CPACK BUILD COMPILER.

The command needs no library of CUDA, MPI or protobuf, and says in one line what a module lacks. Not: an installation by dpkg.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

CPACK, BUILD, COMPILER = sys.argv[1:]
ABSENT = re.compile(r"lib(cuda|cudart|nccl|cudnn|cublas\w*|mpi|open-pal|open-rte|protobuf[-a-z]*)\b", re.IGNORECASE)


def output_of(command, **more):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **more).stdout


def check(holds, words):
    if not holds:
        sys.exit(words)


def check_command(command):
    """It starts, and small: in 20 MB, without what a machine may lack."""
    check(output_of([command, "--version"]).startswith("tawpipe "), "no version")
    needed = output_of(["readelf", "--dynamic", command])
    check("(NEEDED)" in needed and not ABSENT.search(needed), f"{command} needs too much:\n{needed}")
    peak = output_of([sys.executable, "-c", PEAK, command])
    check(int(peak) < 20_000, f"--version took {peak} KB")


# The kilobytes of a command's peak, or of this small program's if that is more.
PEAK = """import os, sys
pid = os.posix_spawn(sys.argv[1], [sys.argv[1], "--version"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
print(os.wait4(pid, 0)[2].ru_maxrss)
"""


def check_missing_library(command, modules, work):
    """A module whose library is not there, and no module."""
    modules.mkdir(parents=True, exist_ok=True)
    (work / "empty.cpp").write_text("extern \"C\" int absent_library() { return 1; }\n")
    (work / "module.cpp").write_text("extern \"C\" int absent_library();\nint call = absent_library();\n")
    output_of([COMPILER, "-shared", "-fPIC", work / "empty.cpp", "-o", work / "libabsent_library.so"])
    output_of([COMPILER, "-shared", "-fPIC", work / "module.cpp", "-o", modules / "tawpipe-cuda.so", f"-L{work}", "-labsent_library"])
    (work / "libabsent_library.so").unlink()
    (modules / "tawpipe-mpi.so").unlink(missing_ok=True)
    (work / "text").write_text("so many words that a step of one sequence can be taken from them\n" * 8)
    for backend, code, words in (("cuda", 3, ["--backend cuda", "libabsent_library.so", "--backend host"]),
                                 ("mpi", 2, ["--backend mpi", "tawpipe-mpi.so", "--backend host"])):
        result = subprocess.run([command, "train", "--data", work / "text", "--model", "llama-1x16", "--sequence", "8", "--global-batch",
                                 "1", "--steps", "1", "--backend", backend], capture_output=True, text=True)
        check(result.returncode == code and result.stderr.count("\n") == 1 and all(word in result.stderr for word in words),
              f"--backend {backend} ended with {result.returncode}: {result.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        output_of([CPACK, "--config", f"{BUILD}/CPackConfig.cmake", "-B", work / "packages"], cwd=BUILD)
        debs = {output_of(["dpkg-deb", "--field", deb, "Package"]).strip(): deb for deb in (work / "packages").glob("*.deb")}
        check({"tawpipe", "libtawpipe-dev"} <= set(debs), f"the packages are {sorted(debs)}")
        depends = output_of(["dpkg-deb", "--field", debs["tawpipe"], "Depends"])
        check("libc6" in depends and not ABSENT.search(depends), f"tawpipe depends on {depends}")
        output_of(["dpkg-deb", "--extract", debs["tawpipe"], work / "deb"])
        check_command(work / "deb/usr/bin/tawpipe")
        share = work / "deb/usr/share"
        check((share / "bash-completion/completions/tawpipe").exists(), "no completion for bash in the package")
        check(shutil.which("help2man") is None or list((share / "man/man1").glob("tawpipe-compare.1*")), "no man page in the package")

        archives = list((work / "packages").glob("*.tar.gz"))
        check(len(archives) == 1, f"the archives are {archives}")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(work / "archive")
        command = next((work / "archive").glob("**/bin/tawpipe"))
        check_command(command)
        installed = [path.parent for path in command.parents[1].glob("lib*/**/tawpipe-*.so")]
        modules = installed[0] if installed else command.parent
        check_missing_library(command, modules, work)


if __name__ == "__main__":
    main()
