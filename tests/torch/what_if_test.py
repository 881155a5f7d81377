#!/usr/bin/env python3
"""Traces that PyTorch's own profiler wrote of two processes over Gloo replay themselves in `tawpipe what-if`.

what_if_test.py COMMAND: the `tawpipe` that reads them. Exit 77, with a word why, without PyTorch 2.10 or later.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ranks

torch = ranks.use_torch()
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

COMMAND = sys.argv.pop(1)


def train(folder, rows):
    """Two steps of data parallelism are profiled; rank r computes on rows[r] rows."""
    def run(rank, place):
        place.at("training")
        layers = [torch.nn.Linear(256, 256) for _ in range(4)]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        write = lambda done: done.export_chrome_trace(str(pathlib.Path(folder, f"rank{rank}.json")))
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=write) as steps:
            for _ in range(4):
                model(torch.randn(rows[rank], 256)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                dist.barrier()
                steps.step()
        place.at("profiled")
        return rank

    ranks.play(2, run)


class WhatIf(unittest.TestCase):
    def test_a_run_of_two_ranks_replays_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            train(folder, [64, 16384])  # a second of work a step, more than a busy machine keeps the other rank from its own
            traces = sorted(map(str, pathlib.Path(folder).glob("rank*.json")))
            self.assertEqual(len(traces), 2)
            result = subprocess.run([COMMAND, "what-if", *traces, "--json", "-"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual(answer["ranks"], 2)
            self.assertEqual(answer["steps"], 2)
            self.assertGreater(answer["traced_step_s"], 0)
            self.assertLess(abs(answer["replay_error"]), 0.01)
            faster = [one for one in answer["answers"] if one["question"].endswith(("no time", "half as long"))]
            self.assertGreaterEqual(len(faster), 4)
            for one in faster:
                self.assertLessEqual(one["step_s"], answer["replayed_step_s"] * 1.001, one)
            slow = max(answer["rank_excess_s"], key=lambda one: one["step_s"])
            self.assertEqual(slow["rank"], 1)  # it has 256 times the rows

            alone = subprocess.run([COMMAND, "what-if", traces[0]], capture_output=True, text=True)
            self.assertEqual(alone.returncode, 2)
            self.assertIn("no trace of rank 1 of 2", alone.stderr)


if __name__ == "__main__":
    unittest.main()
