#!/usr/bin/env python3
"""Starts N processes of a program as ranks of one run over NCCL: ranks.py [OPTION N]... N PROGRAM ...

With fewer GPUs than ranks, each rank pretends to be a host of its own (NCCL refuses two ranks on one GPU of a host) and all go
over sockets of this one: right numbers, no speeds. Ends with the first failing rank's code; 77 where the program skips.
--kill RANK: once the program prints `training`, kills that rank; all others must then end by themselves with code 3 and name it.
--throw RANK: likewise, but the rank fails by itself: all must end with code 3.
--stall RANK: likewise, but a computation of that rank never ends: all must end with code 3 and name it, not who waits for it.
--within SECONDS: of these three, after `training`: all must have ended by then.
Not: a launcher for training (torchrun, srun, mpirun).
"""
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

LIMIT = float(os.environ.get("TAWPIPE_RANKS_LIMIT", "500"))  # seconds


def gpus():
    if "SOFTWARE_GPUS" in os.environ:
        return int(os.environ["SOFTWARE_GPUS"])
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return listed.count("GPU ")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(rank, ranks, port, shared):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(port), CUDA_MODULE_LOADING="EAGER", NCCL_DEBUG=os.environ.get("NCCL_DEBUG", "WARN"))
    if shared:
        env.update(NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_NET="Socket", NCCL_IB_DISABLE="1",
                   NCCL_MNNVL_ENABLE="0", NCCL_NVLS_ENABLE="0", NCCL_RAS_ENABLE="0", NCCL_MAX_CTAS="2", NCCL_ALGO="Ring",
                   NCCL_PROTO="Simple")
    return env


class Rank:
    def __init__(self, number, command, env):
        self.number, self.text, self.begun = number, "", None
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line
            print(f"[{self.number}] {line}", end="", flush=True)
            if line.startswith("training"):
                self.begun = time.monotonic()


def main():
    arguments, options = sys.argv[1:], {}
    while arguments[0].startswith("--"):
        options[arguments[0]], arguments = int(arguments[1]), arguments[2:]
    victim, thrower, staller = (options.get(how) for how in ("--kill", "--throw", "--stall"))
    last_words = ((f"rank {victim} died",) if victim is not None else
                  (f"rank {thrower} failed: it was told to",) if thrower is not None else
                  (f"rank {staller} has stalled: forward", f"has stalled: [^\n]*; at work for longest is rank {staller}: forward")
                  if staller is not None else ())
    count, command = int(arguments[0]), arguments[1:]
    port, shared = free_port(), gpus() < count
    ranks = [Rank(r, command, environment(r, count, port, shared)) for r in range(count)]
    deadline = time.monotonic() + LIMIT
    killed = False
    while any(rank.process.poll() is None for rank in ranks):
        codes = [rank.process.poll() for rank in ranks]
        begun = ranks[0].begun if last_words else None
        if begun and victim is not None and not killed and time.monotonic() > begun + 0.5:
            ranks[victim].process.send_signal(signal.SIGKILL)
            killed = True
        late = time.monotonic() > min(deadline, begun + 200 if begun else deadline)
        alone = not begun and any(code not in (None, 0, 77) for code in codes)
        if alone:
            deadline = min(deadline, time.monotonic() + 120)  # the others end by themselves, or are ended
        if late:
            print("FAILED: the ranks have not ended in time", flush=True)
            for rank in ranks:
                rank.process.kill()
            return 1
        time.sleep(0.05)
    for rank in ranks:
        rank.reader.join()
    codes = [rank.process.returncode for rank in ranks]
    if set(codes) == {77}:
        return 77
    if last_words:
        began = time.monotonic() if ranks[0].begun is None else ranks[0].begun
        took = time.monotonic() - began
        left = [rank for rank in ranks if rank.number != victim]
        fine = ranks[0].begun is not None and took <= options.get("--within", took) and all(
            rank.process.returncode == 3 and
            (rank.number == thrower or any(re.search(words, rank.text) for words in last_words)) for rank in left)
        print(f"all ranks left have named it and ended, after {took:.1f} s" if fine else
              f"FAILED: codes {codes}, after {took:.1f} s", flush=True)
        return 0 if fine else 1
    return next((abs(code) for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
