#!/usr/bin/env python3
"""Predicts the rows of truth tables by SimuMax (github.com/MooreThreads/SimuMax), run from its own code.

  bench/truth/simumax_rows.py wide/*.csv --path SimuMax --out simumax.csv

SimuMax has configs/system/b200_bf16_ceperm.json and a100_pcie.json. Other devices get what its docs/system.md advises for an approximate
analysis: a copy of the nearest shipped file with other peaks, memory and networks. Settings are those of its B200 results
(tools/b200) where the row says nothing. Mixtures need expert_ffn (widen.py).
Not: a copy of SimuMax's model (its package), nor a score (score.py).
"""
import contextlib
import copy
import io
import json
import os
import pathlib
import sys
import warnings

from truth_rows import NotExpressed, run

LATENT = {"deepseek_v3": "deepseekv3", "deepseekv3": "deepseekv3", "deepseekv2": "deepseekv2"}  # its files of latent attention


def system_of(shipped, row, near):
    """The shipped B200, or the nearest shipped accelerator with the data sheet's peaks and memory in the B200's networks, the only
    ones with NVLink, at the data sheet's speeds."""
    device = row.device
    blackwell = device.name in ("b200", "gb200", "b300", "gb300")
    system = copy.deepcopy(shipped["b200_bf16_ceperm"])
    if device.name == "b200" and row.bits == 16:
        return system
    near("a system that is not shipped: the nearest with figures of the device's data sheet")
    if not blackwell:
        system["accelerator"] = copy.deepcopy(shipped["a100_pcie"]["accelerator"])
    operators = system["accelerator"]["op"]
    ratio = device.tflops / operators["matmul"]["tflops"]
    for name, one in operators.items():
        one["tflops"] *= ratio
        if name.startswith("fp8_"):  # unmeasured in the files: as efficient as 16 bits at twice the peak
            wide = operators[name.removeprefix("fp8_")]
            one |= {"tflops": 2 * device.tflops, "efficient_factor": wide["efficient_factor"]}
        if not blackwell and device.name[0] != "a":
            one.pop("accurate_efficient_factor", None)  # measured on an A100
    system["accelerator"]["mem_gbs"] = device.gib
    for one in system["accelerator"]["bandwidth"].values():
        one["gbps"] = device.memory
    system["num_per_node"] = row.domain
    for name in ("low_intra_node", "high_intra_node"):
        system["networks"][name]["bandwidth"]["gbps"] = device.nvlink
    system["networks"]["inter_node"]["bandwidth"]["gbps"] = row.network * row.domain / 2  # of the adapters' rate, as in the B200's file
    return system


def model_of(models, row, near):
    """Its description of the decoder; latent attention from its own files."""
    model = {"model_name": row.model, "model_type": "dense", "hidden_size": row.hidden, "head_num": row.heads, "kv_head_num": row.kv_heads,
             "head_size": row.head_dim, "intermediate_size": row.ffn, "layer_num": row.layers, "vocab_size": row.vocab,
             "use_swiglu": row.gated}
    if not row.experts:
        return model
    if latent := next((file for name, file in LATENT.items() if row.model.startswith(name)), None):
        model = json.loads((models / f"{latent}.json").read_text()) | {"layer_num": row.layers}
    elif "maverick" in row.model:
        raise NotExpressed("experts in every second layer only")
    cells = row.cells
    if not cells.get("expert_ffn"):
        raise NotExpressed("the row does not say: expert_ffn (widen.py)")
    if row.model.startswith("gpt_oss"):
        near("windows, sinks and biases of gpt-oss left out")
    model |= {"model_type": "moe", "expert_num": row.experts, "topk": row.topk, "moe_ffn_hidden_size": int(cells["expert_ffn"]),
              "dense_layers": int(cells.get("dense_layers") or 0)}
    if cells.get("shared_expert_ffn"):
        model["moe_shared_expert_intermediate_size"] = int(cells["shared_expert_ffn"])
    return model


def recompute_of(row, near):
    """Its fields of recomputation."""
    if row.recompute == "none":
        return {"enable_recompute": False}
    some = {"enable_recompute": True, "recompute_layer_num": row.layers}
    if row.recompute == "full":
        return some | {"recompute_granularity": "full_block"}
    if row.recompute_modules in ([], ["core_attn"]):
        return some | {"recompute_granularity": "sdp_only"}
    modules = [one for one in row.recompute_modules if one != "shared_experts"]
    if unknown := set(modules) - {"layernorm", "mla_up_proj", "moe_act", "mlp", "moe"}:
        raise NotExpressed(f"recomputation of modules: {'+'.join(sorted(unknown))}")
    if row.bits < 16 and {"layernorm", "moe_act"} & set(modules):
        raise NotExpressed("recomputation of layernorm or moe_act in 8 bits")
    return some | {"recompute_granularity": "selective_recompute", "megatron_recompute": True, "megatron_recompute_modules": modules}


