#!/usr/bin/env python3
"""Dumps written by PyTorch's own flight recorder, of jobs that stand still over Gloo, are read by `tawpipe doctor`.

recorder_test.py COMMAND: the `tawpipe` whose doctor reads them. Gloo's recorder knows collectives, not sends and receives. Exit
77, with a word why, without PyTorch 2.10 or later.
"""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ranks

torch = ranks.use_torch()
import torch.distributed as dist

COMMAND = sys.argv.pop(1)
RANKS = 3
RECORDER = torch._C._distributed_c10d


def dump(form):
    function = RECORDER._dump_fr_trace if form == "pickle" else RECORDER._dump_fr_trace_json
    return function()


def recorded(data, form):
    loaded = pickle.loads(data) if form == "pickle" else json.loads(data)
    return loaded.get("entries", [])


def job(calls, expected, folder):
    """calls(rank) starts a rank's collectives; each rank then dumps once it has recorded expected[rank] that have ended."""
    def run(rank, place):
        place.at("calls")
        works = calls(rank)
        for form in ("json", "pickle"):
            while sum(entry["retired"] for entry in recorded(dump(form), form)) < expected[rank]:
                time.sleep(0.05)
            pathlib.Path(folder, form, f"{form}_rank_{rank}").write_bytes(dump(form))
        place.at("dumped")
        return len(works)

    os.environ["TORCH_FR_BUFFER_SIZE"] = "1000"
    ranks.play(RANKS, run)


def started(*works):
    return [work for work in works if work is not None]


def doctor(folder):
    out = pathlib.Path(folder, "verdict.json")
    code = subprocess.run([COMMAND, "doctor", *sorted(map(str, pathlib.Path(folder).glob("*rank_*"))), "--json", out],
                          stdout=subprocess.DEVNULL).returncode
    found = json.loads(out.read_text())
    return code, found["verdict"], sorted({culprit["rank"] for culprit in found["culprits"]}), found


class Recorder(unittest.TestCase):
    def check(self, calls, expected, verdict, culprits, **more):
        with tempfile.TemporaryDirectory(prefix="tawpipe_recorder_") as folder:
            for form in ("json", "pickle"):
                os.mkdir(pathlib.Path(folder, form))
            job(calls, expected, folder)
            for form in ("json", "pickle"):
                with self.subTest(form=form):
                    code, found, blamed, report = doctor(pathlib.Path(folder, form))
                    self.assertEqual((found, blamed, code), (verdict, culprits, 0 if verdict == "ends" else 1))
                    for key, value in more.items():
                        self.assertEqual(len(report[key]), value)

    def test_nothing_hangs(self):
        def calls(rank):
            x = torch.ones(4)
            dist.all_reduce(x)
            dist.broadcast(x, 0)
            return []
        self.check(calls, [3] * RANKS, "not recorded", [])  # with the barrier that the test makes; sends are not

    def test_receives_that_wait_for_each_other(self):
        def calls(rank):
            dist.all_reduce(torch.ones(4))
            return started(dist.irecv(torch.ones(4), 1 - rank)) if rank != 2 else []
        self.check(calls, [2] * RANKS, "not recorded", [])

    def test_a_rank_makes_no_call(self):
        def calls(rank):
            dist.all_reduce(torch.ones(4))
            return started(dist.all_reduce(torch.ones(4), async_op=True)) if rank != 2 else []
        self.check(calls, [2] * RANKS, "missing", [2])

    def test_a_rank_calls_another_collective(self):
        def calls(rank):
            dist.all_reduce(torch.ones(4))
            x = torch.ones(4)
            return started(dist.broadcast(x, 1, async_op=True) if rank == 1 else dist.all_reduce(x, async_op=True))
        self.check(calls, [2] * RANKS, "mismatch", [1])

    def test_groups_in_two_orders(self):
        """Rank 0 stands in tp, rank 1 in dp: each waits for the other there."""
        def calls(rank):
            groups = [dist.new_group([0, 1], group_desc=name) for name in ("tp", "dp")]
            if rank == 2:
                return []
            for group in groups:  # Gloo's dumps do not list the members of a group: they show by their calls
                dist.all_reduce(torch.ones(4), group=group)
            return started(dist.all_reduce(torch.ones(4), group=groups[rank], async_op=True))
        self.check(calls, [3, 3, 1], "deadlock", [0, 1], cycle=2)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main(verbosity=2)
