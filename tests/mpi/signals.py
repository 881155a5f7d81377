#!/usr/bin/env python3
"""`tawpipe train --backend mpi --save` that is told to stop, by a signal to one rank or to the launcher: all ranks end after the same
step with its checkpoint, and the run resumed from there gives the losses of one that was never stopped, bit for bit. Where the
launcher gives too little time for a step, it ends without one and leaves nothing behind.
Not: ranks that are killed (kills.py). Usage: signals.py MPIEXEC NUMPROC_FLAG TAWPIPE
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

MPIEXEC, FLAG, TAWPIPE = *sys.argv[1:3], os.path.abspath(sys.argv[3])
OPEN_MPI = "open-mpi" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout


class Signals(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="tawpipe-signals-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)

    def command(self, steps, *more, every=100):
        """@param every  steps from a line of output to the next: a launcher that is told to stop may read no more of it"""
        return [MPIEXEC, FLAG, "3", TAWPIPE, "train", "--backend", "mpi", "--cluster", "2+1", "--schedule", "tawpipe", "--model",
                "llama-4x64", "--data", "text.txt", "--sequence", "64", "--global-batch", "12", "--steps", str(steps), "--warmup",
                "2", "--decay-steps", "100", "--log-every", str(every), *more]

    def start(self, *more, seconds=None, every=100):
        """A run that would take days, once its first step is done. @param seconds  that Open MPI waits before it passes SIGTERM on,
        and again before it kills"""
        environment = dict(os.environ)
        environment.pop("OMPI_MCA_odls_base_sigkill_timeout", None)
        if seconds is not None:
            environment["OMPI_MCA_odls_base_sigkill_timeout"] = str(seconds)
        process = subprocess.Popen(self.command(100_000_000, "--save", "run", "--json", "run.json", *more, every=every), cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for act in (process.stdout.close, process.stderr.close, process.wait, process.kill):  # the last first
            self.addCleanup(act)
        while not process.stdout.readline().startswith("step"):
            self.assertIsNone(process.poll())
        return process

    def ranks_of(self, launcher):
        return [int(pid) for pid in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]

    def losses(self, name, *more):
        done = subprocess.run(self.command(*more, "--json", name), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / name).read_text())["losses"]

    def check_checkpoint(self, name, told):
        """Of the step that is said; a run that goes on from there gives what an uninterrupted one does."""
        self.assertTrue((self.folder / "run" / "latest").exists(), told)
        step = int((self.folder / "run" / "latest").read_text().strip().removeprefix("step-"))
        said = f"tawpipe: stopped by {name} after step {step}; checkpoint run/step-{step:06}, go on with --resume run"
        self.assertEqual(told.count(said), 1, told)
        answer = json.loads((self.folder / "run.json").read_text())
        self.assertEqual(answer["stopped_by"], name)
        self.assertEqual(len(answer["losses"]), step)
        self.assertEqual([str(path) for path in self.folder.rglob("*.part*")], [])
        whole = self.losses("whole.json", step + 2)
        self.assertEqual(answer["losses"] + self.losses("rest.json", step + 2, "--resume", "run"), whole)

    def test_to_one_rank(self):
        process = self.start()
        ranks = self.ranks_of(process)
        self.assertEqual(len(ranks), 3)
        os.kill(ranks[2], signal.SIGTERM)
        _, told = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 143, told)
        self.check_checkpoint("SIGTERM", told)

    @unittest.skipUnless(OPEN_MPI, "other launchers pass signals on in other ways")
    def test_to_the_launcher(self):
        for number, seconds in ((signal.SIGUSR1, None), (signal.SIGTERM, 10)):
            with self.subTest(number.name):
                self.setUp()
                process = self.start("--pace", "1GFLOPS", seconds=seconds, every=1)  # few steps while the launcher waits
                process.send_signal(number)
                _, told = process.communicate(timeout=300)
                self.assertNotEqual(process.returncode, 0)
                self.check_checkpoint(number.name, told)

    @unittest.skipUnless(OPEN_MPI, "other launchers give other times")
    def test_a_launcher_that_does_not_wait(self):
        why = ""
        for _ in range(3):  # its ranks may be killed before they have said why: 0.4 s are left for that
            self.setUp()
            process = self.start("--pace", "0.05GFLOPS", every=1)
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=300)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("less than the 1 s that mpirun gives", told)
            self.assertFalse((self.folder / "run" / "latest").exists())
            self.assertEqual([str(path) for path in self.folder.rglob("*.part*")], [])
            why += told
            if "the step took too long" in why:
                break
        self.assertIn("the step took too long", why)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