def strategy_of(row, near):
    if row.shards_weights:
        raise NotExpressed("weights sharded over the data ranks (FSDP)")
    if row.bits == 4:
        raise NotExpressed("products of 4 bits")
    if row.schedule.startswith(("zb", "zero", "v-half", "dualpipe")):
        raise NotExpressed(f"a schedule beside 1F1B: {row.cells['schedule']}")
    if "cpu_offload" in row.flags and "offload=0" not in row.flags:
        raise NotExpressed("activations of some layers in the host")
    if row.part_groups:
        near("an optimizer sharded over parts of the data ranks as over all")
    if row.cp > 1 and row.cells.get("cp_exchange") != "a2a":
        near("a ring of keys and values as all-to-alls (cp_comm_type a2a), the only one whose time it has")
    if "mx" in row.cells["precision"].lower() or "rowwise" in row.cells["precision"].lower():
        near("8 bits with scales of blocks or rows as fp8")
    if row.half:
        near("float16 as bf16")
    edges = row.layers % (row.pp * row.vp) != 0 and (row.layers + 2) % (row.pp * row.vp) == 0
    last = None
    if row.layers % row.pp and not edges and row.vp == 1 and (rest := row.layers - (row.pp - 1) * -(-row.layers // row.pp)) > 0:
        near("stages that do not divide the layers as equal ones but the last")
        last = rest
    narrow = row.cells.get("gradient_dtype") == "bf16" or row.bits < 16 or row.source == "megatron_bridge"
    return {"seq_len": row.sequence, "micro_batch_size": row.micro_batch, "micro_batch_num": row.global_batch // (row.dp * row.micro_batch),
            "dtype": "bf16", "fp8": row.bits == 8, "world_size": row.gpus, "tp_size": row.tp, "cp_size": row.cp, "pp_size": row.pp,
            "ep_size": row.ep, "etp_size": int(row.cells.get("etp") or 1), "enable_sequence_parallel": row.sequence_parallel and row.tp > 1,
            "interleaving_size": row.vp if row.pp > 1 else 1, "pp_comm_async": row.vp == 1 or row.pp == 1,  # async interleaved has no time
            "zero_state": 1 if row.shards_optimizer else 0, "account_for_embedding_in_pipeline_split": edges,
            "account_for_loss_in_pipeline_split": edges, "grad_reduce_in_bf16": narrow, "use_flash_sdp": not row.half,
            "use_math_sdp": row.half, "cross_entropy_loss_fusion": not row.half, "dispatch_probs": row.experts > 0,
            "num_layers_in_last_pipeline_stage": last, "enable_straggler_model": False, "te_version": None if row.half else "2.11.0",
            **recompute_of(row, near)}


def seconds_of(text):
    value, unit = str(text).split()
    return float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}[unit]


def adapter(path):
    try:
        import simumax
        from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
        from simumax.core.perf_llm import PerfLLM
    except ImportError as error:
        sys.exit(f"simumax_rows.py: {error}; give --path CLONE of github.com/MooreThreads/SimuMax, and have its requirements")
    configs = pathlib.Path(path or pathlib.Path(simumax.__file__).parent.parent) / "configs"
    if not configs.is_dir():
        sys.exit(f"simumax_rows.py: no {configs}; its package has none, so give --path CLONE")
    shipped = {name: json.loads((configs / "system" / f"{name}.json").read_text()) for name in ("b200_bf16_ceperm", "a100_pcie")}

    for config in (SystemConfig, StrategyConfig, ModelConfig):  # it copies them with each microbatch, and changes none: 17 times faster
        config.__deepcopy__ = lambda self, memo: self
    known = {}  # one configuration is measured in several releases, and takes SimuMax seconds

    def predict(row, near):
        strategy, model = strategy_of(row, near), model_of(configs / "models", row, near)
        system = system_of(shipped, row, near)
        if row.bits == 8 and row.device.name.startswith("a100"):
            raise NotExpressed("products of 8 bits on a device without them")
        kind = "peak_mem_with_reserved" if row.cells.get("memory_kind") == "reserved" else "peak_mem"
        key = json.dumps([strategy, model, system, kind])
        if key not in known:
            known[key] = run_one(strategy, model, system, kind)
        if isinstance(known[key], str):
            raise NotExpressed(known[key])
        return known[key]

    def run_one(strategy, model, system, kind):
        made = PerfLLM()
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made.configure(StrategyConfig(**strategy), ModelConfig.init_from_dict(model), SystemConfig.init_from_dict(system))
                made.run_estimate()
                memory = made.analysis_mem()
                seconds = seconds_of(made.analysis_cost().data["duration_time_per_iter"])
                return seconds, max(made.get_pp_stage_peak_mem(memory, kind, toG=True).values())
        except (AssertionError, ValueError, RuntimeError, NotImplementedError, ZeroDivisionError, TypeError, KeyError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            return f"SimuMax refuses: {text.partition(', but')[0].partition(' (got')[0][:90]}"

    return predict


if __name__ == "__main__":
    os.environ.setdefault("SIMUMAX_TMP_PATH", os.devnull)  # it writes nothing here
    run(adapter, __doc__)
