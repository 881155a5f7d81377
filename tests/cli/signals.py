#!/usr/bin/env python3
"""Commands that are told to stop: `tawpipe train --save` ends by Ctrl-C or SIGTERM with a checkpoint, says so, and a resumed run
goes on from there; a second signal ends it at once; `tawpipe plan` ends by Ctrl-C with the best so far.
Not: ranks that are killed (tests/mpi). Usage: signals.py TAWPIPE
"""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import unittest

TAWPIPE = os.path.abspath(sys.argv.pop(1))


def await_step(process):
    """Returns once a step is done."""
    while not process.stdout.readline().startswith("step"):
        assert process.poll() is None


class Signals(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "text.txt").write_text("to be or not to be " * 500)

    def tearDown(self):
        self.temporary.cleanup()

    def flags(self, steps, *more):
        return [TAWPIPE, "train", "--model", "llama-2x32", "--data", "text.txt", "--sequence", "16", "--global-batch", "4", "--steps",
                str(steps), "--schedule", "1f1b", "--cluster", "1x2", *more]

    def start(self, *more):
        """A run that would take days, in its first steps."""
        process = subprocess.Popen(self.flags(100_000_000, "--save", "run", *more), cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        await_step(process)
        return process

    def last_step(self):
        return int((self.folder / "run" / "latest").read_text().strip().removeprefix("step-"))

    def test_a_checkpoint_is_saved_and_said(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start("--log-every", "1", "--json", "run.json", *(["--resume", "run"] if number == signal.SIGTERM else []))
            process.send_signal(number)
            _, told = process.communicate(timeout=300)
            self.assertEqual(process.returncode, code, told)
            step = self.last_step()
            self.assertIn(f"stopped by {number.name} after step {step}; checkpoint run/step-{step:06}, go on with --resume run", told)
            answer = json.loads((self.folder / "run.json").read_text())
            self.assertEqual(answer["stopped_by"], number.name)
            self.assertEqual(answer["first_step"] + len(answer["losses"]) - 1, step)
        self.assertGreater(answer["first_step"], 1)  # the second run went on
        done = subprocess.run(self.flags(step + 1, "--resume", "run", "--json", "run.json"), cwd=self.folder, stdout=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(json.loads((self.folder / "run.json").read_text())["first_step"], step + 1)
        self.assertEqual([path.name for path in self.folder.rglob("*.part*")], [])

    def test_without_a_folder_it_ends_at_once(self):
        process = subprocess.Popen(self.flags(100_000_000, "--log-every", "1", "--json", "run.json"), cwd=self.folder,
                                   stdout=subprocess.PIPE, text=True)
        await_step(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertEqual([path.name for path in self.folder.rglob("run.json*")], [])

    def test_a_plan_ends_with_the_best_so_far(self):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([TAWPIPE, "plan", "--cluster", "a800x24-10gbe", "--model", "llama-48x1024", "--sequence", "16384",
                                    "--global-batch", "1536", "--budget", "1000000000000", "--json", "plan.json"], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        shown = b""
        while b"  best " not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        text = process.stdout.read()
        self.assertEqual(process.wait(), 0, text)
        os.close(ours)
        self.assertIn("stopped: the best so far", text)
        answer = json.loads((self.folder / "plan.json").read_text())
        self.assertTrue(answer["stopped"])
        self.assertFalse(answer["proven_best"])
        self.assertGreater(len(answer["plans"]), 0)

    def test_a_left_over_file_is_replaced(self):
        (self.folder / "run.json.part").write_text("half of a")
        done = subprocess.run(self.flags(1, "--json", "run.json"), cwd=self.folder, stdout=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(json.loads((self.folder / "run.json").read_text())["losses"]), 1)
        self.assertEqual(list(self.folder.glob("*.part")), [])


if __name__ == "__main__":
    unittest.main()
