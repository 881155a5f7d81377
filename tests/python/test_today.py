"""Tests of plans as a framework's settings, and of what is run today, by the Python module. Run by install_test.py."""
import pathlib
import tempfile
import unittest

import tawpipe

TINY = dict(cluster="2x4", model="llama-8x512", sequence=2048, global_batch=16)


class Today(unittest.TestCase):
    def test_settings_out_and_in(self):
        plans = tawpipe.plan(**TINY, emit="megatron")
        self.assertIn("--tensor-model-parallel-size" if plans.answer["emitted"]["plan"]["axes"]["tensor"] > 1 else "--num-layers",
                      plans.settings)
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "train.sh"
            script.write_text(plans.settings)
            again = tawpipe.plan(cluster="2x4", today=script, budget=1)
            self.assertEqual(again.today["makespan_ps"], plans.answer["emitted"]["plan"]["makespan_ps"])
            low, middle, high = tawpipe.plan(cluster="2x4", today=script, step_time="9.1s").today["by_measured_s"]
            self.assertTrue(0 < low < middle < high)
            script.write_text("p.py --micro-batch-size 1 --tensor-model-paralel-size 2")
            with self.assertRaisesRegex(tawpipe.InputError, "line 1.*--tensor-model-parallel-size"):
                tawpipe.plan(cluster="2x4", today=script, strict=True)
            with self.assertRaisesRegex(TypeError, "args must be names"):
                tawpipe.plan(cluster="2x4", today=script, args="--seq-length 4096")
            script.write_text("p.py --micro-batch-size 1 --sequence-parallel 2")  # a flag of both
            with self.assertRaisesRegex(tawpipe.InputError, "line 1: --sequence-parallel: takes no value"):
                tawpipe.plan(cluster="2x4", today=script)
            script.write_text("p.py --micro-batch-size 1")
            with self.assertRaisesRegex(tawpipe.InputError, "does not say --num-layers, .*; add them to its command, or give model"):
                tawpipe.plan(cluster="2x4", today=script)
        with self.assertRaisesRegex(tawpipe.InputError, "'--sequence-parallel'"):
            tawpipe.plan(cluster="2x4", today="--sequence-parallel")
        with self.assertRaisesRegex(tawpipe.InputError, "step_time are of the file of today"):
            tawpipe.plan(**TINY, vocab_size=32000)


if __name__ == "__main__":
    unittest.main()
