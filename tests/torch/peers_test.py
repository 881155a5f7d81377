#!/usr/bin/env python3
"""Twenty steps of training as transformers computes them: losses and parameters of each family of models agree.

peers_test.py COMMAND [NAME..]: the `tawpipe` that trains; the names of some of MODELS. Exit 77, with a word why, without PyTorch
and transformers. Prints the largest differences of each model.
Not: numbers without these libraries (tests/data/llama_golden), nor speed.
"""
import contextlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ranks

torch = ranks.use_torch()
try:
    import safetensors.torch
    import transformers
except ImportError:
    print("skipped: transformers is not installed; tools/torch.sh makes an environment that has it")
    sys.exit(ranks.SKIP)

COMMAND = sys.argv.pop(1)
STEPS, SEQUENCES, SEQUENCE, VOCABULARY = 20, 4, 24, 67
RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1  # tawpipe's constants of AdamW
# Largest differences in float64; the measured ones are in docs/training.md.
OF_LOSS, OF_PARAMETER = 1e-13, 1e-12

SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=48, max_position_embeddings=64, tie_word_embeddings=False)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
DEEPSEEK = dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=1, first_k_dense_replace=1,
                n_group=2, topk_group=1, routed_scaling_factor=2.5, num_nextn_predict_layers=0)
LATENT = dict(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, num_key_value_heads=4, rms_norm_eps=1e-5)
# By name: the class of its configuration, and what differs from SIZES and that class.
MODELS = {
    "llama": ("Llama", dict(rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=5e4))),
    "llama, tied, heads of their own size": ("Llama", dict(tie_word_embeddings=True, head_dim=12)),
    "llama, biases": ("Llama", dict(attention_bias=True, mlp_bias=True)),
    "llama, linear scaling": ("Llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))),
    "llama, linear scaling, as before transformers 5": ("Llama", dict(rope_theta=1e4, rope_scaling=dict(type="linear", factor=4.0))),
    "llama, llama3 scaling": ("Llama", dict(rope_parameters=LLAMA3)),
    "mistral, window": ("Mistral", dict(sliding_window=5, head_dim=8)),
    "qwen2": ("Qwen2", {}),
    "qwen2, window": ("Qwen2", dict(use_sliding_window=True, sliding_window=7, max_window_layers=0)),
    "qwen3": ("Qwen3", dict(head_dim=8, tie_word_embeddings=True)),
    "qwen3, biases, window": ("Qwen3", dict(head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=3,
                                            max_window_layers=0)),
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None)),
    "qwen3_moe": ("Qwen3Moe", dict(head_dim=8, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=True)),
    "mixtral, balanced": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None, output_router_logits=True,
                                          router_aux_loss_coef=0.05)),
    "qwen3_moe, weights of all experts, first layer dense": (
        "Qwen3Moe", dict(head_dim=8, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=False,
                         mlp_only_layers=[0])),
    "deepseek_v3": ("DeepseekV3", {**DEEPSEEK, **LATENT, "q_lora_rank": 20}),
    "deepseek_v3, no short queries": ("DeepseekV3", {**DEEPSEEK, **LATENT, "q_lora_rank": None, "norm_topk_prob": False}),
    "glm4_moe": ("Glm4Moe", dict(**DEEPSEEK, use_qk_norm=True, attention_bias=True, head_dim=8, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0))),
    "olmoe": ("Olmoe", dict(num_experts=5, num_experts_per_tok=3, norm_topk_prob=True, pad_token_id=None)),
}


