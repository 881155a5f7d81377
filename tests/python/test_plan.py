"""Plans by the Python module and by the command: the same bytes of JSON. Run by install_test.py.

That C++'s are the same too, tests/cli/plan_library_test.cpp compares.
"""
import pathlib
import tempfile
import unittest

import tawpipe

SMALL = dict(cluster="dgx-h100*1", model="llama-8x512", sequence="2k", global_batch=16)
SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 \\
  --ffn-hidden-size 1408 --swiglu --vocab-size 32000 --seq-length 2048 --max-position-embeddings 2048 --bf16 \\
  --tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 16
"""


def printed(arguments):
    """What the command writes for the arguments of plan(), a list where a flag is repeated."""
    words = []
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            words += ["--" + name.replace("_", "-"), one]
    return tawpipe.run(["plan", *words, "--json", "-"], check=True).stdout


class Plan(unittest.TestCase):
    def test_same_bytes(self):
        for more in ({}, {"emit": "megatron"}, {"emit": "torchtitan"}, {"what_if": ["nodes=2"], "price": "2.5USD"},
                     {"train_tokens": "1T", "price": "2.5USD"}, {"gemm_format": "16bit,fp8", "top": 2},
                     {"device": "H200-141G", "inter_node": "200Gbps"}, {"devices": "8..16", "price": "2.5USD"}):
            with self.subTest(more=more):
                plans = tawpipe.plan(**SMALL, **more)
                self.assertEqual(plans.to_json(), printed({**SMALL, **more}))

    def test_same_bytes_of_today(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "train.sh"
            script.write_text(SCRIPT)
            for more in ({}, {"step_time": "9.1s"}, {"emit": "megatron"}):
                with self.subTest(more=more):
                    plans = tawpipe.plan(cluster="dgx-h100*1", today=script, **more)
                    self.assertEqual(plans.to_json(), printed({"cluster": "dgx-h100*1", "today": script, **more}))

    def test_values_have_names(self):
        plans = tawpipe.plan(cluster=tawpipe.cluster("dgx-h100*1"), model=tawpipe.model("llama-8x512"), sequence=2048, global_batch=16)
        self.assertEqual(plans[0]["makespan_ps"], tawpipe.plan(**SMALL)[0]["makespan_ps"])
        self.assertIn("--model llama-8x512", plans[0]["command"])

    def test_devices_of_a_value(self):
        named = tawpipe.plan(**SMALL, devices="8..16")
        given = tawpipe.plan(**{**SMALL, "cluster": tawpipe.cluster("dgx-h100*1")}, devices="8..16")
        self.assertEqual([len(given), [row["makespan_ps"] for row in given]], [2, [row["makespan_ps"] for row in named]])
        self.assertFalse(given.stopped)
        with self.assertRaisesRegex(tawpipe.InputError, "devices '9..16' must be FROM..TO"):
            tawpipe.plan(**SMALL, devices="9..16")

    def test_commands_say_the_device(self):
        plans = tawpipe.plan(**{**SMALL, "cluster": "1x8"}, device="H100-80G", budget=200_000)
        self.assertIn("--cluster 1x8 --device H100-80G", plans[0]["command"])


if __name__ == "__main__":
    unittest.main()
