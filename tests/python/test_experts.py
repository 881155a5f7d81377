"""Tests of mixtures of experts by the Python module. Run by install_test.py, or by hand where it is installed."""
import unittest

import tawpipe


class Experts(unittest.TestCase):
    def test_experts_are_divided_among_devices(self):
        mixture = dict(cluster="dgx-h100", model="qwen3-30b-a3b", sequence=4096, global_batch=64, fold="auto")
        answer = tawpipe.simulate("ddp", **mixture, expert_parallel=8).to_dict()
        self.assertEqual(answer["options"]["experts"], "8")
        self.assertGreater(answer["communication"]["lane_busy_s"]["expert_parallel"], 0)
        self.assertFalse(answer["out_of_memory"])  # all experts on each device need more
        self.assertTrue(tawpipe.simulate("ddp", **mixture, data_parallel=8).to_dict()["out_of_memory"])
        for schedule, arguments, words in (("1f1b", dict(expert_parallel=2, tensor_parallel=4), "multiple of tensor 4"),
                                           ("1f1b", dict(expert_parallel=3), "does not divide"),
                                           ("fsdp", dict(expert_parallel=2), "moves experts"),
                                           ("1f1b", dict(expert_parallel=2, model="llama-3-8b"), "has no experts")):
            with self.assertRaisesRegex(tawpipe.Error, words):
                tawpipe.simulate(schedule, **(mixture | arguments))

    def test_tokens_are_sent_by_deepep(self):
        mixture = dict(cluster="dgx-h100*2", model="qwen3-30b-a3b", sequence=4096, global_batch=64, fold="auto", expert_parallel=16)
        copies = tawpipe.simulate("ddp", **mixture).to_dict()
        once = tawpipe.simulate("ddp", **mixture, expert_dispatch="deepep").to_dict()
        self.assertLess(once["makespan_s"], copies["makespan_s"])
        with self.assertRaisesRegex(tawpipe.InputError, "known: all-to-all, deepep"):
            tawpipe.simulate("ddp", **mixture, expert_dispatch="nccl")

    def test_schedules_whose_weights_stay_are_compared(self):
        rows = tawpipe.compare(cluster="dgx-h100*2", model="qwen3-30b-a3b", sequence=4096, global_batch=64, expert_parallel=8)
        self.assertEqual({row["schedule"] for row in rows}, {"1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v"})

    def test_a_plan_of_a_mixture_has_the_experts_asked_for(self):
        problem = dict(cluster="dgx-h100", model="qwen3-30b-a3b", sequence=4096, global_batch=64)
        row = tawpipe.plan(**problem, schedules=["ddp"], tensor_parallel=1, context_parallel=1, expert_parallel=8, top=1)[0]
        self.assertEqual((row["expert_parallel"], row["axes"]["expert"], row["axes"]["data"]), (8, 8, 1))
        with self.assertRaisesRegex(tawpipe.InputError, "experts on 16"):
            tawpipe.plan(**problem, expert_parallel=16)


if __name__ == "__main__":
    unittest.main()
