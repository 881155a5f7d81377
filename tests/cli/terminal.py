#!/usr/bin/env python3
"""The command as a person meets it: no line is wider than an 80-column terminal, LANG=C gets ASCII, NO_COLOR no colours, every
example in --help runs, and shells complete what may come next.
Not: what the tables say (commands_test.cpp). Usage: terminal.py TAWPIPE
"""
import fcntl
import os
import pathlib
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from command_help import commands, help_of

tawpipe = os.path.abspath(sys.argv[1])
failures = 0


def check(right, what, text=""):
    global failures
    if not right:
        failures += 1
        print(f"FAILED: {what}\n{text}")


def on_terminal(words, columns=80, **variables):
    """What `tawpipe words` writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "LANG": "C.UTF-8", "LC_ALL": "", "TERM": "xterm", **variables}
    process = subprocess.Popen([tawpipe, *words], stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    data = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    process.wait()
    os.close(ours)
    return data.decode(), process.returncode


def width(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in re.sub(r"\x1b\[[0-9;]*m", "", line))


problem = ["--cluster", "2x4", "--model", "llama-8x512", "--sequence", "1024", "--global-batch", "64"]
shown = [["compare", *problem], ["simulate", "--schedule", "tawpipe", *problem], ["list", "schedules"], ["list", "clusters"],
         ["list", "models"], ["sweep", "--vary", "sequence=512,1024", *problem], ["explain", "zb-v"], ["bound", *problem],
         ["validate", "--schedule", "fsdp", *problem], ["plan", *problem, "--budget", "100000"], ["topology", "show", "dgx-h100x2"]]
shown += [[*command, "--help"] for command in commands(tawpipe)] + [["help", *command] for command in commands(tawpipe)]
for words in shown:
    text, code = on_terminal(words)
    name = " ".join(words)
    check(code == 0, f"{name}: code {code}", text)
    for line in text.splitlines():
        check(width(line) <= 80, f"{name}: a line of {width(line)} columns", line)
    plain, _ = on_terminal(words, LANG="C", LC_ALL="C", NO_COLOR="1")
    check(plain.isascii(), f"{name}: not ASCII with LANG=C", next((l for l in plain.splitlines() if not l.isascii()), ""))
    check("\x1b" not in plain, f"{name}: colours with NO_COLOR")

check("\x1b[" in on_terminal(["list", "clusters"])[0], "no colour on a terminal")
version = subprocess.run([tawpipe, "-V"], capture_output=True, text=True)
check(version.stdout.startswith("tawpipe "), "-V")

# Examples run as they are written, in a folder of their own; those that read files of the user's, or that serve until they are
# ended (tests/cli/serve.py), are left out.
needs_files = re.compile(r"nccl-tests|\.txt|measured|rank0|trace_rank|dump|\.csv(?! *$)|--schedule-file|--data |--reference|--kineto|"
                         r"train\.sh|nvidia-smi|mpirun|--backend|source |train |compare-timelines|calibrate|reproduce |measure |"
                         r"kernels:file=|tawpipe serve")
machines = pathlib.Path(__file__).resolve().parent.parent / "data" / "topology"
with tempfile.TemporaryDirectory() as folder:
    for name, of_tests in (("partial.xml", "partial_sm90.xml"), ("topology.conf", "slurm_tree.conf")):
        shutil.copy(machines / of_tests, pathlib.Path(folder, name))
    ran = 0
    for command in commands(tawpipe):
        footer = re.split(r"^Examples?:\n", help_of(tawpipe, command), maxsplit=1, flags=re.MULTILINE)
        for example in footer[1].replace("\\\n", " ").splitlines() if len(footer) > 1 else []:
            words = shlex.split(example)
            if not words or words[0] != "tawpipe" or needs_files.search(example):
                continue
            if words[1] in ("plan", "improve"):  # for what a search finds see tests/unit/search
                if "--budget" in words:
                    del words[(at := words.index("--budget")):at + 2]
                words += ["--budget", "10000000" if "--emit" in words else "3000000" if words[1] == "plan" else "1000000"]
            result = subprocess.run([tawpipe, *words[1:]], capture_output=True, text=True, cwd=folder)
            check(result.returncode == 0, f"an example of --help: {example.strip()}", result.stderr)
            ran += 1
    check(ran >= 12, f"only {ran} examples were run")


def completed(*words):
    return subprocess.run([tawpipe, "__complete", *words], capture_output=True, text=True, check=True).stdout.split()


check(completed("simu") == ["simulate"], "complete a command", completed("simu"))
check("--global-batch" in completed("simulate", "--glo"), "complete a flag")
check(completed("simulate", "--schedule", "zb-h") == ["zb-h1", "zb-h2"], "complete a schedule")
check(completed("simulate", "--cluster", "dgx-h") == ["dgx-h100"], "complete a cluster")
check(completed("compare", "--schedules", "fsdp,hp") == ["fsdp,hpz"], "complete a list")
check(completed("simulate", "--fold", "") == ["auto", "on", "off"], "complete alternatives", completed("simulate", "--fold", ""))
check("prefetch=" in completed("simulate", "--schedule", "fsdp", "--option", "pre"), "complete an option")
check(completed("simulate", "--json", "") == [], "leave files to the shell")
for shell in ("bash", "zsh", "fish"):
    script = subprocess.run([tawpipe, "completion", shell], capture_output=True, text=True, check=True).stdout
    check("__complete" in script, f"the script for {shell}")
bash = subprocess.run(["bash", "-c", f'PATH="{os.path.dirname(tawpipe)}:$PATH"; source <(tawpipe completion bash); '
                       'COMP_WORDS=(tawpipe list sch); COMP_CWORD=2; _tawpipe; echo "${COMPREPLY[@]}"'],
                      capture_output=True, text=True)
check(bash.stdout.strip() == "schedules", "bash completes", bash.stdout + bash.stderr)

print(f"{failures} failures" if failures else "all fits")
sys.exit(1 if failures else 0)
