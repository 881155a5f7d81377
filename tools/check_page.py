#!/usr/bin/env python3
"""Checks the files of the page of a report, include/tawpipe/report/page/: check_page.py [FOLDER].

Syntax by `node --check` where there is a node (Debian's nodejs), by brackets alone where there is none; no names that are used nowhere,
no ids that the page lacks, no colours that a theme lacks, nothing that takes text for code. Prints file:line and what would be right;
exit 1 on an error.
"""
import pathlib
import re
import shutil
import subprocess
import sys

WIDEST = 160
REFUSED = {r"\beval\(": "no text is code", r"\.innerHTML\b": "append elements; a name may hold markup", r"\bdocument\.write\b": "append elements",
           r"(?<![=!])==(?!=)": "===", r"(?<!!)!=(?!=)": "!==", r"^\s*var ": "const or let", r"\bconsole\.": "nothing is left for debugging",
           r"\bnew Function\b": "no text is code"}
WITHOUT_WORDS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


class Checker:
    def __init__(self, folder):
        self.files = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}
        self.folder = folder
        self.errors = 0

    def error(self, name, line, text):
        print(f"{self.folder / name}:{line}: error: {text}")
        self.errors += 1

    def lines(self):
        for name, text in self.files.items():
            for number, line in enumerate(text.splitlines(), 1):
                if len(line) > WIDEST:
                    self.error(name, number, f"{len(line)} columns; at most {WIDEST}")
                if line != line.rstrip() or "\t" in line:
                    self.error(name, number, "a tab, or spaces at the end")
                for pattern, right in REFUSED.items() if name.endswith(".js") else ():
                    if re.search(pattern, WITHOUT_WORDS.sub("", line)):
                        self.error(name, number, f"{pattern}: {right}")
            if name.endswith(".js") and not re.match(r'("use strict";\n)?//', text):
                self.error(name, 1, "begins with a comment that says what it is")

    def syntax(self):
        node = shutil.which("node")
        for name, text in self.files.items():
            if not name.endswith(".js"):
                continue
            if node:
                done = subprocess.run([node, "--check", self.folder / name], capture_output=True, text=True)
                if done.returncode != 0:
                    self.error(name, 1, done.stderr.strip())
            else:
                bare = re.sub(r"`(?:\\.|[^`\\])*`|/(?:\\.|\[[^\]]*\]|[^/\\\n\[ ])+/", "", WITHOUT_WORDS.sub("", text))
                for opening, closing in ("()", "[]", "{}"):
                    if bare.count(opening) != bare.count(closing):
                        self.error(name, 1, f"{bare.count(opening)} {opening} and {bare.count(closing)} {closing}")

    def names(self):
        scripts = "".join(text for name, text in self.files.items() if name.endswith(".js"))
        style = self.files["page.css"]
        for name, text in self.files.items():
            if not name.endswith(".js"):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                made = re.match(r"(?:async )?(?:function|const|let|class) (\w+)", line)
                if made and len(re.findall(rf"\b{made[1]}\b", scripts)) < 2:
                    self.error(name, number, f"{made[1]} is used nowhere")
                for one in re.findall(r'\$\("([\w-]+)"\)', line):
                    if f'id="{one}"' not in self.files["page.html"] and f'id: "{one}"' not in scripts:
                        self.error(name, number, f'nothing has the id "{one}"')
        themes = style.split("@media (prefers-color-scheme: dark)")
        for one in sorted(set(re.findall(r"var\((--[\w-]+)\)", style + scripts))):
            for theme, text in zip(("light", "dark"), themes):
                if f"{one}:" not in text:
                    self.error("page.css", 1, f"{one} has no value in the {theme} theme")


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "include/tawpipe/report/page"
    checker = Checker(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    checker.lines()
    checker.syntax()
    checker.names()
    print(f"{len(checker.files)} files, {checker.errors} errors")
    sys.exit(1 if checker.errors else 0)


main()
