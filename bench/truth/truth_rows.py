"""What the adapters share: rows of truth tables in plain numbers, devices from their data sheets, and the run over all rows.

An adapter gives `predict(row, near)`, which returns (seconds, GiB) or raises NotExpressed. What a tool cannot say as it is, but
nearly, it passes to `near`: counted and printed, and refused with --strict.
Not: a tool's own description (calculon_rows.py, simumax_rows.py) nor a score (score.py).
"""
import argparse
import collections
import csv
import dataclasses
import re
import sys

DEVICES = (  # the first whose name `hardware` contains. GiB; dense TFLOPS of 16 bits; GB/s of memory, of NVLink and of the network
    # one way, by the vendor's data sheets; the most devices of one NVLink domain
    ("gb300", 279, 2500, 8000, 900, 100, 72), ("gb200", 186, 2500, 8000, 900, 50, 72), ("b300", 270, 2250, 8000, 900, 100, 8),
    ("b200", 180, 2250, 8000, 900, 50, 8), ("h200", 141, 989, 4800, 450, 50, 8), ("h100 96gb", 96, 989, 2400, 450, 50, 8),
    ("h100", 80, 989, 3350, 450, 50, 8), ("a100_40", 40, 312, 1555, 300, 25, 8), ("a100", 80, 312, 2039, 300, 25, 8))
Device = collections.namedtuple("Device", "name gib tflops memory nvlink network domain")


class NotExpressed(Exception):
    """Why a tool cannot say a row."""


@dataclasses.dataclass
class Row:
    """A row in numbers. Where a table says nothing: microbatches of one sequence, as many key and value heads as query heads,
    Megatron-LM's vocabulary of 51,200, a gated MLP unless it is four times as wide as the model."""
    cells: dict

    def __post_init__(self):
        cells = self.cells
        self.id = cells["row"]
        self.source, self.model = cells["source"], cells["model"]
        self.missing = [key for key in ("gpus", "layers", "hidden", "heads", "ffn", "sequence", "global_batch") if not cells.get(key)]
        for key, unsaid in {"gpus": 0, "layers": 0, "hidden": 0, "heads": 0, "ffn": 0, "vocab": 51200, "experts": 0, "topk": 0, "sequence": 0,
                            "global_batch": 0, "micro_batch": 1, "tp": 1, "cp": 1, "ep": 1, "pp": 1, "vp": 1}.items():
            setattr(self, key, int(float(cells.get(key) or unsaid)))
        self.kv_heads = int(cells.get("kv_heads") or self.heads)
        self.head_dim = int(cells.get("head_dim") or (self.hidden // self.heads if self.heads else 0))
        self.dp = self.gpus // (self.tp * self.cp * self.pp)
        self.gated = self._is_gated()
        hardware = cells["hardware"].lower()
        self.device = next((Device(*one) for one in DEVICES if one[0] in hardware), None)
        # devices of one NVLink domain: of a rack the largest number up to 72 that divides all
        self.domain = next((n for n in range(min(self.gpus, self.device.domain), 0, -1) if self.gpus % n == 0), 1) if self.device else 0
        self.network = self.device.network if self.device else 0  # GB/s of one device one way
        precision = cells["precision"].lower()
        self.bits = 4 if "fp4" in precision else 8 if "fp8" in precision or "mx" in precision else 16
        unsaid = not precision and "a100" in hardware  # Megatron-LM's defaults until 2023, without fused attention
        self.half = unsaid or precision in ("fp16", "float16") or precision.startswith("16-bit")
        zero, flags = cells["zero"].lower(), cells["overlap_flags"].lower()
        self.shards_weights = "fsdp" in zero or "torch_compile" in flags or "use_megatron_fsdp=true" in flags
        self.shards_optimizer = zero != "none"
        self.part_groups = "of a node" in zero
        self.sequence_parallel = cells["sp"] != "0"
        self.off = "overlap off" in flags
        self.flags = flags
        recompute = cells["recompute"].lower()
        self.recompute_modules = [one for one in recompute.partition("modules ")[2].split("+") if one]
        self.recompute = "full" if recompute.startswith("full") else "selective" if recompute.startswith("selective") or \
            self.recompute_modules else "none"
        self.schedule = cells["schedule"].lower()

    def take_said_network(self):
        """The network that the row says, in place of an adapter of the device's generation for each, as tawpipe assumes."""
        if found := re.fullmatch(r"(?:(\d+)x)?(\d+) \w+", self.cells.get("network") or ""):
            self.network = int(found[1] or 1) * int(found[2]) / 8 / int(self.cells["gpus_per_node"])

    def _is_gated(self):
        """By the printed number of parameters where there is one (a mixture has a gate)."""
        if self.experts or not self.cells.get("params_b"):
            return self.experts > 0 or self.ffn != 4 * self.hidden
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        ways = [(abs(self.layers * (attention + (2 + gate) * self.hidden * self.ffn) + (2 - tied) * self.vocab * self.hidden
                     - float(self.cells["params_b"]) * 1e9), gate) for gate in (0, 1) for tied in (0, 1)]
        return bool(min(ways)[1])

    def says(self, flag, unsaid):
        """Whether the flags name it; `unsaid` where they do not."""
        return f"{flag}=1" in self.flags or (unsaid and f"{flag}=0" not in self.flags)

    def check(self):
        """What no tool can predict. @raise NotExpressed"""
        if not self.device:
            raise NotExpressed(f"a device without a system: {self.cells['hardware'] or 'none named'}")
        if self.missing:
            raise NotExpressed(f"the row does not say: {', '.join(self.missing)}")
        if not any(self.cells.get(key) for key in ("tp", "cp", "pp")):
            raise NotExpressed("the row does not say its layout")
        if self.global_batch % (self.dp * self.micro_batch):
            raise NotExpressed("the batch is not a whole number of microbatches")


def refuse(what):
    raise NotExpressed(f"only nearly: {what}")


def read(files):
    for name in files:
        with open(name, encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def run(adapter, description):
    """Predicts all rows of the tables named on the command line by adapter(path), and writes the CSV."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="truth tables (README.md)")
    parser.add_argument("--path", help="a clone of the tool; without it the installed package")
    parser.add_argument("--strict", action="store_true", help="only what the tool ships and says as it is, without approximations")
    parser.add_argument("--said-network", action="store_true", help="the rows' own networks (column network), not the usual of the device")
    parser.add_argument("--out", default="-", help="the CSV of predictions (id,seconds,gib,low,high); - is standard output")
    arguments = parser.parse_args()
    if arguments.path:
        sys.path.insert(0, arguments.path)
    predict = adapter(arguments.path)
    reasons, nearly, expressed = collections.Counter(), collections.Counter(), 0
    out = sys.stdout if arguments.out == "-" else open(arguments.out, "w", encoding="utf-8", newline="")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(("id", "seconds", "gib", "low", "high"))
    for cells in read(arguments.tables):
        row, said = Row(cells), []
        if arguments.said_network:
            row.take_said_network()
        try:
            row.check()
            seconds, gib = predict(row, refuse if arguments.strict else said.append)
        except NotExpressed as why:
            reasons[str(why)] += 1
            continue
        nearly.update(said)
        expressed += 1
        table.writerow((row.id, f"{seconds:.6g}", f"{gib:.4g}", "", ""))
        out.flush()
    print(f"{expressed} rows expressed, {sum(reasons.values())} not:", file=sys.stderr)
    for title, counted in (("", reasons), ("said nearly, of those expressed:", nearly)):
        if counted and title:
            print(title, file=sys.stderr)
        for why, count in counted.most_common():
            print(f"{count:5}  {why}", file=sys.stderr)
