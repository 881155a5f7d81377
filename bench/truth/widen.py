#!/usr/bin/env python3
"""Fills the columns of README.md that older tables lack, from what their other columns, notes and sources say. Nothing is guessed: what
they do not say stays empty. The tables that it writes are the sources' data as before: keep them out of the repository.

  bench/truth/widen.py truth/*.csv --out wide/

Not: whether a table keeps to the format (check.py).
"""
import argparse
import csv
import pathlib
import re

from score import COLUMNS, device

# Whose software ran the rows, and the licence of the repository or paper that they were read from (README.md of the tables).
SOURCES = {"mlperf": ("", "Apache-2.0"), "megatron_bridge": ("Megatron-LM", "Apache-2.0"), "dgxc_benchmarking": ("Megatron-LM", "MIT"),
           "llm_foundry": ("Composer", "Apache-2.0"), "zero_bubble": ("Megatron-LM", "paper"),
           "simumax_b200": ("Megatron-LM", "Apache-2.0"),
           "torchtitan": ("torchtitan", "BSD-3-Clause"), "megatron_lm": ("Megatron-LM", "BSD-3-Clause"),
           "primus_pipeline": ("Primus", "MIT"),
           "korthikanti_table5": ("Megatron-LM", "Apache-2.0"), "internevo": ("InternEvo", "Apache-2.0"), "dgxc_jax": ("JAX", "MIT"),
           "nemo_2407": ("Megatron-LM", "Apache-2.0"), "straggler_analysis": ("", "Apache-2.0"), "llama3_paper": ("Meta", "paper"),
           "deepseek_profile": ("DeepSeek", "none found")}
RELEASED = ("megatron_bridge", "dgxc_benchmarking", "nemo_2407")  # whose id ends in the release
# Sizes of published models beside the tables' columns: of a head, of experts, of a shared expert; dense layers before the experts.
MODELS = {"deepseek_v3_4moe": ("", 2048, 2048, 0), "deepseek_v3": ("", 2048, 2048, 3), "deepseekv3_l4": ("", 2048, 2048, 1),
          "deepseekv2_l4": ("", 1536, 3072, 1),
          "qwen3_235b_a22b": (128, 1536, "", ""), "qwen3_30b_a3b": (128, 768, "", ""), "gpt_oss_120b": (64, 2880, "", ""),
          "grok1": (128, 32768, "", "")}
GRAPHS = (("iteration", r"full_cuda_graph=1|cuda_graph_impl=full_iteration|cuda_graph_impl=local.*scope=full_iteration"),
          ("layers", r"cuda_graph_impl=local|mcore_cuda_graph=1|layer_cuda_graph=1"), ("parts", "cuda_graph_impl=transformer_engine"),
          ("none", r"cuda_graph_impl=none|full_cuda_graph=0|mcore_cuda_graph=0"))
OVERLAPS = (("grad_reduce", "overlap_grad_reduce=1"), ("param_gather", "overlap_param_gather=1"), ("tensor", "tp_comm_overlap=1|async_tp=1"),
            ("pipeline", "overlap_p2p=1|p2p overlap"), ("experts", "moe_a2a_overlap=True"))
STATISTICS = (("mean", "time mean|mean of steady"), ("median", "per-run medians"), ("single step", "logged (late )?step|last logged|read at iteration"))
NETWORKS = ((r"(\d+) x (\d+) Gb/s RoCE", "RoCE"), (r"(\d+)x (?:BF3 )?ConnectX-\d (?:IB )?(?:NDR|XDR)? ?(\d+) ?Gb/s", "InfiniBand"))


def first(words, text):
    return next((word for word, pattern in words if re.search(pattern, text)), "")


def network(text):
    if "1600 Gbps node-node" in text:
        return "1600 RoCE"
    if "400 Gb/s RDMA per GPU" in text:
        return "8x400 RDMA"
    compute = text.partition("Compute: ")[2] or text
    return next((f"{found[1]}x{found[2]} {kind}" for pattern, kind in NETWORKS if (found := re.search(pattern, compute))), "")


def groups(row):
    """The ranks that share one copy of a state: of optimizer, gradients, weights."""
    zero, ranks = row["zero"], int(row["dp"] or 0) * int(row["cp"] or 1)
    if found := re.search(r"optimizer sharded over (\d+) ranks", zero):
        return f"optimizer={found[1]}"
    if found := re.search(r"FSDP of (\d+)", zero):
        return f"optimizer={found[1]};gradients={found[1]};weights={found[1]}"
    if not ranks:
        return ""
    if "optimizer and gradients sharded" in zero:
        return f"optimizer={ranks};gradients={ranks}"
    if zero.startswith(("FSDP", "3 (")):
        return f"optimizer={ranks};gradients={ranks};weights={ranks}"
    return f"optimizer={ranks}" if zero.startswith(("1 (", "optimizer sharded over all")) else "optimizer=1" if zero == "none" else ""


def gradient(row):
    if "gradients accumulated in fp32" in row["note"] or "radients reduced in FP32" in row["note"]:
        return "fp32"
    return {"fsdp_mixed_precision=DEFAULT": "fp32", "fsdp_mixed_precision=PURE": "bf16"}.get(row["overlap_flags"].partition(";")[0], "")


def wide(row):
    """The row with all columns; a cell that has something is kept."""
    note, flags, source = row["note"], row["overlap_flags"], row["source"]
    stack, licence = SOURCES.get(source, ("", ""))
    if source == "mlperf" and "AMD" not in row["hardware"]:
        stack = "Megatron-LM"
    said = {"stack": stack, "licence": licence, "device_gib": device(row)[1] or "", "network": network(row["interconnect"]),
            "stack_version": row["row"].rpartition("#")[2].lstrip("v") if source in RELEASED else "",
            "cp_exchange": {"simumax_b200": "a2a", "llama3_paper": "all-gather"}.get(source, "") if row["cp"] not in ("", "1") else "",
            "attention": "cudnn" if "cuDNN attention" in note else "triton" if row["model"].startswith("mpt") else "",
            "graph_scope": first(GRAPHS, flags), "overlap": "none" if "overlap off" in flags else ";".join(
                word for word, pattern in OVERLAPS if re.search(pattern, flags)),
            "statistic": first(STATISTICS, note), "sharding_groups": groups(row), "gradient_dtype": gradient(row),
            "grid_order": "tp-cp-pp-dp" if "tp_pp_dp_mapping=1" in flags else "", "mtp": "0" if "w/o MTP" in note else "",
            "router_load": "balanced" if "forced balanced" in note else "capacity" if "capacity factor" in note else ""}
    if row["peak_memory_gib"]:
        said["memory_kind"] = "reserved" if source == "torchtitan" else "allocated" if source in ("simumax_b200", "zero_bubble") else ""
    if found := re.search(r"expert tensor parallel size (\d+)", note):
        said["etp"] = found[1]
    if row["experts"]:
        sizes = next((sizes for name, sizes in MODELS.items() if row["model"].startswith(name)), ("",) * 4)
        said |= dict(zip(("head_dim", "expert_ffn", "shared_expert_ffn", "dense_layers"), map(str, sizes)))
    return {key: row.get(key) or said.get(key, "") for key in COLUMNS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=pathlib.Path, help="truth tables, CSV")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder for tables of the same names")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for file in arguments.tables:
        with open(file, encoding="utf-8", newline="") as text:
            rows = [wide(row) for row in csv.DictReader(text)]
        with open(arguments.out / file.name, "w", encoding="utf-8", newline="") as text:
            table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


if __name__ == "__main__":
    main()
