#!/usr/bin/env python3
"""Runs the commands that README.md and docs/ show. Those with a `$` and what they print: every line that is shown must be printed, in
that order, as a terminal of 100 columns gets it or a file. `$ cat FILE` gives the file that the next command reads. Those without
output: they must end well. What cannot be run here is listed with its reason; a command that has none fails.
Not: flags (tools/check_links.py). Usage: blocks.py TAWPIPE [PAGE ...]
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent
tawpipe = os.path.abspath(sys.argv[1])
pages = [root / page for page in sys.argv[2:]] or [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Why a command is not run: by its program, or by what stands in it.
ELSEWHERE = {
    "./quickstart": "installs packages and builds for minutes", "./run-tests": "this test is a part of it",
    "cmake": "builds for minutes; ./run-tests and the tests of label package do", "ctest": "this test is one of its tests",
    "pip": "needs PyPI; python.install does it", "tools/torch.sh": "needs PyPI; the tests of label torch use it",
    "mkdir": "downloads packages for another machine", "export": "sets the reader's shell", "cp": "for another machine",
    "build/bench/": "measures for minutes", "bench/": "measures for minutes", "build-dev/": "a test program; ctest runs it",
    "tests/gpu/": "needs a GPU; software_gpu runs the same programs without one", "LD_LIBRARY_PATH=": "for tests on GPUs",
    "RANK=": "needs a GPU", "torchrun": "needs a GPU", "srun": "needs a cluster", "mpirun": "needs several hosts; label mpi runs ranks",
    "NCCL_TOPO_DUMP_FILE=": "needs a GPU", "nvidia-smi": "needs a GPU", "tools/": "builds or downloads", "build-torch/": "needs PyTorch",
    "tests/fuzz/run": "runs for hours; label fuzz draws a little", "man": "needs an installed package",
}
PATTERNS = {
    " ...": "a pattern; its flags are checked", "NAME": "a pattern; docs.pictures draws each of them", "truth/": "reads data of others",
    "--backend": "needs MPI or a GPU", "tawpipe serve": "serves until it is told to end; cli.serve asks it",
    "measure --out": "needs a GPU; software_gpu.measure runs it", "kernels:file=": "reads what that gave",
    "--kineto": "reads traces of a real job; cli/measured_test.cpp has one", "64 --cost measured:cost.json": "reads what those traces gave", "COMMAND": "a pattern",
}
# Files of the reader's that commands name, from the tests' data.
FILES = {
    "topo.txt": "topology/pcie_4gpu_2nic.smi.txt", "topo.xml": "topology/nvswitch_4gpu.nccl.xml",
    "pipeline.csv": "hangs/pt_zbv_p4_m8.csv", "calls.json": "hangs/ring4_one_turned.json", "dumps": "hangs/fr_p2p_crossed_4",
}
TRAIN = """torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --ffn-hidden-size 11008 --swiglu --vocab-size 32000 --seq-length 4096 --max-position-embeddings 4096 --bf16 \\
  --tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128
"""
RUN = """MODEL=$1; MICRO=$2; GLOBAL=$3; TP=$4; PP=$5
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \\
  --ffn-hidden-size 5632 --swiglu --vocab-size 32000 --seq-length 4096 --max-position-embeddings 4096 --bf16 \\
  --attention-dropout 0 --hidden-dropout 0 --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \\
  --num-layers-per-virtual-pipeline-stage $MP_VP --micro-batch-size $MICRO --global-batch-size $GLOBAL
