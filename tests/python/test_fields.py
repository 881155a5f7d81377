"""Tests of a job's fields as arguments: the same as the command's flags and a sweep's parameters. Run by install_test.py."""
import inspect
import os
import re
import subprocess
import unittest

import tawpipe

os.environ["COLUMNS"] = "1000"  # the command breaks no line


class Fields(unittest.TestCase):
    """The table of a job's fields, the arguments here, the command's flags and the parameters of a sweep are the same."""

    def test_every_field_is_an_argument_and_a_flag(self):
        names = {field["name"] for field in tawpipe._core.fields()}
        of_run = {field["name"] for field in tawpipe._core.fields() if field["group"] == "Training run"}
        for call, without in ((tawpipe.compare, of_run), (tawpipe.simulate, set()), (tawpipe.sweep, of_run),
                              (tawpipe.plan, {"jitter", "stragglers", "interference", "seed"})):
            arguments = set(inspect.signature(call).parameters)
            self.assertEqual(names - arguments, without, call.__name__)
            for name in names - without:
                self.assertTrue(name in ("cluster", "model") or f"\n        {name}: " in call.__doc__, (call.__name__, name))
        command = os.environ.get("TAWPIPE_COMMAND")
        if command:
            shown = subprocess.run([command, "simulate", "--help"], capture_output=True, text=True, check=True).stdout
            flags = {flag.replace("-", "_") for flag in re.findall(r"^ +--([a-z-]+)", shown, re.M)}
            self.assertEqual(names - flags, set())
            swept = subprocess.run([command, "sweep", "--vary", "no-such=1"], capture_output=True, text=True).stderr
            self.assertIn("unknown parameter 'no-such'", swept)

    def test_every_field_can_be_set_and_swept(self):
        values = {"device": "H100-80G", "inter_node": "100Gbps", "microbatches": 8, "recompute": "selective:mlp", "loss_chunk": 4096,
                  "usable_memory": 0.9, "layers_per_stage": "2,2,2,2", "hold_sms": "off", "limit": "1GiB", "dtype": "float16",
                  "gradient_dtype": "float32", "moment_dtype": "bfloat16", "master_dtype": "none", "jitter": 0.01, "cost": "kernels",
                  "stragglers": "0.1x2", "interference": 0.1, "seed": 5, "bucket": 1000, "sequence": "2k", "global_batch": 32,
                  "layout": "tcds", "microbatch": 2, "account_for_loss_in_pipeline_split": True, "tensor_parallel": 2,
                  "context_parallel": 2, "data_parallel": 2, "account_for_embedding_in_pipeline_split": True, "expert_parallel": 1,
                  "gathered_weights": "model", "cuda_graphs": "iteration"}
        problem = dict(cluster="1x4", model="llama-8x512", sequence=2048, global_batch=16)
        for field in tawpipe._core.fields():
            name = field["name"]
            if name in ("cluster", "model") or field["group"] == "Training run":
                continue
            value = values[name] if name in values else field["words"][-1]
            with self.subTest(name, value=value):
                given = {**problem, name: value}
                if name == "microbatches":
                    del given["global_batch"]
                if value == "nvfp4":  # which no assumed device has
                    with self.assertRaises(tawpipe.InputError):
                        tawpipe.simulate("1f1b", **given)
                    continue
                self.assertGreater(tawpipe.simulate("1f1b", **given).makespan_s, 0)
                del given[name]
                if name != "usable_memory":
                    row, = tawpipe.sweep("1f1b", vary={name: [value]}, **given)
                    self.assertEqual(row[name], value)
        with self.assertRaisesRegex(TypeError, "unexpected argument 'no_such'"):
            tawpipe.sweep("1f1b", vary={"no_such": [1]}, **problem)


if __name__ == "__main__":
    unittest.main()
