"""How should I train this model on that cluster? Schedules of distributed training, simulated and proven.

>>> import tawpipe
>>> table = tawpipe.compare(cluster="a800x24-10gbe", model="llama-48x1024", sequence=16384, global_batch=1536)
>>> print(table)                       # the table of `tawpipe compare`
>>> table[0]["tokens_per_device_per_second"]
>>> import pandas; pandas.DataFrame(table.rows())

Clusters and models are named as in the command (`clusters()`, `models()`), read from files, or values of `cluster()` and
`model()`. Errors are `InputError` and `ScheduleError`, both ValueErrors. While it computes, other threads run.
"""

from __future__ import annotations

import html
import inspect
import itertools
import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _core, _program
from ._core import (BUFFER_KINDS, OPS, PAYLOADS, Cluster, Error, InputError, Model, Prediction, Schedule, ScheduleError,
                    Timeline)
from ._core import version as __version__

if TYPE_CHECKING:
    import subprocess

__all__ = ["BUFFER_KINDS", "OPS", "PAYLOADS", "Cluster", "Comparison", "Diagnosis", "Error", "Findings", "InputError", "Model",
           "Bound", "OrderProof", "Plans", "Prediction", "Schedule", "ScheduleError", "Table", "Timeline", "bound", "cluster",
           "clusters", "compare", "devices", "doctor", "model", "models", "plan", "prove", "read_schedule", "run",
           "schedules", "simulate", "sweep", "validate"]

ClusterLike = Union[str, os.PathLike, Mapping[str, Any], Cluster]
ModelLike = Union[str, os.PathLike, Mapping[str, Any], Model]
Options = Mapping[str, object]
Field = Union[str, int, float, bool, None]


