#!/usr/bin/env python3
"""Tests of tools/check_page.py: what it refuses, with a node and without one."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/check_page.py"
GOOD = {"page.html": '<p id="here"></p>\n', "page.css": ":root { --back: #fff; }\n@media (prefers-color-scheme: dark) { :root { --back: #000; } }\n",
        "one.js": '"use strict";\n// What it is.\nconst place = $("here");\nplace.append("var(--back)");\n'}


class CheckPage(unittest.TestCase):
    def check(self, changes, path=os.environ["PATH"]):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **changes}.items():
                pathlib.Path(folder, name).write_text(text)
            done = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, text=True, env={**os.environ, "PATH": path})
            return done.returncode, done.stdout

    def test_good_files_pass(self):
        self.assertEqual(self.check({}), (0, "3 files, 0 errors\n"))
        self.assertEqual(self.check({}, path="")[0], 0)

    def test_what_is_wrong_is_named(self):
        more = GOOD["one.js"]
        for added, told in ((f"{more}x = a == b;\n", "==="), (f"{more}place.innerHTML = a;\n", "append elements"), (f"{more}eval(place);\n", "no text is code"),
                            (f"{more}function lonely() {{}}\n", "lonely is used nowhere"), (f'{more}$("nowhere");\n', 'nothing has the id "nowhere"'),
                            (f'{more}place.append("var(--none)");\n', "--none has no value in the light theme"), (more + "\t\n", "a tab"),
                            (more + "// " + "x" * 160 + "\n", "163 columns"), (f"{more}place.append((1);\n", "one.js:1"), ("const a = 1; a;\n", "begins with a comment")):
            for path in (os.environ["PATH"], ""):
                code, text = self.check({"one.js": added}, path)
                self.assertEqual(code, 1, added)
                self.assertIn(told, text)

    def test_words_of_text_are_not_code(self):
        self.assertEqual(self.check({"one.js": GOOD["one.js"] + 'place.append("a == b");  // eval(this)\n'})[0], 0)


if __name__ == "__main__":
    unittest.main()
