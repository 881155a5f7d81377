#!/usr/bin/env python3
"""Tests of header_chains.py on headers of a few lines. Not: the headers of the library."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("header_chains.py")


def chains_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "tawpipe"
        root.mkdir()
        for name, text in files.items():
            (root / name).write_text("// What it is.\n#pragma once\n\n" + text)
        out = subprocess.run([sys.executable, SCRIPT, folder, *files], check=True, capture_output=True, text=True).stdout
    return [line.split() for line in out.splitlines()]


class Chains(unittest.TestCase):
    def test_headers_that_include_one_another_are_one_chain(self):
        files = {"c.hpp": '#include "tawpipe/b.hpp"\n', "a.hpp": "int a;\n", "b.hpp": '#include <vector>\n\n#include "tawpipe/a.hpp"\n'}
        self.assertEqual(chains_of(files), [["a.hpp", "b.hpp", "c.hpp"]])

    def test_each_header_stands_once(self):
        files = {"a.hpp": "", "b.hpp": '#include "tawpipe/a.hpp"\n', "c.hpp": '#include "tawpipe/a.hpp"\n', "d.hpp": ""}
        self.assertEqual(sorted(sum(chains_of(files), [])), sorted(files))
        self.assertEqual(len(chains_of(files)), 3)

    def test_an_include_that_may_come_too_late_or_never_counts_for_nothing(self):
        for late in ("int b;\n", "#ifdef SOMETHING\n", "namespace tawpipe {\n"):
            files = {"a.hpp": "", "b.hpp": late + '#include "tawpipe/a.hpp"\n'}
            self.assertEqual(len(chains_of(files)), 2, late)


if __name__ == "__main__":
    unittest.main()
