#!/usr/bin/env python3
"""Exported schedules run in torch.distributed.pipelining: losses and gradients must be those of one process.

pipeline_test.py COMMAND: the `tawpipe` that exports. Exit 77, with a word why, without PyTorch 2.10 or later.
"""
import csv
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ranks

torch = ranks.use_torch()
from torch.distributed.pipelining import PipelineStage, schedules

COMMAND = sys.argv.pop(1)
# Every schedule that keeps each stage on one rank and moves activations between ranks.
PIPELINES = ["1f1b", "gpipe", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zb-auto", "interleaved-zb", "zb-v", "v-half",
             "v-min", "dualpipe-v"]
MICROBATCHES, ROWS, WIDTH = 8, 2, 6
NEEDS_WAITS = hasattr(schedules._ComputationType, "WAIT_SEND_F")  # PyTorch 2.15 on


class Block(torch.nn.Module):
    """One stage: x + W2 gelu(W1 norm(x))."""

    def __init__(self, stage):
        super().__init__()
        torch.manual_seed(100 + stage)
        self.norm = torch.nn.LayerNorm(WIDTH, dtype=torch.float64)
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH, dtype=torch.float64)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def loss_of(output, target):
    return torch.nn.functional.mse_loss(output, target)


def batch():
    torch.manual_seed(1)
    shape = (MICROBATCHES * ROWS, WIDTH)
    return torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)


def one_process(stages):
    """[microbatch] losses, and by parameter's name the gradient of their mean."""
    blocks = [Block(stage) for stage in range(stages)]
    model = torch.nn.Sequential(*blocks)
    x, y = batch()
    losses = [loss_of(model(a), b) for a, b in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES))]
    (sum(losses) / MICROBATCHES).backward()
    return [loss.item() for loss in losses], {name: p.grad for name, p in model.named_parameters()}


def rows_of(path):
    with open(path, newline="") as file:
        return [[cell for cell in row if cell.strip()] for row in csv.reader(file)]


def stages_of(row):
    """The stages that a rank computes."""
    return sorted({int(stage) for cell in row for stage in re.findall(r"(?<![A-Z_])(\d+)[FBIW]\d", cell)})


def train(path, form, rank, place):
    rows = rows_of(path)
    stages = 1 + max(stage for row in rows for stage in stages_of(row))
    mine = [PipelineStage(Block(stage), stage, stages, torch.device("cpu")) for stage in stages_of(rows[rank])]
    runtime = schedules._PipelineScheduleRuntime(ranks.over_gloo(mine, rank), MICROBATCHES, loss_fn=loss_of)
    runtime._load_csv(str(path), format=form)
    x, y = batch()
    losses = []
    place.at("step")
    given = [x] if 0 in stages_of(rows[rank]) else []
    last = stages - 1 in stages_of(rows[rank])
    runtime.step(*given, **({"target": y, "losses": losses} if last else {}))
    place.at("stepped")
    gradients = {f"{stage.stage_index}.{name}": p.grad for stage in mine for name, p in stage.submod.named_parameters()}
    return [loss.item() for loss in losses], gradients


class Pipelines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tawpipe_torch_")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def exported(self, schedule, devices, *flags):
        path = pathlib.Path(self.folder.name, f"{schedule}_{devices}{''.join(flags)}.csv")
        subprocess.run([COMMAND, "export", "--schedule", schedule, "--cluster", f"1x{devices}", "--microbatches",
                        str(MICROBATCHES), "--cost", "fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s", "--format", "pytorch-csv", "--out", path,
                        *flags], check=True)
        return path

    def check(self, schedule, devices, form, *flags):
        with self.subTest(schedule=schedule, ranks=devices, form=form):
            path = self.exported(schedule, devices, *flags)
            results = ranks.play(devices, lambda rank, place: train(path, form, rank, place), patience=120)
            losses, expected = one_process(1 + max(stage for row in rows_of(path) for stage in stages_of(row)))
            found = {name: gradient for _, gradients in results for name, gradient in gradients.items()}
            self.assertEqual([mine for mine, _ in results if mine], [losses])
            self.assertEqual(sorted(found), sorted(expected))
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-14, msg=lambda text: f"{name}: {text}")
            self.__class__.passed = getattr(self, "passed", 0) + 1
            print(f"{schedule}, {devices} ranks, {form}: {len(losses)} losses, {len(expected)} gradients equal", flush=True)

    def test_computations(self):
        """PyTorch adds sends and receives itself."""
        for devices in (2, 4):
            for schedule in PIPELINES:
                self.check(schedule, devices, "compute_only")

    def test_with_communication(self):
        waits = ["--waits"] if NEEDS_WAITS else []
        for devices in (2, 4):
            for schedule in PIPELINES:
                self.check(schedule, devices, "compute_comms", "--communication", "--reduce-grad", *waits)

    def test_places_are_pytorchs(self):
        """Sends, receives and waits stand where PyTorch's own lowering puts them."""
        for schedule in PIPELINES:
            with self.subTest(schedule=schedule):
                rows = {rank: [schedules._Action.from_str(cell) for cell in row]
                        for rank, row in enumerate(rows_of(self.exported(schedule, 4)))}
                rank_of = {action.stage_index: rank for rank, row in rows.items() for cell in row
                           for action in cell.sub_actions or (cell,)}
                lowered = schedules._add_send_recv(rows, lambda stage: rank_of[stage], len(rank_of))
                flags = ["--communication"]
                if NEEDS_WAITS:
                    lowered = schedules._add_wait_send(lowered)
                    flags.append("--waits")
                self.assertEqual(rows_of(self.exported(schedule, 4, *flags)),
                                 [[str(action) for action in lowered[rank]] for rank in sorted(lowered)])


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main(verbosity=2)
