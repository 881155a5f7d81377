#!/usr/bin/env python3
"""Predicts the rows of truth tables by Calculon (github.com/calculon-ai/calculon), run from its own code.

  bench/truth/calculon_rows.py truth/*.csv --path calculon --out calculon.csv

Calculon has systems/a100_80g.json and h100_80g_nvl8.json, with which its authors compare it with measurements (a100_80g: `calculon
llm-validation`). Other devices get the nearest of the two with figures of their data sheets. Settings are those of its
validation/seqsel/tab5 where the row says nothing.
Not: a copy of Calculon's model (its package), nor a score (score.py).
"""
import copy
import json
import logging
import pathlib
import sys

from truth_rows import NotExpressed, run

SHIPPED = {"a100": "a100_80g", "h100": "h100_80g_nvl8"}


def system_of(systems, row, near):
    """The shipped system of the device, or the nearest with the data sheet's figures."""
    device = row.device
    if device.name in SHIPPED:
        system = copy.deepcopy(systems[SHIPPED[device.name]])
        if row.network != device.network:
            near("the network that the row says in a shipped system")
            system["networks"][1]["bandwidth"] = row.network
        return system
    near("a system that is not shipped: the nearest with figures of the device's data sheet")
    system = copy.deepcopy(systems["a100_80g" if device.name.startswith("a100") else "h100_80g_nvl8"])
    for name, matrix in system["matrix"].items():
        matrix["tflops"] = device.tflops * (2 if name == "float8" else 1)
    system["mem1"] |= {"GiB": device.gib, "GBps": device.memory}
    system["networks"][0] |= {"bandwidth": device.nvlink, "size": row.domain}
    system["networks"][1]["bandwidth"] = row.network
    return system


def application_of(row, near):
    """A model of Calculon: blocks of a plain MLP, every query head with a key and value head or one for all."""
    if row.experts:
        raise NotExpressed("a mixture of experts")
    feedforward = row.ffn
    if row.gated:
        near("a gated MLP as a plain one of 1.5 times its width (the same weights and operations)")
        feedforward = 3 * row.ffn // 2 // row.tp * row.tp
    attention = "multihead"
    if row.kv_heads != row.heads:
        attention = "multiquery" if row.kv_heads < row.heads // 2 else "multihead"
        if row.kv_heads > 1:
            near(f"grouped keys and values as {attention} attention, whose weights are nearer")
    return {"name": row.model, "hidden": row.hidden, "feedforward": feedforward, "seq_size": row.sequence, "attn_heads": row.heads,
            "attn_size": row.head_dim, "num_blocks": row.layers}, attention


def execution_of(row, attention, near, memory):
    """Its execution: tensor, pipeline and data parallelism with 1F1B, interleaved or not. For memory fused attention is one whose scores
    are computed again, for time one that keeps them: each is nearer to the measurements."""
    if row.cp > 1:
        raise NotExpressed("context parallelism")
    if row.shards_weights:
        raise NotExpressed("weights sharded over the data ranks (FSDP)")
    if row.bits == 4:
        raise NotExpressed("products of 4 bits")
    if row.schedule.startswith(("zb", "zero", "v-half", "dualpipe")):
        raise NotExpressed(f"a schedule beside 1F1B: {row.cells['schedule']}")
    if row.recompute_modules and row.recompute_modules != ["core_attn"]:
        raise NotExpressed("recomputation by modules")
    if "offload" in row.flags and "offload=0" not in row.flags:
        raise NotExpressed("activations of some layers in the host")
    if row.part_groups:
        near("an optimizer sharded over parts of the data ranks as over all")
    recompute = {"full": "full", "selective": "attn_only", "none": "none"}[row.recompute]
    if memory and recompute == "none" and not row.half:
        near("fused attention, which it has not: the time of all scores kept, the memory of scores computed again")
        recompute = "attn_only"
    if "mx" in row.cells["precision"].lower() or "rowwise" in row.cells["precision"].lower():
        near("8 bits with scales of blocks or rows as float8")
    sequence_parallel = row.sequence_parallel and row.tp > 1
    overlap = not row.off and row.shards_optimizer

    def in_node(ranks):  # it wants a node's links all used
        return ranks <= row.domain and row.domain % ranks == 0

    return {"num_procs": row.gpus, "tensor_par": row.tp, "pipeline_par": row.pp, "data_par": row.dp, "tensor_par_net": 0,
            "pipeline_par_net": 0 if in_node(row.gpus) else 1, "data_par_net": 0 if in_node(row.tp * row.dp) else 1,
            "batch_size": row.global_batch, "microbatch_size": row.micro_batch, "datatype": "float8" if row.bits == 8 else "float16",
            "fused_activation": not row.half, "attention_type": attention, "activation_recompute": recompute,
            "pipeline_interleaving": row.vp if row.pp > 1 else 1, "optimizer_sharding": row.shards_optimizer and row.dp > 1,
            "tensor_par_comm_type": "rs_ag" if sequence_parallel else "ar",
            "tensor_par_overlap": "ring" if row.tp > 1 and row.says("tp_comm_overlap", overlap) else "none",
            "seq_par_ag_redo": sequence_parallel and recompute != "full",
            "data_par_overlap": row.dp > 1 and row.says("overlap_grad_reduce", overlap), "weight_offload": False,
            "activations_offload": False, "optimizer_offload": False, "training": True}


def quiet(_):
    """For what is said once more."""


def adapter(path):
    try:
        import calculon
        from calculon.llm import Llm
    except ImportError as error:
        sys.exit(f"calculon_rows.py: {error}; give --path CLONE of github.com/calculon-ai/calculon, with numpy and psutil "
                 "(PyPI's calculon is another program)")
    root = pathlib.Path(path or pathlib.Path(calculon.__file__).parent.parent)
    if not (root / "systems").is_dir():
        sys.exit(f"calculon_rows.py: no systems/ in {root}; its package has none, so give --path CLONE")
    systems = {name: json.loads((root / "systems" / f"{name}.json").read_text()) for name in SHIPPED.values()}
    log = logging.getLogger("calculon")
    log.setLevel(logging.CRITICAL)

    def predict(row, near):
        system = system_of(systems, row, near)
        if row.bits == 8 and "float8" not in system["matrix"]:
            raise NotExpressed("products of 8 bits on a device without them")
        application, attention = application_of(row, near)
        roomy = copy.deepcopy(system)  # a time even where it does not fit: score.py compares the memory with the device's
        roomy["mem1"]["GiB"] = 1e6

        def made(memory):
            model = Llm(Llm.Application(application), log)
            model.compile(calculon.System(roomy), Llm.Execution.from_json(execution_of(row, attention, near if memory else quiet, memory)))
            model.run(calculon.System(roomy))
            return model

        try:
            return made(False).get_total_time(), made(True).get_mem_tier1_cap_req() / 2**30
        except (Llm.Error, AssertionError, ZeroDivisionError) as error:
            raise NotExpressed(f"Calculon refuses: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None

    return predict


if __name__ == "__main__":
    run(adapter, __doc__)
