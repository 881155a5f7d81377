#!/usr/bin/env python3
"""Checks what our texts refer to: links and headings in Markdown, headers that tools/layers.toml lists and, given the command,
each flag that a command line in Markdown uses.

Not: addresses of the web. Prints file: what is wrong; exit 1 if anything is.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["bench", "docs", "examples", "sim", "tests", "tools"]
FENCE = re.compile(r"^```.*?^```", re.S | re.M)


def headings(path):
    """The anchors that GitHub gives a file's headings."""
    lines = FENCE.sub("", path.read_text(encoding="utf-8")).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def check_links(path, text):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists():
            yield f"link to {link}, which does not exist"
        elif anchor and anchor not in headings(target):
            yield f"link to {link}, and {target.name} has no such heading"


def check_table(text):
    made = tomllib.loads(text)["generated"]
    for name in re.findall(r'"(\w+/[\w/]+\.\w+)"', re.sub("#.*", "", text)):
        if name not in made and not (ROOT / "include/tawpipe" / name).exists():
            yield f"{name} is listed, and there is no such header"


def check_flags(command, text, helps):
    for block in re.findall(r"^```.*?\n(.*?)^```", text, re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:\S*/)?tawpipe((?: [a-z][\w-]*)+)(.*)", line.split(" | ")[0])
            if not found:
                continue
            words = tuple(found[1].split())
            while words not in helps:  # of `tawpipe topology import node.txt` the first two are the command
                shown = subprocess.run([command, *words, "--help"], capture_output=True, text=True)
                if shown.returncode == 0 or len(words) == 1:
                    helps[words] = shown.stdout
                else:
                    words = words[:-1]
            for flag in re.findall(r"(?<=\s)--[a-z][\w-]*", found[0].split("#")[0]):
                if not re.search(re.escape(flag) + r"(?![\w-])", helps[words]):
                    yield f"`{line.strip()[:60]}`: tawpipe {' '.join(words)} has no flag {flag}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", help="the built tawpipe, whose flags are checked too")
    command = parser.parse_args().command
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md"))]
    files += sorted(ROOT.glob("*.md")) + [ROOT / "tools/layers.toml"]
    helps = {}
    wrong = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        found = list(check_links(path, text) if path.suffix == ".md" else check_table(text))
        if command and path.suffix == ".md":
            found += check_flags(command, text, helps)
        for what in found:
            print(f"{path.relative_to(ROOT)}: {what}")
        wrong += len(found)
    print(f"{len(files)} files, {wrong} wrong references")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
