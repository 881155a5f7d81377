#!/usr/bin/env python3
"""The bandwidth of tokens sent to experts by DeepEP, predicted beside what HybridEP and DeepEP measured.

Usage: bench/accuracy/dispatch.py [TAWPIPE]

4,096 tokens a device, hidden size 7168, 8 of 8 experts a device, bfloat16, any expert alike. Bandwidths are those of the
sources: bytes that a device's tokens need, one copy for each node (between nodes) or device (inside one) with one of their
experts, its own too, over the time.

Measured: deepseek-ai/DeepEP, Hybrid-EP_Implementation.md (kernels by themselves, bfloat16, the number of SMs with the
best dispatch), and README.md (V2: 8,192 tokens, dispatch in 8 bits, combine in bfloat16).
"""
import json
import os
import subprocess
import sys
import tempfile

TOKENS, HIDDEN, TOP_K, OF_DEVICE = 4096, 7168, 8, 8
# [devices] dispatch, combine of HybridEP; of DeepEP V2
H100 = {16: (76.8, 68.0, "90 and 81"), 32: (57.7, 57.5, "61 and 61"), 64: (50.6, 51.0, "")}
GB200 = {8: (764, 737, ""), 16: (707, 666, ""), 24: (666, 640, ""), 32: (642, 605, ""), 36: (632, 597, "")}


def reaching(devices: int, some: int) -> float:
    """The part of tokens of which some of the experts of that many devices is chosen."""
    experts, none = devices * OF_DEVICE, 1.0
    for chosen in range(TOP_K):
        none *= max(0, experts - some * OF_DEVICE - chosen) / (experts - chosen)
    return 1 - none


def seconds(tawpipe: str, model: str, devices: int, cluster: list) -> float:
    """Of one of the eight exchanges of two layers."""
    command = [tawpipe, "simulate", "--schedule", "ddp", *cluster, "--model", model, "--sequence", str(TOKENS), "--global-batch",
               str(devices), "--microbatch", "1", "--recompute", "none", "--expert-parallel", str(devices), "--expert-dispatch",
               "deepep", "--hold-sms", "off", "--json", "-"]
    answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout)
    return answer["communication"]["lane_busy_s"]["expert_parallel"] / 8


def main() -> None:
    tawpipe = sys.argv[1] if len(sys.argv) > 1 else "tawpipe"
    print("device  devices  predicted  HybridEP dispatch, combine  DeepEP V2 dispatch, combine   (GB/s)")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "config.json")
        for device, measured in (("H100", H100), ("GB200", GB200)):
            for devices, (dispatch, combine, deepep) in measured.items():
                with open(model, "w", encoding="utf-8") as file:
                    json.dump({"model_type": "mixtral", "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 56,
                               "num_key_value_heads": 8, "intermediate_size": 2048, "vocab_size": 32000,
                               "num_local_experts": devices * OF_DEVICE, "num_experts_per_tok": TOP_K}, file)
                nodes = devices // 8
                parts = nodes if device == "H100" else devices
                cluster = ["--cluster", f"dgx-h100*{nodes}"] if device == "H100" else [
                    "--cluster", f"1x{devices}", "--device", "GB200-186G"]
                sent = TOKENS * HIDDEN * 2 * parts * reaching(devices, devices // parts)
                rate = sent / seconds(tawpipe, model, devices, cluster) / 1e9
                print(f"{device:6}  {devices:7}  {rate:9.1f}  {dispatch:9.1f}, {combine:.1f}  {deepep:>20}")


if __name__ == "__main__":
    main()