class Table(Sequence):
    """Rows of equal keys: a list of dicts, as pandas.DataFrame takes it. Shown as a table in a notebook."""

    def __init__(self, rows: Iterable[dict], columns: Sequence[str] | None = None):
        self._rows = list(rows)
        self._columns = list(columns) if columns else list(self._rows[0]) if self._rows else []

    def __getitem__(self, index):
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[dict]:
        """A list of dicts, of its own."""
        return [dict(row) for row in self._rows]

    def _cells(self) -> list[list[str]]:
        return [[_text(row.get(column)) for column in self._columns] for row in self._rows]

    def __str__(self) -> str:
        lines = [self._columns, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Iterable[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
        body = "".join(line("td", cells) for cells in self._cells())
        return f"<table><thead>{line('th', self._columns)}</thead><tbody>{body}</tbody></table>"


class Comparison(Table):
    """Schedules on one problem, best first: a dict for each with the keys of `tawpipe compare --json` (docs/output.md)."""

    def __init__(self, found: _core.ComparisonResult):
        rows = found.results()
        for row, label in zip(rows, found.labels):
            row["label"] = label
        super().__init__(rows, ["label", "makespan_s", "tokens_per_device_per_second", "mfu", "bubble_ratio", "microbatch_size",
                                "out_of_memory"])
        self._text = found.problem + "\n" + found.table

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class Plans(Table):
    """Ways to train, the fastest first: a dict for each with the keys of `plans` in `tawpipe plan --json` (docs/output.md).

    With `devices` the best for each number of devices.
    """

    def __init__(self, answer: str, text: str, complaint: str):
        self._json = answer
        self.answer: dict = json.loads(answer)
        """All keys of `tawpipe plan --json`."""
        self._searches: list = self.answer.get("by_devices", [self.answer])
        plans = [plan for one in self._searches for plan in one["plans"]]
        super().__init__(plans, ["ranks"] * (len(self._searches) > 1) + ["schedule", "axes", "microbatch_size", "recompute", "makespan_s",
                                           "tokens_per_device_per_second", "mfu"])
        self.complaint: str = complaint
        """Why there is no plan; empty where there is one."""
        self._text = text

    @property
    def proven_best(self) -> bool:
        """Nothing in the space is faster."""
        return all(one["proven_best"] for one in self._searches)

    @property
    def stopped(self) -> bool:
        """Ctrl-C ended the search: these are the best so far."""
        return any(one["stopped"] for one in self._searches)

    @property
    def pareto(self) -> Table:
        """Plans that no other beats in time and memory at once."""
        return Table(self.answer["pareto"])

    @property
    def what_if(self) -> Table:
        """What each change of `what_if` makes of it: what, nodes, devices, device, plan, speed, worth."""
        return Table(self.answer.get("what_if", []), ["what", "devices", "device", "tokens_per_second", "speed", "worth"])

    @property
    def today(self) -> dict | None:
        """What is run today: the keys of a plan, and lost, changes, notes."""
        return self.answer.get("today")

    @property
    def settings(self) -> str | None:
        """The settings of the best plan that the framework of `emit` can run."""
        return self.answer["emitted"]["text"] if "emitted" in self.answer else None

    def to_json(self) -> str:
        """What `tawpipe plan --json` writes, byte for byte."""
        return self._json

    def __str__(self) -> str:
        return self._text if self else self._text + self.complaint

    __repr__ = __str__


class Findings(Table):
    """What is wrong with a schedule: severity, code (docs/validation.md), task, rank, message, help. Empty: nothing."""

    def __init__(self, findings: list[dict]):
        super().__init__(findings, ["severity", "code", "task", "rank", "message", "help"])

    @property
    def ok(self) -> bool:
        """No errors; warnings may be there."""
        return all(finding["severity"] != "error" for finding in self)

    def __str__(self) -> str:
        return super().__str__() if self else "no findings"

    __repr__ = __str__


class _Report(dict):
    """A dict with the keys of the command's --json that prints as the command does."""

    def __init__(self, found: dict, text: str):
        super().__init__(found)
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class OrderProof(_Report):
    """Whether an order of calls ends in every timing: verdict, cycle, missing, differing, crossed_data, mend."""

    def __init__(self, found: dict, text: str, mended: str):
        super().__init__(found, text)
        self.mended = mended
        """The order as a file, with the mend where one was found."""

    @property
    def ok(self) -> bool:
        """It ends, and each message meets its receive."""
        return self["verdict"] == "ends" and not any(self[key] for key in ("missing", "differing", "crossed_data"))


class Bound(_Report):
    """A time that no schedule of any kind is faster than: bound_s, limited_by, fits, and what it follows from."""


class Diagnosis(_Report):
    """What keeps a job from going on: verdict, note, culprits, cycle, waits."""


def cluster(given: ClusterLike, device: str = "", inter_node: str = "") -> Cluster:
    """The cluster of a name ("dgx-h100*4", "3x8"), a file, or a dict in the form of docs/topology.md.

    Args:
        device: The GPU by name, where `given` (a name or a file) names none, or another than it names.
        inter_node: The speed of each adapter, such as "100Gbps", in place of what a name or a file says.
    """
    for name, value in (("device", device), ("inter_node", inter_node)):
        if not isinstance(value, str):
            raise _wrong(name, "a str", value)
        if value and isinstance(given, (Cluster, Mapping)):
            raise InputError(f"{name} is for a cluster's name or file; a dict or a Cluster says its own: leave it out")
    if isinstance(given, Cluster):
        return given
    if isinstance(given, Mapping):
        return Cluster.from_json(json.dumps(given))
    return Cluster.named(_path("cluster", given, "a name, a file, a dict or a Cluster"), device, inter_node)


def model(given: ModelLike) -> Model:
    """The model of a name ("llama-3-8b", "llama-48x1024"), a Hugging Face config.json or its folder, or the config as a dict."""
    if isinstance(given, Model):
        return given
    if isinstance(given, Mapping):
        return Model.from_config(json.dumps(given), str(given.get("_name_or_path") or "model"))
    return Model.named(_path("model", given, "a name, a file, a dict or a Model"))


def schedules() -> Table:
    """The schedules with their options: name, description, source, options."""
    return Table(_core.list("schedules"), ["name", "description"])


def clusters() -> Table:
    """The clusters with a name."""
    return Table(_core.list("clusters"), ["name", "nodes", "ranks", "description"])


def devices() -> Table:
    """The devices with a name: memory in bytes, dense peaks in FLOP/s."""
    return Table(_core.list("devices"), ["name", "memory_bytes", "flops_per_second", "own_curves", "source"])


def models() -> Table:
    """The models with a name."""
    return Table(_core.list("models"), ["name", "parameters", "layers", "hidden", "description"])


def compare(*names: str, cluster: ClusterLike, model: ModelLike | None = None, options: Options | None = None,
            baselines: bool = False, **fields: Field) -> Comparison:
    """Several schedules on one problem, best first.

    Args:
        names: Schedules, with options as in "1f1b:overlap=on"; none: tawpipe, weipipe, fsdp, 1f1b and gpipe, or with
            `expert_parallel` > 1, where weights stay, 1f1b, gpipe, interleaved-1f1b, zb-h1 and zb-v.
        options: Options that each schedule gets that has them.
        baselines: Each with full recomputation and its standard options, or as `tawpipe reproduce tawpipe` runs it, in place of
            its best.
        fields: Of the job, as the command's flags; microbatch and recompute are chosen where they are not given.

    Raises:
        InputError: For anything missing or impossible.
    """
    request = _request("compare", cluster, model, options, fields)
    if not isinstance(baselines, bool):
        raise _wrong("baselines", "a bool", baselines)
    return Comparison(_core.compare(request, _names("schedules", names), baselines))


def sweep(*names: str, vary: Mapping[str, Iterable[Field]], cluster: ClusterLike, model: ModelLike | None = None,
          options: Options | None = None, **fields: Field) -> Table:
    """compare() at each combination of values: a dict for each point and schedule, with the values of `vary` in front.

    >>> tawpipe.sweep("1f1b", "fsdp", vary={"sequence": [4096, 8192], "recompute": ["none", "full"]}, cluster="2x4",
    ...               model="llama-8x512", global_batch=32)

    Args:
        vary: Fields of the job, also cluster and model, and the values of each.

    The others are those of `compare`.

    Raises:
        InputError: For anything missing or impossible.
    """
    rows = []
    for values in itertools.product(*vary.values()):
        point = dict(zip(vary, values))
        given = {"cluster": cluster, "model": model, **fields, **point}
        rows += [{**point, **row, **point} for row in compare(*names, options=options, **given)]
    return Table(rows, [*vary, "label", "makespan_s", "tokens_per_device_per_second", "microbatch_size", "out_of_memory"])


def simulate(schedule: str | Schedule, *, cluster: ClusterLike, model: ModelLike | None = None, options: Options | None = None,
             fold: str = "off", step_time: str = "", run: Options | None = None, **fields: Field) -> Prediction:
    """One schedule, by its name or as a value, on a cluster: its task graph, its timeline and what follows.

    Args:
        options: Of the schedule.
        fold: "auto" simulates devices that do the same once, where that is exact.
        step_time: A step of this run as measured, such as "9.1s": `measured_step` then has the `cost` that explains it, for
            other layouts.
        run: More fields, of a whole run.
        fields: Of the job, as the command's flags. A Schedule keeps the model and batch that it was made for.

    Raises:
        InputError: For anything missing or impossible.
        ScheduleError: For a schedule that cannot run.
    """
    request = _request("simulate", cluster, model, options, fields, run)
    _put(request, fold=fold, step_time=step_time)
    if isinstance(schedule, Schedule):
        return _core.simulate_given(request, schedule)
    if not isinstance(schedule, str):
        raise _wrong("schedule", "a name or a Schedule", schedule)
    _put(request, schedule=schedule)
    return _core.simulate(request)


def plan(*, cluster: ClusterLike, model: ModelLike | None = None, tokens: int = 0, schedules: Sequence[str] = (),
         options: Options | None = None, pipeline_parallel: int = 0, run: Options | None = None, devices: str = "",
         what_if: Sequence[str] = (), today: str | os.PathLike | None = None,
         args: Sequence[str] = (), env: Mapping[str, str] | None = None, strict: bool = False, vocab_size: int = 0,
         step_time: str = "", emit: str | None = None, top: int = 5, budget: int = 0, seconds: int = 0, threads: int = 0,
         **fields: Field) -> Plans:
    """The fastest way to train that the arguments leave open. Ctrl-C ends the search with the best so far.

    Args:
        tokens: Tokens of one iteration, in place of `global_batch`.
        schedules: Those that may be chosen, as compare names them; none: all that docs/search_space.md lists.
        options: Of every schedule that has them.
        pipeline_parallel: The schedule's own devices; 0: any.
        run: More fields, of a whole run: with `train_tokens` the answer's "run" has its days, device-hours, price, energy and
            what failures take (docs/run_cost.md).
        devices: "8..64": the best for each number of devices, by doubling.
        what_if: Changes of the cluster that are searched too (`Plans.what_if`): "nodes=8", "network=800Gbps", "device=B200",
            "cluster=hgx-b200x4", several with commas between, with "price=5USD"; "catalogue" for what is usually asked.
        today: A file of what is run today, the plan to beat: a script with Megatron-LM's flags, a log that begins with its
            arguments, a torchtitan TOML, a DeepSpeed JSON, a YAML. It says model, sequence and batch where no argument does.
        args, env: What that script is started with: its arguments $1, $2, ..., and variables of its environment.
        strict: Names in that file that are not known are errors; otherwise a note.
        vocab_size: Tokens, where that file names a tokenizer only.
        step_time: A step of that run as measured, such as "9.1s": `today["by_measured_s"]` then has what the plan takes by
            it, the least, middle and most of 80 %.
        emit: "megatron", "torchtitan" or "deepspeed": the settings of the best plan that it can run (`settings`).
        top: Plans that are kept.
        budget: Tasks that may be looked at; 0: the command's own.
        seconds: The same by the clock; 0: no limit.
        fields: Of the job, as the command's flags; what is not given is searched.

    Raises:
        InputError: For anything missing or impossible.
    """
    question = _core.PlanQuestion()
    question.job = _request("plan", cluster, model, options, fields, run)
    question.schedules = _names("schedules", schedules)
    question.what_if = _names("what_if", what_if)
    question.args = _names("args", args)
    question.env = [f"{name}={value}" for name, value in (env or {}).items()]
    question.strict = bool(strict)
    _put(question, pipeline_parallel=pipeline_parallel, tokens=tokens, emit=emit or "", top=top, budget=budget,
         seconds=seconds, threads=threads, devices=devices, today=_path("today", today) if today is not None else "", vocab_size=vocab_size,
         step_time=step_time)
    return Plans(*_core.plan(question))


def bound(*, cluster: ClusterLike, model: ModelLike, tokens: int = 0, **fields: Field) -> Bound:
    """A time that no schedule of any kind is faster than, with the numbers that it follows from (docs/bounds.md).

    Args:
        tokens: Tokens of one iteration, in place of `global_batch`.
        fields: Of the job, as the command's flags, as far as a bound depends on them.

    Raises:
        InputError: For anything missing or impossible.
    """
    question = _core.PlanQuestion()
    question.job = _request("bound", cluster, model, None, fields)
    _put(question, tokens=tokens)
    answer, text, complaint = _core.bound(question)
    return Bound(answer, text + complaint)


def validate(schedule: Schedule | Prediction, cluster: ClusterLike | None = None) -> Findings:
    """Everything that is wrong with a schedule: deadlocks, races, gradients that are not complete, memory on the cluster."""
    if isinstance(schedule, Prediction):
        schedule = schedule.schedule
    if not isinstance(schedule, Schedule):
        raise _wrong("schedule", "a Schedule or a Prediction", schedule)
    return Findings(schedule.findings(globals()["cluster"](cluster) if cluster is not None else None))


def read_schedule(path: str | os.PathLike) -> Schedule:
    """The schedule in a JSON file of `tawpipe export` or Schedule.to_json."""
    return _core.read_schedule(_path("path", path))


def run(arguments: Sequence[object], **more: Any) -> subprocess.CompletedProcess:
    """The command with these arguments, as a shell runs it: `returncode`, `stdout` and `stderr`, which are text.

    >>> tawpipe.run(["topology", "show", "dgx-h100", "--json", "-"]).stdout

    Args:
        arguments: As `tawpipe help` and `tawpipe help COMMAND` say; numbers and paths are written as text.
        more: Arguments of subprocess.run(): check=True raises where the exit code is not 0, stdout=None shows what is printed.
    """
    import subprocess
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.run([_program.PROGRAM, *map(str, arguments)], **given)


def prove(path: str | os.PathLike, *, semantics: str = "nccl", communicators: str = "one") -> OrderProof:
    """Whether an order of sends, receives and collectives ends in every timing, and what would mend it (docs/hangs.md).

    Args:
        path: A CSV of torch.distributed.pipelining, or the calls of ranks as JSON.
        semantics: "nccl", "gloo" or "mpi".
        communicators: "one" for all, one a "direction", or one a "pair".
    """
    for name, value in (("semantics", semantics), ("communicators", communicators)):
        if not isinstance(value, str):
            raise _wrong(name, "a str", value)
    return OrderProof(*_core.prove_order(_path("path", path), semantics, communicators))


def doctor(*dumps: str | os.PathLike) -> Diagnosis:
    """What keeps a job from going on, from the dumps of PyTorch's flight recorder: files, or folders of them."""
    if not dumps:
        raise InputError("dumps is required: the flight recorder's files, or folders of them")
    return Diagnosis(*_core.diagnose([_path("dumps", path) for path in dumps]))


_KINDS = {int: (operator.index, "an int"), float: (float, "a number"), str: (str, "a str")}


def _put(target, **arguments) -> None:
    """Sets arguments. One of a wrong type is a TypeError that names it, one out of range an InputError."""
    for name, value in arguments.items():
        kind = type(getattr(target, name))
        convert, words = _KINDS[kind]
        if isinstance(value, bool) or isinstance(value, str) != (kind is str):
            raise _wrong(name, words, value)
        try:
            converted = convert(value)
        except TypeError:
            raise _wrong(name, words, value) from None
        try:
            setattr(target, name, converted)
        except (TypeError, UnicodeError):
            raise InputError(f"{name} {value!r} is {'no text' if kind is str else 'out of range'}") from None


def _wrong(name: str, words: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {words}, not {value!r}")


def _path(name: str, value: object, words: str = "a str or a path") -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise _wrong(name, words, value)
    return path


def _names(name: str, values: object) -> list[str]:
    names = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [None]
    if not all(isinstance(one, str) for one in names):
        raise _wrong(name, "names, each a str", values)
    return names


_FIELDS = {row["name"]: row for row in _core.fields()}
"""The fields of a job by their names here: the command's flags, with '_' for '-'."""
_BY_CALL = {call: [name for name, row in _FIELDS.items()
                   if name not in ("cluster", "model") and (row["bounds"] or call != "bound")
                   and (row["group"] != "Noise" or call in ("compare", "sweep", "simulate"))
                   and (row["group"] != "Training run" or call in ("simulate", "plan"))]
            for call in ("compare", "sweep", "simulate", "plan", "bound")}


def _request(call, given_cluster, given_model, options, fields, run=None) -> _core.JobQuestion:
    of_run = [name for name, row in _FIELDS.items() if row["group"] == "Training run"]
    for name in run or ():
        if name not in of_run:
            raise TypeError(f"run has no {name!r}; it has {', '.join(of_run)}")
    fields = {**fields, **(run or {})}
    for name in fields:
        if name not in _BY_CALL[call]:
            raise TypeError(f"unexpected argument {name!r}; fields of the job are {', '.join(_BY_CALL[call])}")
    request = _core.JobQuestion()
    where = {name: fields[name] or "" for name in ("device", "inter_node") if name in fields}
    request.cluster_value = cluster(given_cluster, **where)
    request.model_value = model(given_model) if given_model is not None else None
    for name, text in {"cluster": given_cluster, "model": given_model, **where}.items():
        if text and isinstance(text, (str, os.PathLike)):
            request.set(name, os.fspath(text))  # for the commands that are shown
    if not isinstance(options, (Mapping, type(None))):
        raise _wrong("options", "a dict", options)
    request.options = [f"{key}={_option(value)}" for key, value in (options or {}).items()]
    for name, value in fields.items():
        text = _field_text(_FIELDS[name], value)
        if text and name not in where:
            request.set(name, text)
    return request


def _field_text(field, value: Field) -> str:
    """The text of a field's flag; "": it is not given. 0 is nothing where a number is at least 1."""
    name, kind = field["name"], field["kind"]
    switch = kind == "flag" or "on" in field["words"]
    whole = kind in ("count", "tokens") or field["type"].startswith("N|")
    if value is None or value == "" or (value is False and kind == "flag"):
        return ""
    if field["group"] == "Training run" and type(value) in (int, float):
        return "" if value == 0 and name in ("train_tokens", "price") else str(value)
    if isinstance(value, bool):
        if not switch:
            raise _wrong(name, "a number" if whole or kind != "text" else "a str", value)
        return _option(value)
    if isinstance(value, str) and (kind in ("text", "tokens") or value in ("on", "off")[:2 * switch]):
        return value
    try:
        if isinstance(value, str):
            raise TypeError
        if whole:
            return "" if value == 0 and name not in ("bucket", "seed") else str(operator.index(value))
        if kind in ("fraction", "number"):
            return "" if value == 0 else repr(float(value))
    except (TypeError, ValueError):
        pass
    raise _wrong(name, {"count": "an int", "tokens": "an int or a str", "fraction": "a number", "number": "a number"}.get(kind, "a str"), value)


def _option(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _prediction_text(prediction: Prediction) -> str:
    summary = prediction.to_dict()
    memory = "" if prediction.fits else ", out of memory"
    return (f"{summary['schedule']} on {summary['cluster']}: {prediction.makespan_s:.6g} s an iteration, "
            f"bubble {100 * summary['bubble_ratio']:.1f} %{memory}")


def _schedule_text(schedule: Schedule) -> str:
    return f"{schedule.name}: {len(schedule):,} tasks on {schedule.ranks} ranks"


def _prediction_html(prediction: Prediction) -> str:
    keys = ("schedule", "cluster", "model", "makespan_s", "tokens_per_device_per_second", "mfu", "bubble_ratio", "out_of_memory")
    summary = prediction.to_dict()
    return Table([{"": key, "value": summary[key]} for key in keys])._repr_html_()


def _prediction_reduce(prediction: Prediction):
    raise TypeError("a Prediction cannot be pickled; pickle its to_dict(), and its schedule where that is needed")


def _schedule_of(text: str) -> Schedule:
    return Schedule.from_json(text)


def _cluster_of(text: str) -> Cluster:
    return Cluster.from_json(text)


Prediction.__reduce__ = _prediction_reduce
Schedule.__reduce__ = lambda self: (_schedule_of, (self.to_json(),))
Cluster.__reduce__ = lambda self: (_cluster_of, (self.to_json(),))
Prediction.__repr__ = _prediction_text
Prediction._repr_html_ = _prediction_html
Schedule.__repr__ = _schedule_text
Cluster.__repr__ = lambda self: f"{self.name}: {self.nodes} nodes, {self.ranks} devices ({self.device(0)['name']})"
Model.__repr__ = lambda self: f"{self.name}: {self.parameters:,} parameters, {self.dtype}"
Timeline.__repr__ = lambda self: f"timeline of {len(self.start):,} tasks, {self.makespan_s:.6g} s"



def _with_fields(call):
    """Shows a call's fields of the job in its signature and its help."""
    signature = inspect.signature(call)
    fields = [_FIELDS[name] for name in _BY_CALL[call.__name__]]
    kinds = {"count": "int | None", "tokens": "int | str | None", "fraction": "float | None", "number": "float | None", "flag": "bool"}
    words = [inspect.Parameter(field["name"], inspect.Parameter.KEYWORD_ONLY, default=False if field["kind"] == "flag" else None,
                               annotation=kinds.get(field["kind"], "str | bool | None" if "on" in field["words"]
                                                    else "int | str | None" if field["type"].startswith("N|") else "str | None"))
             for field in fields]
    call.__signature__ = signature.replace(parameters=[*list(signature.parameters.values())[:-1], *words])
    meanings = ""
    for field in fields:
        standard = call is plan and field["searched"] or field["standard"]
        text = " ".join(field["meaning"].split())
        text = text.replace("{}", standard) if standard else text.replace(" (default {})", "")
        meanings += f"\n        {field['name']}: {text}"
    call.__doc__ += f"\n    Fields of the job:{meanings}\n    "


for _call in (compare, sweep, simulate, plan, bound):
    _with_fields(_call)

# What the library's messages call flags are these arguments.
_core.name_arguments([name for call in (cluster, compare, simulate, plan, bound, prove)
                      for name in call.__code__.co_varnames[:call.__code__.co_argcount + call.__code__.co_kwonlyargcount]]
                     + list(_FIELDS))
