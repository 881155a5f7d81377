#!/usr/bin/env python3
"""A recorded run (tests/data/llama_golden/A) as one plain file that needs no JSON: reference.py FOLDER FILE.

Lines `number KEY VALUE` and `tensor NAME f64|i32 COUNT OFFSET`, then `end`; offsets count from behind that line.
Not: the format's description (include/tawpipe/training/reference_run.hpp).
"""
import array
import json
import pathlib
import struct
import sys

TYPES = {"F64": "d", "F32": "f", "I32": "i"}


def tensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        numbers = array.array(TYPES[about["dtype"]])
        numbers.frombytes(data[begin:end])
        yield name, numbers


def main():
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    config = json.loads(next(folder.glob("*.config.json")).read_text())
    lines, parts, offset = [], [], 0
    for key, value in config.items():
        if isinstance(value, (int, float)):
            lines.append(f"number {key} {value!r}")
    for kind, prefix in (("init", "init/"), ("data", ""), ("expect", "")):
        for name, numbers in tensors(next(folder.glob(f"*.{kind}.safetensors"))):
            if kind == "expect" and not name.startswith(("loss", "step")):
                continue
            integer = numbers.typecode == "i"
            part = numbers.tobytes() if integer else array.array("d", numbers).tobytes()
            lines.append(f"tensor {prefix}{name} {'i32' if integer else 'f64'} {len(numbers)} {offset}")
            parts.append(part + b"\0" * (-len(part) % 8))
            offset += len(parts[-1])
    target.write_bytes("\n".join(lines + ["end", ""]).encode() + b"".join(parts))


main()
