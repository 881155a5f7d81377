#!/usr/bin/env python3
"""Commands that are told to stop: `tawpipe train --save` ends by Ctrl-C or SIGTERM with a checkpoint, says so, and a resumed run
goes on from there; a second signal ends it at once; a closed terminal does the same; `tawpipe plan` ends by Ctrl-C or SIGTERM with the best so far.
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
import time
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

    def catches(self, process, number):
        """Whether a process has a handler of a signal."""
        caught = pathlib.Path(f"/proc/{process.pid}/status").read_text().split("SigCgt:")[1].split()[0]
        return int(caught, 16) >> (number - 1) & 1

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

    def test_a_terminal_that_is_closed_ends_it_with_a_checkpoint(self):
        shell, ours = pty.fork()
        if shell == 0:
            os.chdir(self.folder)
            os.execv(TAWPIPE, self.flags(100_000_000, "--save", "run", "--log-every", "1"))
        while b"step " not in os.read(ours, 65536):
            pass
        os.close(ours)  # SIGHUP, and nothing can be printed any more
        _, status = os.waitpid(shell, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 128 + signal.SIGHUP)
        self.assertGreaterEqual(self.last_step(), 1)

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

    def test_a_plan_in_a_log_has_lines_of_progress_and_ends_by_sigterm(self):
        process = subprocess.Popen([TAWPIPE, "plan", "--cluster", "a800x24-10gbe", "--model", "llama-48x1024", "--sequence", "16384",
                                    "--global-batch", "1536", "--budget", "1000000000000", "--json", "plan.json"], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while ", best " not in (line := process.stderr.readline()):
            self.assertRegex(line, "^tawpipe: planning: [0-9,]+ of 1,000, [0-9]+%")
        process.send_signal(signal.SIGTERM)
        text, told = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, told)
        self.assertIn("stopped: the best so far", text)
        answer = json.loads((self.folder / "plan.json").read_text())
        self.assertTrue(answer["stopped"])
        self.assertEqual(list(self.folder.glob("*.part")), [])

    def test_a_plan_ends_within_a_second_of_the_processor_whatever_it_is_in(self):
        for delay in (0, 0.3, 1, 3):
            for number in (signal.SIGINT, signal.SIGTERM):
                process = subprocess.Popen([TAWPIPE, "plan", "--cluster", "dgx-h100*256", "--model", "deepseek-v3", "--sequence", "4096",
                                            "--global-batch", "15360", "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           text=True)
                while not self.catches(process, number):
                    time.sleep(0.01)
                time.sleep(delay)
                used = sum(map(int, pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                process.send_signal(number)
                text, told = process.stdout.read(), process.stderr.read()
                _, status, total = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                process.stdout.close()
                process.stderr.close()
                after = total.ru_utime + total.ru_stime - used / os.sysconf("SC_CLK_TCK")
                with self.subTest(delay=delay, signal=number.name, told=told):
                    self.assertIn(process.returncode, (0, 1))
                    self.assertLess(after, 1.0 * os.cpu_count())
                    answer = json.loads(text)
                    self.assertTrue(answer["stopped"])
                    self.assertEqual(len(answer["plans"]) > 0, process.returncode == 0)

    def test_a_left_over_file_is_replaced(self):
        (self.folder / "run.json.part").write_text("half of a")
        done = subprocess.run(self.flags(1, "--json", "run.json"), cwd=self.folder, stdout=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(json.loads((self.folder / "run.json").read_text())["losses"]), 1)
        self.assertEqual(list(self.folder.glob("*.part")), [])


if __name__ == "__main__":
    unittest.main()
