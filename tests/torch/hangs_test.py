#!/usr/bin/env python3
"""Orders of calls whose verdicts are known, run for real over Gloo: those that hang stand still where the prover says, those that
end and those that `tawpipe validate --mend` mended end.

hangs_test.py COMMAND CASES: the `tawpipe` that proves and mends; the folder with verdicts.csv. A Gloo send holds its caller until
its receive runs, as a send of NCCL holds its stream; streams are threads. Exit 77, with a word why, without PyTorch 2.10 or later.
"""
import csv
import json
import logging
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ranks

torch = ranks.use_torch()
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

COMMAND, CASES = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
PATIENCE = 5  # seconds in which no rank of a run gets on that should hang; those that should end are given longer
MICROBATCH, WIDTH = 2, 4


class Streams:
    """Plays the calls of one rank: the host launches them in order, each stream runs its own in order, groups at once."""

    def __init__(self, program, rank, place):
        self._rank, self._place = rank, place
        self._calls = program["ranks"][rank]["ops"]
        self._groups = {name: dist.new_group(members) for name, members in program["comms"].items()}
        self._ended = {call["id"]: threading.Event() for call in self._calls}
        self._running, self._lock, self._faults = [], threading.Lock(), []
        self._last = {}  # by stream, the thread that runs its latest launch

    def run(self):
        self._place.at("start")
        begin = 0
        while begin < len(self._calls):
            end = begin + 1
            group = self._calls[begin].get("group")
            while group is not None and end < len(self._calls) and self._calls[end].get("group") == group:
                end += 1
            self._launch(self._calls[begin:end])
            begin = end
        for call in self._calls:
            self._wait(self._ended[call["id"]])
        if self._faults:
            raise self._faults[0]

    def _wait(self, event):
        while not event.wait(0.05):
            if self._faults:
                raise self._faults[0]

    def _launch(self, calls):
        stream = calls[0].get("stream")
        before = self._last.get(stream) if stream is not None else None
        posted = [self._post(call) for call in calls] if stream is None else None  # a request: posted now, waited for later
        thread = threading.Thread(target=self._execute, args=(calls, before, posted), daemon=True)
        thread.start()
        if stream is not None:
            self._last[stream] = thread
        if any(call.get("blocks_host") for call in calls):
            for call in calls:
                self._wait(self._ended[call["id"]])

    def _execute(self, calls, before, posted):
        try:
            if before is not None:
                before.join()
            for call in calls:
                for other in call.get("waits_for", []):
                    self._ended[other].wait()
            names = [call["id"] for call in calls]
            self._note(self._running.extend, names)
            for work in posted or [self._post(call) for call in calls]:
                if work is not None:
                    work.wait()
            self._note(lambda ended: [self._running.remove(name) for name in ended], names)
            for call in calls:
                self._ended[call["id"]].set()
        except BaseException as fault:
            self._faults.append(fault)

    def _note(self, change, names):
        with self._lock:
            change(names)
            self._place.at(*(self._running or ["between calls"]))

    def _post(self, call):
        if call["op"] in ("compute", "wait"):
            return None
        group = self._groups[call["comm"]]
        tensor = torch.zeros(1024)
        if call["op"] == "send":
            return dist.isend(tensor, call["peer"], group=group, tag=call.get("tag", 0))
        if call["op"] == "recv":
            return dist.irecv(tensor, call["peer"], group=group, tag=call.get("tag", 0))
        return dist.all_reduce(tensor, group=group, async_op=True)


def rows_of(path):
    with open(path, newline="") as file:
        return [[cell.strip() for cell in row if cell.strip()] for row in csv.reader(file)]


def parts_of(cell):
    return re.findall(r"(\d+)(WAIT_SEND_F|WAIT_SEND_B|SEND_F|SEND_B|RECV_F|RECV_B|F|B|I|W)(\d+)", cell.split(")")[0])


def rank_of_stage(rows):
    return {int(stage): rank for rank, row in enumerate(rows) for cell in row for stage, op, _ in parts_of(cell)
            if op in ("F", "B", "I", "W")}


def program_of(rows):
    """The rows as calls of one stream a rank: each action holds the rank."""
    home = rank_of_stage(rows)
    program = {"comms": {"pp": list(range(len(rows)))}, "ranks": []}
    for row in rows:
        calls = []
        for number, cell in enumerate(row):
            for stage, op, microbatch in parts_of(cell):
                if not op.startswith(("SEND", "RECV")):
                    continue
                forward, sends = op.endswith("F"), op.startswith("SEND")
                call = {"id": f"{stage}{op}{microbatch}", "op": "send" if sends else "recv", "comm": "pp", "stream": "pp",
                        "peer": home[int(stage) + (1 if forward == sends else -1)]}
                if cell.endswith("BATCH_P2P"):
                    call["group"] = str(number)
                calls.append(call)
        program["ranks"].append({"ops": calls})
    return program


class Layer(torch.nn.Linear):
    def __init__(self):
        super().__init__(WIDTH, WIDTH)


