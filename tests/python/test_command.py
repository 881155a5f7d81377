"""Tests of the command as a wheel brings it: on the path, as `python -m tawpipe`, and as calls. Run by install_test.py."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import tawpipe

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from command_help import commands

ON_PATH = shutil.which("tawpipe")
PROBLEM = ["--cluster", "2x4", "--model", "llama-8x512", "--sequence", "1024", "--global-batch", "32"]
TRAIN = ["train", "--model", "llama-2x32", "--data", ROOT / "examples/data/new_testament.txt", "--sequence", "16", "--global-batch",
         "4", "--steps", "2", "--schedule", "1f1b", "--cluster", "1x2"]


def ended(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)


class Command(unittest.TestCase):
    def test_all_forms_answer_alike(self):
        for arguments in (["--version"], ["plan", *PROBLEM], ["compare", *PROBLEM, "--json", "-"], ["simulate", "--schedule", "no-such"],
                          ["validate", "--schedule-file", ROOT / "tests/data/hangs/ring4_one_turned.json"]):
            told = ended(os.environ["TAWPIPE_COMMAND"], *arguments)
            for form in (ended(ON_PATH, *arguments), ended(sys.executable, "-m", "tawpipe", *arguments), tawpipe.run(arguments)):
                self.assertEqual((form.returncode, form.stdout, form.stderr), (told.returncode, told.stdout, told.stderr), arguments)

    def test_every_command_is_a_call(self):
        all_of_them = list(commands(ON_PATH))
        self.assertGreater(len(all_of_them), 15)
        for command in all_of_them:
            self.assertIn("Usage:", tawpipe.run([*command, "--help"], check=True).stdout.replace("usage:", "Usage:"), command)

    def test_reports_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.html")
            tawpipe.run(["simulate", "--schedule", "tawpipe", *PROBLEM, "--report", page], check=True)
            self.assertIn("<html", page.read_text()[:200])

    def test_the_process_is_the_program(self):
        """So a signal, and whoever waits for it, meets the program itself."""
        for form in ([ON_PATH], [sys.executable, "-m", "tawpipe"]):
            with subprocess.Popen([*form, "plan", "--cluster", "dgx-h100*16", "--model", "llama-3-70b",
                                   "--sequence", "8192", "--global-batch", "1024"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as process:
                while os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) != "tawpipe":
                    self.assertIsNone(process.poll())
                    time.sleep(0.001)
                process.send_signal(signal.SIGKILL)
            self.assertEqual(process.returncode, -signal.SIGKILL)

    def test_training_loads_openblas_and_says_where_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libopenblas.so.0", "libopenblasp.so.0"):
                pathlib.Path(folder, name).touch()  # found first, and no library
            without = tawpipe.run(TRAIN, env={**os.environ, "LD_LIBRARY_PATH": folder})
            self.assertEqual((without.returncode, without.stdout), (3, ""), without.stderr)
            self.assertIn("need OpenBLAS (libopenblas.so.0), which this machine does not have", without.stderr)
            self.assertEqual(tawpipe.run(["simulate", "--schedule", "1f1b", *PROBLEM],
                                         env={**os.environ, "LD_LIBRARY_PATH": folder}).returncode, 0)
        trained = tawpipe.run(TRAIN)
        if trained.returncode == 3:
            self.skipTest(trained.stderr)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("GEMMs by OpenBLAS ", trained.stdout)


if __name__ == "__main__":
    unittest.main()
