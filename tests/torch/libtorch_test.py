#!/usr/bin/env python3
"""Builds examples/torch against the LibTorch inside the Python package of PyTorch and trains: losses, gradients and weights must
be those of plain LibTorch, and what does not fit must be refused.

libtorch_test.py SOURCE WORK COMPILER: the sources, a folder that keeps the build, the C++ compiler. Exit 77, with a word why,
without PyTorch 2.10 or later.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ranks

torch = ranks.use_torch()
SOURCE, WORK, COMPILER = (pathlib.Path(sys.argv.pop(1)) for _ in range(3))


class LibTorch(unittest.TestCase):
    def test_trains(self):
        build = [f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1",
                 f"-DPython3_EXECUTABLE={sys.executable}"]
        environment = dict(os.environ, CMAKE_GENERATOR=os.environ.get("CMAKE_GENERATOR", "Ninja"))
        subprocess.run(["cmake", "-S", SOURCE / "examples/torch", "-B", WORK, *build], check=True, env=environment)
        subprocess.run(["cmake", "--build", WORK], check=True, env=environment)
        run = subprocess.run([WORK / "train"], capture_output=True, text=True)
        print(run.stdout, run.stderr, sep="", flush=True)
        self.assertEqual(run.returncode, 0)
        lines = run.stdout.splitlines()
        for schedule in ("1f1b", "tawpipe"):
            for devices in (2, 4):
                self.assertTrue(any(line.startswith(schedule) and f" {devices} ranks," in line for line in lines))
        self.assertIn("dtype of a module: parameter 'first.weight' of the layer is of dtype Double, and the model of Float", lines)
        self.assertIn("shape of a layer: the layer gives [1, 12, 17] of Float; expected [1, 12, 16] of Float", lines)
        self.assertIn("dtype of a lent tensor: the tensor lent to rank 1 has shape [10] of Double; expected 10 numbers of Float "
                      "one after another", lines)

    def test_gpu_compiles(self):
        nvcc = shutil.which("nvcc")
        cuda = pathlib.Path(os.environ.get("CUDA_HOME") or (pathlib.Path(nvcc).parent.parent if nvcc else "/usr/local/cuda"), "include")
        if torch.version.cuda is None or not (cuda / "cuda_runtime_api.h").exists() or not (cuda / "nccl.h").exists():
            self.skipTest("this PyTorch or this machine has no CUDA with NCCL's header")
        headers = pathlib.Path(torch.__file__).parent / "include"
        subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-DTAWPIPE_TORCH_CUDA",
                        f"-I{SOURCE / 'include'}", "-isystem", headers, "-isystem", headers / "torch/csrc/api/include", "-isystem",
                        cuda, SOURCE / "examples/torch/train_gpu.cpp"], check=True)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main(verbosity=2)