def run_pipeline(rows, rank, place):
    """PyTorch's own runtime; each send and receive is waited for at once, where NCCL's stream would be held."""
    class Noted(schedules.record_function):
        def __init__(self, name, *more):
            place.at(name.removeprefix("PP:"))
            super().__init__(name, *more)

    post = schedules._batch_p2p

    def post_and_wait(*arguments, **more):
        works = post(*arguments, **more)
        for work in works:
            work.wait()
        return []

    schedules.record_function, schedules._batch_p2p = Noted, post_and_wait
    logging.disable()  # of what the runtime says when its peers are ended
    waits = hasattr(schedules, "_add_wait_send")  # PyTorch 2.15 on
    actions = {r: [schedules._Action.from_str(cell) for cell in row if waits or "WAIT_SEND" not in cell] for r, row in enumerate(rows)}
    if waits:
        for r, row in actions.items():
            actions[r] = [a for action in row for a in ([action] if str(action).find("REDUCE_GRAD") < 0 else
                          [action, action._replace(computation_type=schedules._ComputationType.WAIT_REDUCE_GRAD)])]
        if not any("WAIT_SEND" in cell for row in rows for cell in row):
            actions = schedules._add_wait_send(actions)
    home = rank_of_stage(rows)
    microbatches = 1 + max(int(m) for row in rows for cell in row for _, _, m in parts_of(cell))
    mine = [PipelineStage(Layer(), stage, len(home), torch.device("cpu")) for stage in sorted(home) if home[stage] == rank]
    runtime = schedules._PipelineScheduleRuntime(ranks.over_gloo(mine, rank), microbatches,
                                                 loss_fn=lambda output, target: (output - target).sum())
    runtime._prepare_schedule_with_comms(actions, format="compute_comms")
    place.at("start")
    # The stages learn their shapes from each other before the first step.
    batch = torch.zeros(microbatches * MICROBATCH, WIDTH)
    runtime.step(*([batch] if home[0] == rank else []),
                 **({"target": batch, "losses": []} if home[len(home) - 1] == rank else {}))
    place.at("end")


def play(path, patience):
    if path.suffix == ".json":
        program = json.loads(path.read_text())
        ranks.play(len(program["ranks"]), lambda rank, place: Streams(program, rank, place).run(), patience)
        return
    rows = rows_of(path)
    if any("BATCH_P2P" in cell for row in rows for cell in row):  # PyTorch has no words for these
        program = program_of(rows)
        ranks.play(len(rows), lambda rank, place: Streams(program, rank, place).run(), patience)
    else:
        ranks.play(len(rows), lambda rank, place: run_pipeline(rows, rank, place), patience)


def not_for_gloo(path):
    """Why a case cannot be shown here; None if it can."""
    if path.suffix != ".json":
        return None
    semantics = json.loads(path.read_text()).get("semantics", {})
    if "slots" in semantics:
        return "Gloo has no kernels that fill a device"
    if semantics.get("cold"):
        return "Gloo makes its connections before the first call"
    return None


class Hangs(unittest.TestCase):
    def check(self, case):
        path = CASES / case["case"]
        with tempfile.TemporaryDirectory(prefix="tawpipe_hangs_") as folder:
            mended, verdict = pathlib.Path(folder, "mended" + path.suffix), pathlib.Path(folder, "verdict.json")
            code = subprocess.run([COMMAND, "validate", "--schedule-file", path, "--json", verdict, "--mend", mended],
                                  stdout=subprocess.DEVNULL).returncode
            if case["verdict"] == "refused":
                self.assertEqual(code, 2)
                return "refused"
            found = json.loads(verdict.read_text())
            self.assertEqual(found["verdict"], case["verdict"])
            if found["differing"]:
                return "calls that meet differ, and Gloo has no rule for these"
            if case["verdict"] == "ends":
                play(path, 120)
                return "ends"
            self.assertEqual(code, 1)
            with self.assertRaises(ranks.Standstill) as caught:
                play(path, PATIENCE)
            places = caught.exception.places
            circle = {}  # by rank, its calls
            for waiting in found["cycle"]:
                rank, calls = waiting.split(":", 1)
                circle.setdefault(int(rank), set()).update(calls.split(" + "))
            for rank, calls in circle.items():
                self.assertTrue(calls & set(places[rank] or []), f"rank {rank} stands at {places[rank]}, not at one of {calls}")
            if not found["mend"]:
                return "hangs"
            play(mended, 120)
            return f"hangs; mended ({found['mend']}), it ends"

    def test_known_orders(self):
        with open(CASES / "verdicts.csv", newline="") as file:
            cases = list(csv.DictReader(file))
        shown = {"ends": 0, "deadlock": 0}
        for case in cases:
            with self.subTest(case=case["case"]):
                why = not_for_gloo(CASES / case["case"])
                print(f"{case['case']}: {'left out: ' + why if why else self.check(case)}", flush=True)
                shown[case["verdict"]] = shown.get(case["verdict"], 0) + (why is None)
        self.assertGreaterEqual(shown["deadlock"], 15)
        self.assertGreaterEqual(shown["ends"], 30)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main(verbosity=2)
