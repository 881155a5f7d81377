"""The cost of a whole run in Python: what the command tells. Not: the figures (tests/unit/analysis/run_cost_test.cpp)."""
import json
import os
import subprocess
import unittest

import tawpipe

TINY = dict(cluster="4x2", model="llama-8x512", sequence=2048, global_batch=48)
FLAGS = ["--cluster", "4x2", "--model", "llama-8x512", "--sequence", "2048", "--global-batch", "48", "--train-tokens", "1T", "--price",
         "2.5USD", "--mtbf", "30000h", "--spare-nodes", "1"]
RUN = dict(train_tokens="1T", price="2.5USD", run={"mtbf": "30000h", "spare_nodes": 1})


class RunCost(unittest.TestCase):
    def test_it_is_the_command_s(self):
        planned = tawpipe.plan(**TINY, **RUN, schedules=["ddp"]).answer["run"]
        simulated = tawpipe.simulate("ddp", **TINY, data_parallel=1, **RUN).to_dict()["run"]
        self.assertEqual(planned["currency"], "USD")
        self.assertAlmostEqual(planned["price"], planned["device_hours"] * 2.5)
        self.assertTrue(planned["node_lost"]["found"])
        self.assertNotIn("node_lost", simulated)
        command = os.environ.get("TAWPIPE_COMMAND")
        if command:
            for words, answer in ((["plan", "--schedules", "ddp"], planned), (["simulate", "--schedule", "ddp"], simulated)):
                shown = subprocess.run([command, *words, *FLAGS, "--json", "-"], capture_output=True, text=True, check=True).stdout
                self.assertEqual(json.loads(shown)["run"], answer)

    def test_numbers_and_what_is_wrong(self):
        run = tawpipe.simulate("ddp", **TINY, train_tokens=10**12, price=2).to_dict()["run"]
        self.assertEqual(run["currency"], "")
        self.assertEqual(run["tokens"], 1e12)
        self.assertNotIn("run", tawpipe.simulate("ddp", **TINY).to_dict())
        for arguments, kind, words in ((dict(train_tokens="15t"), tawpipe.InputError, "train_tokens.*15T"),
                                       (dict(train_tokens=-1), tawpipe.InputError, "train_tokens"),
                                       (dict(train_tokens=True), TypeError, "train_tokens"),
                                       (dict(price="2.5dollars"), tawpipe.InputError, "price.*2.5USD"),
                                       (dict(run={"mtbf": "1h"}), tawpipe.InputError, "mtbf.*train_tokens"),
                                       (dict(train_tokens=1, run={"mtfb": "1h"}), TypeError, "'mtfb'.*mtbf"),
                                       (dict(train_tokens=1, run={"mtbf": 1}), tawpipe.InputError, "mtbf")):
            with self.subTest(arguments), self.assertRaisesRegex(kind, words):
                tawpipe.plan(**TINY, **arguments)


if __name__ == "__main__":
    unittest.main()
