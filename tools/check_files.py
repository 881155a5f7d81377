#!/usr/bin/env python3
"""Refuses tracked files that do not belong: check_files.py [ROOT].

Larger than 1 MB outside tests/data and docs/pictures, or hidden in the root and not one that a tool is known to read there (a
compiler that is told `-o ""` leaves a `.json`). Prints each and what would be right; exit 1 on one, 77 where there is no git.
"""
import fnmatch
import pathlib
import subprocess
import sys

LARGEST = 1_000_000
LARGE_FOLDERS = ("tests/data/", "docs/pictures/")
HIDDEN = (".clang-format", ".clang-tidy", ".gitignore", ".gitattributes", ".editorconfig", ".dockerignore", ".ci/*", ".github/*")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        listed = None
    if listed is None or listed.returncode != 0:
        print("skipped: no git, or not a clone")
        sys.exit(77)
    errors = 0
    for name in filter(None, listed.stdout.split("\0")):
        file = root / name
        size = file.lstat().st_size if file.exists() else 0
        if size > LARGEST and not name.startswith(LARGE_FOLDERS):
            print(f"{name}: error: {size:,} bytes; tracked files have at most {LARGEST:,}, but in {' and '.join(LARGE_FOLDERS)}")
            errors += 1
        if name.startswith(".") and not any(fnmatch.fnmatch(name, known) for known in HIDDEN):
            print(f"{name}: error: a hidden file that no tool is known to read here; remove it, or name it in tools/check_files.py")
            errors += 1
    sys.exit(1 if errors else 0)


main()