@contextlib.contextmanager
def all_in_double():
    """transformers' own code, which computes norms, rotary embeddings, softmax and losses in float32, with float64 in its place."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept


def new_model(kind, differences):
    configuration = getattr(transformers, kind + "Config")(**{**SIZES, **differences})
    configuration._attn_implementation = configuration._experts_implementation = "eager"
    with all_in_double():
        model = getattr(transformers, kind + "ForCausalLM")(configuration).to(torch.float64)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.15, generator=generator)
            if "norm" in name:
                parameter.add_(1)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.2, generator=generator)
                buffer.copy_(buffer.to(torch.float32))  # in which transformers keeps it
    return model


def batches(ids):
    """[step] tokens and the targets that follow each, sequence after sequence from the first token on."""
    for step in range(STEPS):
        rows = [(step * SEQUENCES + row) * SEQUENCE for row in range(SEQUENCES)]
        yield (torch.stack([ids[at:at + SEQUENCE] for at in rows]), torch.stack([ids[at + 1:at + SEQUENCE + 1] for at in rows]))


def train(model, ids):
    groups = [{"params": [p for p in model.parameters() if (p.ndim > 1) == matrix], "weight_decay": DECAY if matrix else 0.0}
              for matrix in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON)
    balance = getattr(model.config, "output_router_logits", False) and model.config.router_aux_loss_coef
    losses = []
    with all_in_double():
        for tokens, targets in batches(ids):
            optimizer.zero_grad()
            logits = model(input_ids=tokens, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            if balance:  # of each of the microbatches by itself, whose mean it is
                for half in tokens.split(2):
                    routers = model(input_ids=half, use_cache=False, output_router_logits=True).router_logits
                    loss = loss + 2 / SEQUENCES * balance * transformers.models.mixtral.modeling_mixtral.load_balancing_loss_func(
                        routers, model.config.num_local_experts, model.config.num_experts_per_tok)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def older_spelling(folder, differences):
    """As transformers before 5 wrote it: rope_theta and rope_scaling, not rope_parameters."""
    path = folder / "config.json"
    configuration = json.loads(path.read_text())
    del configuration["rope_parameters"]
    configuration.update({key: differences[key] for key in ("rope_theta", "rope_scaling")})
    path.write_text(json.dumps(configuration))


class Peers(unittest.TestCase):
    def test_twenty_steps(self):
        ids = torch.randint(0, VOCABULARY, (STEPS * SEQUENCES * SEQUENCE + 1,), generator=torch.Generator().manual_seed(1))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "ids.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids.tolist()))
            for number, (title, (kind, differences)) in enumerate(MODELS.items()):
                if len(sys.argv) > 1 and title not in sys.argv[1:]:
                    continue
                with self.subTest(title):
                    self.compare(folder, folder / str(number), title, kind, differences, ids)

    def compare(self, folder, start, title, kind, differences, ids):
        model = new_model(kind, differences)
        model.save_pretrained(start)
        if "rope_scaling" in differences:
            older_spelling(start, differences)
        end = folder / (start.name + " trained")
        answer = folder / "answer.json"
        subprocess.run([COMMAND, "train", "--model", start, "--data", folder / "ids.bin", "--data-order", "sequential", "--sequence",
                        str(SEQUENCE), "--global-batch", str(SEQUENCES), "--microbatch", "2", "--steps", str(STEPS), "--dtype", "f64",
                        "--learning-rate", str(RATE), "--min-learning-rate", str(RATE), "--warmup", "0", "--clip", "0",
                        "--weight-decay", str(DECAY), "--save-huggingface", end, "--json", answer], check=True,
                       stdout=subprocess.DEVNULL)
        losses = train(model, ids)
        found = json.loads(answer.read_text())["losses"]
        self.assertEqual(len(found), STEPS)
        of_loss = max(abs(a - b) for a, b in zip(found, losses))
        again = transformers.AutoModelForCausalLM.from_pretrained(end, dtype=torch.float64)
        wanted, ours = model.state_dict(), again.state_dict()
        self.assertEqual(set(wanted), set(ours))
        stored = safetensors.torch.load_file(end / "model.safetensors")
        ours.update({key: stored[key] for key in ours if ours[key].dtype == torch.float32})  # routers, which are rounded as they are read
        of_parameter = max((wanted[key] - ours[key]).abs().max().item() for key in wanted)
        print(f"{title}: loss {losses[0]:.4f} to {losses[-1]:.4f}; losses differ by {of_loss:.1e}, parameters by {of_parameter:.1e}",
              flush=True)
        self.assertLess(of_loss, OF_LOSS)
        self.assertLess(of_parameter, OF_PARAMETER)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