"""
TRAIN_YAML = """model: {model_config: {hidden_size: 2048, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 5632}}
parallelism: {dp: 8, tp: "${TP}", pp: 1, tp_mode: REDUCE_SCATTER}
tokens: {sequence_length: 4096, micro_batch_size: 1, batch_accumulation_per_replica: 8}
"""
FINDS = ("doctor", "validate")  # commands whose answer may be bad news, exit code 1


def reason(line):
    """Why a line is not run; "" where it is."""
    program = line.split()[0]
    if program == "tawpipe":
        return next((why for part, why in PATTERNS.items() if part in line), "")
    return next((why for start, why in ELSEWHERE.items() if program.startswith(start)), "")


def commands_in(block):
    """Its lines, each command one."""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


def looks_like_commands(language, block):
    first = next(commands_in(block), "")
    return language == "sh" or language == "" and (first.startswith("tawpipe ") or bool(first and reason(first)))


class Reader:
    """Who follows one page from its beginning, in a folder of his own."""

    def __init__(self, page):
        self.page, self.told, self.ran, self.failures = page, [], 0, 0
        self.folder = tempfile.mkdtemp()
        for name in ("tests", "examples", "bench"):
            os.symlink(root / name, os.path.join(self.folder, name))
        os.symlink(tawpipe, os.path.join(self.folder, "tawpipe"))
        for name, data in FILES.items():
            os.symlink(root / "tests" / "data" / data, os.path.join(self.folder, name))
        pathlib.Path(self.folder, "train.sh").write_text(TRAIN)
        pathlib.Path(self.folder, "run.sh").write_text(RUN)
        pathlib.Path(self.folder, "train.yaml").write_text(TRAIN_YAML)
        self.environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}

    def bash(self, script, **variables):
        self.ran += 1
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=self.folder, stdin=subprocess.DEVNULL,
                              env={**self.environment, **variables})

    def fail(self, what):
        self.failures += 1
        self.told.append(f"FAILED: {self.page.name}: {what}")

    def shown(self, block):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            shown = re.match(r"(?:.*\\\n)*.*\n?", part).group()
            command, rest = shown.replace("\\\n", " ").strip(), part[len(shown):]
            lines = [line for line in rest.splitlines() if line.strip()]
            if command.startswith("cat "):
                pathlib.Path(self.folder, command.split()[1]).write_text("\n".join(lines) + "\n")
                continue
            missing_program = next((name for name in (part.split()[0] for part in command.split("|")) if name != "tawpipe" and not shutil.which(name)), "")
            if missing_program or reason(command):
                self.told.append(f"left out: {self.page.name}: {command[:90]}: {reason(command) or missing_program + ' is not installed'}")
                continue
            missing, printed = None, ""
            for variables in ({"COLUMNS": "100"}, {}):  # most are of a terminal
                result = self.bash(command, **variables)
                printed = result.stdout + result.stderr
                all_lines = iter(line.rstrip() for line in result.stdout.splitlines())
                missing = next((line for line in lines if line.rstrip() not in all_lines), None)
                if missing is None:
                    break
            if missing is not None:
                self.fail(f"{command}\nshows    {missing}\nprinted:\n{printed}")

    def script(self, block):
        script = "set -e\n"
        for line in commands_in(block):
            why = reason(line)
            if why:
                self.told.append(f"left out: {self.page.name}: {line[:90]}: {why}")
                continue
            if not line.startswith("tawpipe ") and not re.match(r"\w+=", line):
                return self.fail(f"no reason why this is not run: {line}")
            line = line.replace("/tmp/nccl_trace_rank_*", "dumps/*")
            line = re.sub(r"--steps \d+", "--steps 2", line).replace("--devices 8..64", "--devices 8..16")  # else it takes minutes
            if line.startswith("tawpipe plan ") and "--budget" not in line:  # a tenth of the default
                line = line.replace("plan", "plan --budget 4000000", 1)
            bad_news = next((word for word in FINDS if line.startswith(f"tawpipe {word} ")), "")
            script += line + ("\n" if not bad_news else " || test $? = 1\n")
        if script != "set -e\n":
            result = self.bash(script)
            missing = re.search(r"tawpipe: (.*: this tawpipe was built without \w+|.* needs what this machine does not have)", result.stderr)
            if missing:
                self.told.append(f"left out: {self.page.name}: {missing.group(1)}")
            elif result.returncode != 0:
                self.fail(f"code {result.returncode} of\n{script}{result.stderr[-600:]}")

    def read(self):
        for language, block in BLOCK.findall(self.page.read_text()):
            if re.search(r"^\$ ", block, re.MULTILINE):
                self.shown(block)
            elif looks_like_commands(language, block):
                self.script(block)
        shutil.rmtree(self.folder)
        return self


ran = failures = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for reader in pool.map(lambda page: Reader(page).read(), pages):
        print("".join(line + "\n" for line in reader.told), end="", flush=True)
        ran, failures = ran + reader.ran, failures + reader.failures
print(f"{ran} runs of commands, {failures} failures")
sys.exit(1 if failures or ran == 0 else 0)
