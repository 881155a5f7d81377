#!/usr/bin/env python3
"""Puts headers in chains: each is included by the one behind it. A line is a chain.

Whoever compiles a chain in that order proves each of its headers to compile alone: what stands before a header is nothing but what
it includes itself. That holds if it includes it before anything else, so includes behind other lines or `#if` are not counted.
Not: the compilation (CMakeLists.txt).
"""
import pathlib
import re
import sys


def first_includes(path):
    """The headers of this project that the file includes before its first line of anything else; none of one that the build makes."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        if include := re.match(r'#include (?:"(tawpipe/[^"]+)"|<|")', line):
            if include[1]:
                yield include[1]
        elif line.strip() and not line.startswith(("//", "#pragma once")):
            return


def main():
    root = pathlib.Path(sys.argv[1])
    headers = [f"tawpipe/{header}" for header in sys.argv[2:]]
    closures = {}

    def closure(header):
        if header not in closures:
            direct = list(first_includes(root / header))
            closures[header] = set(direct).union(*map(closure, direct))
        return closures[header]

    includers = {header: [other for other in headers if header in closure(other)] for header in headers}
    before = {}  # the header that a header has before it in its chain

    def place(header, seen):
        """Finds `header` a place before one that includes it, moving others (Kuhn's matching)."""
        for other in includers[header]:
            if other not in seen:
                seen.add(other)
                if other not in before or place(before[other], seen):
                    before[other] = header
                    return True
        return False

    for header in sorted(headers, key=lambda header: (-len(closure(header)), header)):  # the longest are saved first
        place(header, set())
    for last in sorted(set(headers) - set(before.values())):
        chain = [last]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        print(" ".join(header.removeprefix("tawpipe/") for header in reversed(chain)))


if __name__ == "__main__":
    main()
