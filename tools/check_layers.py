#!/usr/bin/env python3
"""Checks every header of include/tawpipe/ against tools/layers.toml: which room includes what, and the form of a header;
and that no source file is too long.

Not: a preprocessor; an include inside `#if` counts. Prints file:line and what would be right; exit 1 on an error.
"""
import argparse
import graphlib
import pathlib
import re
import sys
import tomllib

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LONGEST = 400  # lines of a source file
SOURCE_FOLDERS = ("include", "src", "sim", "python/src", "tests", "examples", "bench")
SOURCES = (".hpp", ".cpp", ".cuh", ".cu", ".py")


def public_texts(folder):
    """The headers of a folder without what stands in namespace detail."""
    private = re.compile(r"^namespace detail {.*?^}  // namespace detail$", re.MULTILINE | re.DOTALL)
    return [private.sub("", header.read_text(encoding="utf-8")) for header in folder.glob("*.hpp")]


class Checker:
    def __init__(self, root, table):
        self.root = root
        self.include = root / "include"
        self.rooms = table["rooms"]
        self.files = table.get("files", {})
        self.third_party = table["third_party"]
        self.heavy = set(table["heavy_headers"])
        self.generated = table.get("generated", [])
        self.version = table["version_namespace"]
        self.errors = 0
        self.reached = {}  # header -> {third party: the header of ours that includes it}

    def error(self, place, text):
        print(f"{place}: error: {text}")
        self.errors += 1

    def check_table(self):
        graph = {}
        for room, rules in self.rooms.items():
            graph[room] = {entry.split("/")[0] for entry in rules["includes"]}
            for unknown in graph[room] - self.rooms.keys():
                self.error("layers.toml", f"room {room} includes {unknown}, which is no room of the table")
            for unknown in set(rules.get("third_party", [])) - self.third_party.keys():
                self.error("layers.toml", f"room {room} uses {unknown}, which is not under [third_party]")
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as cycle:
            self.error("layers.toml", f"the rooms include each other in a circle: {' -> '.join(cycle.args[1])}")

    def check_header(self, path):
        name = path.relative_to(self.include / "tawpipe").as_posix()  # room/header.hpp
        place = path.relative_to(self.root).as_posix()
        room = name.split("/")[0] if "/" in name else "."
        if room not in self.rooms:
            self.error(place, f"room {room} is not in tools/layers.toml")
            return
        lines = path.read_text(encoding="utf-8").splitlines()
        if not (len(lines) >= 2 and lines[0].startswith("// ") and lines[1].startswith("//")):
            self.error(f"{place}:1", "a header opens with two comment lines: what it is, and what it is not")
        if "#pragma once" not in lines:
            self.error(f"{place}:1", "#pragma once is missing")

        for number, line in enumerate(lines, 1):
            if line.startswith("namespace tawpipe") and not line.startswith(f"namespace tawpipe::inline {self.version}"):
                self.error(f"{place}:{number}", f"open namespace tawpipe::inline {self.version}, so that two versions can share a program")

        rules = self.rooms[room]
        own = self.files.get(name, {})
        rooms = rules["includes"] + own.get("includes", [])
        third_party = self.third_party_of(name)
        heavy = own.get("heavy", rules.get("heavy", False))
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if found:
                self.check_include(f"{place}:{number}", room, found[1] == '"', found[2], rooms, third_party, heavy)

        if path.name == "fwd.hpp":
            self.check_forward(place, path, lines)

    def check_forward(self, place, path, lines):
        """What a room's fwd.hpp declares, one of its headers defines in the same words, outside of its private namespace."""
        texts = public_texts(path.parent)
        for number, line in enumerate(lines, 1):
            name = re.match(r"((?:class|struct|enum class) \w+);$", line)
            if name and not any(re.search(rf"(?<!>)\n{name[1]}( final)?( :.*)? {{", text) for text in texts):
                self.error(f"{place}:{number}", f"no header of this room defines `{name[1]}`")

    def check_has_forward(self, room):
        """A room that defines a class has a fwd.hpp."""
        folder = self.include / "tawpipe" / room
        defined = any(re.search(r"(?<!>)\n(class|struct) \w+( final)?( :.*)? {", text) for text in public_texts(folder))
        if room != "." and defined and not (folder / "fwd.hpp").exists():
            self.error(f"include/tawpipe/{room}", "fwd.hpp is missing: the names of the room's classes, for headers that only refer to them")

    def check_length(self, path):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST:
            self.error(f"{path.relative_to(self.root).as_posix()}:{lines}", f"{lines} lines; split it (over {LONGEST})")

    def third_party_of(self, name):
        room = name.split("/")[0] if "/" in name else "."
        return self.files.get(name, {}).get("third_party", self.rooms.get(room, {}).get("third_party", []))

    def party_of(self, target):
        for party, beginnings in self.third_party.items():
            if any(target.startswith(beginning) for beginning in beginnings):
                return party
        return None

    def third_parties_behind(self, name):
        """What `name` includes itself or through other headers: {third party: the header of ours that names it}."""
        if name not in self.reached:
            self.reached[name] = {}  # ends a circle of includes
            path = self.include / "tawpipe" / name
            found = {}
            for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
                match = INCLUDE.match(line)
                if match and match[2].startswith("tawpipe/"):
                    found = self.third_parties_behind(match[2].removeprefix("tawpipe/")) | found
                elif match and self.party_of(match[2]):
                    found[self.party_of(match[2])] = name
            self.reached[name] = found
        return self.reached[name]

    def check_include(self, place, room, quoted, target, rooms, third_party, heavy):
        if target.startswith("tawpipe/"):
            wanted = target.removeprefix("tawpipe/")
            wanted_room = wanted.split("/")[0] if "/" in wanted else "."
            if not quoted:
                self.error(place, f'write "{target}" with quotes')
            if not (self.include / target).exists() and wanted not in self.generated:
                self.error(place, f"{target} does not exist")
            elif wanted_room != room and wanted_room not in rooms and wanted not in rooms:
                self.error(place, f"room {room} may not include {target}; it may include {', '.join(rooms) or 'no other room'}")
            elif wanted_room != room and "/detail/" in wanted:
                self.error(place, f"{target} is private to room {wanted_room}")
            else:
                for party, culprit in self.third_parties_behind(wanted).items():
                    if party not in third_party:
                        self.error(place, f"{target} brings {party} (by {culprit}), which this header may not use")
            return
        if quoted:
            self.error(place, f'"{target}" must be "tawpipe/...", or in <> if it is not ours')
            return
        party = self.party_of(target)
        if party:
            if party not in third_party:
                self.error(place, f"<{target}> is {party}, which this header may not use")
        elif "/" in target or "." in target:
            self.error(place, f"<{target}> is neither a C++ standard header nor in [third_party]")
        elif target in self.heavy and not heavy:
            self.error(place, f"<{target}> is too heavy for room {room} (its preprocessed lines); a lambda or a plain type does")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--table", type=pathlib.Path, help="default: tools/layers.toml below the root")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    table = tomllib.loads((arguments.table or root / "tools/layers.toml").read_text(encoding="utf-8"))

    checker = Checker(root, table)
    checker.check_table()
    headers = sorted(path for path in (root / "include/tawpipe").rglob("*") if path.suffix in (".hpp", ".cuh"))
    for header in headers:
        checker.check_header(header)
    for room in checker.rooms:
        checker.check_has_forward(room)
    sources = sorted(path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*") if path.suffix in SOURCES)
    for source in sources:
        checker.check_length(source)
    print(f"{len(headers)} headers, {len(sources)} sources, {checker.errors} errors")
    return 1 if checker.errors else 0


if __name__ == "__main__":
    sys.exit(main())
