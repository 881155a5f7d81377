#!/usr/bin/env python3
"""Plants violations in a small tree and expects tools/check_layers.py to name each. Not: the real tree's check."""
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
OPENING = "// What it is.\n// Not: anything else.\n#pragma once\n"


def check(headers, table=None):
    """Runs the checker over `headers` {path below include/tawpipe, or /path below the root: text}; returns (exit code, output)."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in headers.items():
            path = root / name[1:] if name.startswith("/") else root / "include/tawpipe" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        table_path = TOOLS / "layers.toml"
        if table is not None:
            table_path = root / "layers.toml"
            table_path.write_text(table)
        result = subprocess.run([sys.executable, TOOLS / "check_layers.py", "--root", root, "--table", table_path],
                                capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


class CheckLayers(unittest.TestCase):
    def expect(self, words, headers, table=None):
        code, output = check(headers, table)
        self.assertIn(words, output)
        self.assertEqual(code, 1, output)

    def test_a_clean_tree_passes(self):
        code, output = check({
            "core/ids.hpp": OPENING + "#include <vector>\n",
            "topology/link.hpp": OPENING + '#include "tawpipe/core/ids.hpp"\n',
            "topology/routing.hpp": OPENING + "#include <boost/graph/graph_traits.hpp>\n",
            "report/json.hpp": OPENING + "#include <memory>\n#include <nlohmann/json.hpp>\n",
        })
        self.assertEqual(code, 0, output)

    def test_a_lower_room_may_not_include_a_higher_one(self):
        self.expect("include/tawpipe/core/ids.hpp:4: error: room core may not include tawpipe/topology/link.hpp", {
            "core/ids.hpp": OPENING + '#include "tawpipe/topology/link.hpp"\n', "topology/link.hpp": OPENING})

    def test_a_single_header_of_a_room_may_be_allowed(self):
        headers = {"layers/adamw.hpp": OPENING, "layers/layer_tensors.hpp": OPENING,
                   "training/checkpoint.hpp": OPENING + '#include "tawpipe/layers/adamw.hpp"\n'}
        self.assertEqual(check(headers)[0], 0)
        headers["training/checkpoint.hpp"] = OPENING + '#include "tawpipe/layers/layer_tensors.hpp"\n'
        self.expect("checkpoint.hpp:4: error: room training may not include tawpipe/layers/layer_tensors.hpp", headers)

    def test_the_batteries_stay_out_of_the_base_and_its_umbrella(self):
        rooms = tomllib.loads((TOOLS / "layers.toml").read_text())["rooms"].keys() - {"layers", "training"}
        includes = '#include "tawpipe/layers/adamw.hpp"\n#include "tawpipe/training/checkpoint.hpp"\n'
        output = check({f"{room}/x.hpp": OPENING + includes for room in rooms} |
                       {"layers/adamw.hpp": OPENING, "training/checkpoint.hpp": OPENING})[1]
        for room in rooms:
            for header in ("layers/adamw.hpp", "training/checkpoint.hpp"):
                self.assertIn(f"error: room {room} may not include tawpipe/{header}", output)

    def test_third_parties_stay_behind_their_door(self):
        self.expect("cluster.hpp:4: error: <fmt/format.h> is fmt", {"topology/cluster.hpp": OPENING + "#include <fmt/format.h>\n"})
        self.expect("digraph.hpp:4: error: <boost/graph/graph_traits.hpp> is boost", {
            "core/digraph.hpp": OPENING + "#include <boost/graph/graph_traits.hpp>\n"})
        self.expect("<torch/torch.h> is neither", {"execute/host.hpp": OPENING + "#include <torch/torch.h>\n"})

    def test_third_parties_through_our_own_headers_count(self):
        self.expect("device.hpp:4: error: tawpipe/topology/link.hpp brings boost (by topology/routing.hpp)", {
            "topology/routing.hpp": OPENING + "#include <boost/graph/graph_traits.hpp>\n",
            "topology/link.hpp": OPENING + '#include "tawpipe/topology/routing.hpp"\n',
            "topology/device.hpp": OPENING + '#include "tawpipe/topology/link.hpp"\n'})

    def test_heavy_headers_stay_out_below_report(self):
        self.expect("error: <functional> is too heavy", {"schedule/op.hpp": OPENING + "#include <functional>\n"})

    def test_a_missing_header_is_named(self):
        self.expect("tawpipe/core/nothing.hpp does not exist", {"core/ids.hpp": OPENING + '#include "tawpipe/core/nothing.hpp"\n'})

    def test_detail_is_private_to_its_room(self):
        self.expect("is private to room core", {
            "core/detail/x.hpp": OPENING, "model/m.hpp": OPENING + '#include "tawpipe/core/detail/x.hpp"\n'})

    def test_the_form_of_a_header(self):
        self.expect("#pragma once is missing", {"core/ids.hpp": "// A.\n// B.\n"})
        self.expect("two comment lines", {"core/ids.hpp": "// A.\n#pragma once\n"})
        self.expect("core/ids.hpp:4: error: open namespace tawpipe::inline v0", {"core/ids.hpp": OPENING + "namespace tawpipe {\n}\n"})

    def test_no_source_is_longer_than_400_lines(self):
        self.assertEqual(check({"core/ids.hpp": OPENING + "int x();\n" * 397, "/tests/data/x.json": "{}\n" * 401})[0], 0)
        self.expect("include/tawpipe/core/ids.hpp:401: error: 401 lines; split it", {"core/ids.hpp": OPENING + "int x();\n" * 398})
        for name in ("src/execute/x.cu", "sim/x.cpp", "python/src/x.cpp", "tests/unit/core/x.cpp", "tests/torch/x.py",
                     "examples/x.cpp", "bench/x.hpp"):
            self.expect(f"{name}:500: error: 500 lines; split it (over 400)", {"/" + name: "//\n" * 500})

    def test_what_is_declared_forward_is_defined(self):
        headers = {"schedule/fwd.hpp": OPENING + "class Schedule;\n", "schedule/schedule.hpp": OPENING + "class Schedule {\n};\n"}
        self.assertEqual(check(headers)[0], 0)
        headers["schedule/schedule.hpp"] = OPENING + "struct Schedule {\n};\n"
        words = "schedule/fwd.hpp:4: error: no header of this room defines `class Schedule`"
        self.expect(words, headers)
        headers["schedule/schedule.hpp"] = OPENING + "namespace detail {\nclass Schedule {\n};\n}  // namespace detail\n"
        self.expect(words, headers)
        headers["schedule/schedule.hpp"] = OPENING + "template <class T>\nclass Schedule {\n};\n"
        self.expect(words, headers)

    def test_a_room_with_a_class_has_its_names_alone(self):
        self.expect("include/tawpipe/schedule: error: fwd.hpp is missing", {"schedule/schedule.hpp": OPENING + "class Schedule {\n};\n"})

    def test_an_unknown_room_is_named(self):
        self.expect("room attic is not in", {"attic/x.hpp": OPENING})

    def test_a_circle_of_rooms_is_named(self):
        self.expect("in a circle: ", {"a/x.hpp": OPENING}, """
            heavy_headers = []
            version_namespace = "v0"
            [third_party]
            [rooms.a]
            includes = ["b"]
            [rooms.b]
            includes = ["a"]
            """)


if __name__ == "__main__":
    unittest.main()
