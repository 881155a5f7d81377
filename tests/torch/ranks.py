"""Ranks as forked processes that are joined by Gloo, watched for a standstill. Imported by the tests of label `torch`.
Not: a test."""
import mmap
import os
import pathlib
import pickle
import signal
import struct
import sys
import tempfile
import time
import traceback

SKIP = 77
MINIMUM = (2, 10)


def torch_python():
    """The Python of the environment that tools/torch.sh makes."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("TAWPIPE_TORCH") or cache + "/tawpipe/torch") / "bin/python"


def use_torch():
    """Goes on in the Python that has PyTorch, or ends the test as skipped, with a word why."""
    try:
        import torch
    except ImportError:
        python = torch_python()
        if os.environ.get("TAWPIPE_TORCH_TRIED") or not python.exists():
            print("skipped: PyTorch is not installed; tools/torch.sh makes an environment that has it")
            sys.exit(SKIP)
        os.environ["TAWPIPE_TORCH_TRIED"] = "1"
        os.execv(python, [str(python), *sys.argv])
    if not torch.distributed.is_available():
        print(f"skipped: PyTorch {torch.__version__} is built without torch.distributed")
        sys.exit(SKIP)
    if torch_version() < MINIMUM:
        print(f"skipped: PyTorch {torch.__version__} is older than {MINIMUM[0]}.{MINIMUM[1]}; tools/torch.sh makes an environment")
        sys.exit(SKIP)
    torch.set_num_threads(1)  # before a fork there must be no threads
    return torch


def torch_version():
    import torch
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def over_gloo(stages, rank):
    """Pipeline stages that can begin over Gloo: older releases first connect neighbours, in a V with a message of a rank to
    itself, which NCCL has and Gloo has not."""
    for stage in stages:
        first = getattr(stage, "_get_init_p2p_neighbors_ops", None)
        if first is not None:
            stage._get_init_p2p_neighbors_ops = lambda first=first: [op for op in first() if op.peer != rank]
    return stages


class Standstill(Exception):
    """No rank gets on. `places` says where each stands; None of a rank that has ended."""

    def __init__(self, places):
        super().__init__(f"the ranks stand at {places}")
        self.places = places


class Place:
    """Where a rank is, in memory that its parent sees."""
    SIZE = 4096

    def __init__(self, memory, rank):
        self._memory, self._begin, self._steps = memory, rank * self.SIZE, 0

    def at(self, *names):
        """The rank is about to do this; several threads of it may each be at one."""
        self._steps += 1
        text = "\n".join(names).encode()[: self.SIZE - 16]
        self._memory[self._begin + 16 : self._begin + 16 + len(text)] = text
        self._memory[self._begin : self._begin + 16] = struct.pack("=qq", self._steps, len(text))

    @staticmethod
    def read(memory, rank):
        begin = rank * Place.SIZE
        steps, length = struct.unpack("=qq", memory[begin : begin + 16])
        return steps, [name for name in memory[begin + 16 : begin + 16 + length].decode(errors="replace").split("\n") if name]


def play(ranks, body, patience=60):
    """Runs body(rank, place) on each of `ranks` processes in a Gloo group; returns what each returned.

    Raises Standstill, and ends the processes, when for `patience` seconds none of them got on; RuntimeError with the trace of
    the first that failed.
    """
    import torch.distributed as dist

    memory = mmap.mmap(-1, Place.SIZE * ranks)
    with tempfile.TemporaryDirectory(prefix="tawpipe_ranks_") as folder:
        children = {}
        all_ended, close = os.pipe()  # a rank that has ended keeps its connections until all have
        sys.stdout.flush()
        for rank in range(ranks):
            pid = os.fork()
            if pid:
                children[pid] = rank
                continue
            code = 1
            try:
                os.close(close)
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
                dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
                dist.barrier()
                result = body(rank, Place(memory, rank))
                pathlib.Path(folder, f"part{rank}").write_bytes(pickle.dumps(result))
                os.rename(f"{folder}/part{rank}", f"{folder}/result{rank}")
                os.read(all_ended, 1)
                code = 0
            except BaseException:
                pathlib.Path(folder, f"fault{rank}").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        os.close(all_ended)
        try:
            return _watch(folder, memory, ranks, children, patience)
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            for pid in children:
                os.waitpid(pid, 0)
            os.close(close)


def _watch(folder, memory, ranks, children, patience):
    last, since = None, time.monotonic()
    while True:
        ended = [os.path.exists(f"{folder}/result{rank}") for rank in range(ranks)]
        if all(ended):
            return [pickle.loads(pathlib.Path(folder, f"result{rank}").read_bytes()) for rank in range(ranks)]
        for pid, rank in children.items():
            # The process stays in the table, for it is ended as the others are.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None and not ended[rank]:
                fault = pathlib.Path(folder, f"fault{rank}")
                raise RuntimeError(f"rank {rank} failed:\n{fault.read_text() if fault.exists() else 'it was killed'}")
        seen = [Place.read(memory, rank) for rank in range(ranks)], ended
        # Before each rank has a place the group is still made, which takes long on a busy machine.
        begun = all(steps for steps, _ in seen[0])
        if seen != last:
            last, since = seen, time.monotonic()
        elif time.monotonic() - since > (patience if begun else 300):
            raise Standstill([None if ended[rank] else names for rank, (_, names) in enumerate(seen[0])])
        time.sleep(0.01)
