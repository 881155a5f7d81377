#!/usr/bin/env python3
"""tools/check_files.py on repositories made here: what it refuses, and what it lets pass. Not: this repository's own files."""
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "check_files.py"


def check(files, expected, words):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        if files is not None:
            subprocess.run(["git", "init", "-q", folder], check=True)
        for name, size in (files or {}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x" * size)
        if files is not None:
            subprocess.run(["git", "add", "--all", "--force"], cwd=folder, check=True)
        result = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True)
        assert result.returncode == expected, (files, result)
        for word in words:
            assert word in result.stdout, (word, result)


check({"README.md": 10, ".gitignore": 5, ".ci/run": 5, "tests/data/x.bin": 2_000_000, "docs/pictures/a.png": 1_500_000}, 0, [])
check({".json": 3}, 1, [".json: error: a hidden file"])
check({"examples/data/long.txt": 1_000_001}, 1, ["examples/data/long.txt: error: 1,000,001 bytes"])
check({"examples/data/long.txt": 1_000_000}, 0, [])
check(None, 77, ["skipped: no git"])
