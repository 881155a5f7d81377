#!/usr/bin/env python3
"""A recorded run (tests/data/llama_golden/A) as one plain file that needs no JSON: reference.py FOLDER FILE.

Lines `number KEY VALUE` and `tensor NAME f64|i32 COUNT OFFSET`, then `end`; offsets count from behind that line.
Not: the format's description (sim/papers/reference_run.hpp).
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


def write(target, numbers, arrays):
    """numbers: by key; arrays: (name, array of doubles, floats or 32-bit integers) each."""
    lines, parts, offset = [f"number {key} {value!r}" for key, value in numbers.items()], [], 0
    for name, values in arrays:
        integer = values.typecode == "i"
        part = values.tobytes() if integer else array.array("d", values).tobytes()
        lines.append(f"tensor {name} {'i32' if integer else 'f64'} {len(values)} {offset}")
        parts.append(part + b"\0" * (-len(part) % 8))
        offset += len(parts[-1])
    pathlib.Path(target).write_bytes("\n".join(lines + ["end", ""]).encode() + b"".join(parts))


def main():
    folder = pathlib.Path(sys.argv[1])
    config = json.loads(next(folder.glob("*.config.json")).read_text())
    arrays = [(prefix + name, values) for kind, prefix in (("init", "init/"), ("data", ""), ("expect", ""))
              for name, values in tensors(next(folder.glob(f"*.{kind}.safetensors")))
              if kind != "expect" or name.startswith(("loss", "step"))]
    write(sys.argv[2], {key: value for key, value in config.items() if isinstance(value, (int, float))}, arrays)


if __name__ == "__main__":
    main()
