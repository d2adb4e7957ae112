#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/huggingface: folders of tiny models, and the results of transformers and PyTorch with them.

README.md describes the files."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

FOLDER = Path(__file__).resolve().parent / "huggingface"
LAYERS, STEPS, BATCH, TIME = 2, 10, 3, 12
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.95), 0.1, 1.0
# Differences between the models: an odd vocabulary, three heads, an untied head, names and buffers.
MODELS = {
    "odd_vocabulary": dict(vocab_size=101, n_embd=32, n_head=2),
    "three_heads": dict(vocab_size=64, n_embd=48, n_head=3, activation_function="gelu"),
    "untied": dict(vocab_size=70, n_embd=32, n_head=4, tie_word_embeddings=False),
    "without_prefix": dict(vocab_size=67, n_embd=32, n_head=2),
}
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64, rope_theta=500.0)
# Grouped queries, scaled positions, heads apart from the width, several files, 16 bits, a config.json of transformers 4.
LLAMAS = {
    "llama": (LlamaConfig, dict(vocab_size=101, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                                intermediate_size=56)),
    "llama3": (LlamaConfig, dict(vocab_size=64, hidden_size=40, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
                                 intermediate_size=48, rms_norm_eps=1e-5, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "mistral": (MistralConfig, dict(vocab_size=70, hidden_size=32, num_attention_heads=4, num_key_value_heads=4, head_dim=8,
                                    intermediate_size=40, sliding_window=None,
                                    rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1e4))),
    "qwen2": (Qwen2Config, dict(vocab_size=67, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                                intermediate_size=48, tie_word_embeddings=True)),
    "qwen3": (Qwen3Config, dict(vocab_size=71, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                                intermediate_size=40)),
}


def config_of(name):
    if name in MODELS:
        return GPT2Config(n_positions=16, n_layer=LAYERS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **MODELS[name])
    kind, changes = LLAMAS[name]
    return kind(max_position_embeddings=16, num_hidden_layers=LAYERS, bos_token_id=None, eos_token_id=None, **changes)


def make_model(config):
    """Returns a model without parameters that are zero or one. Every term of every gradient then has an
    effect."""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = ".ln_" in name or "norm" in name
            offset = 1.0 if is_norm and name.endswith("weight") else 0.0
            parameter.copy_(offset + 0.12 * torch.randn(parameter.shape))
    return model.eval()


def to_transformers_4(folder):
    """Changes config.json to the form of transformers 4."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n")


def strip_prefix_and_add_masks(folder, positions):
    """Changes a file to the form of GPT-2's first files. Names have no "transformer.", and masks are
    buffers as in older versions."""
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): value for name, value in load_file(path).items()}
    for layer in range(LAYERS):
        mask = torch.ones(positions, positions, dtype=torch.bool).tril().view(1, 1, positions, positions)
        tensors[f"h.{layer}.attn.bias"] = mask.to(torch.uint8) if layer else mask
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, path, metadata={"format": "pt"})


def losses_of(model, inputs, targets):
    """Runs ten steps of AdamW like Lockstep, in double precision. Matrices decay, and the norm is clipped."""
    model = model.double().train()
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=1e-8)
    losses = []
    for ids, following in zip(inputs, targets):
        loss = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def make_folders(root, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    shutil.rmtree(root, ignore_errors=True)
    for name in [*MODELS, *LLAMAS]:
        folder = root / name
        model = make_model(config_of(name))
        if name == "qwen2":
            model = model.bfloat16()
        model.save_pretrained(folder, **({"max_shard_size": "40KB"} if name in ("untied", "llama") else {}))
        if name == "qwen2":  # bfloat16() has rounded the rotary frequencies, too
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if name == "without_prefix":
            strip_prefix_and_add_masks(folder, model.config.n_positions)
        if name == "llama3":
            to_transformers_4(folder)
        ids = torch.randint(0, model.config.vocab_size, (STEPS, BATCH, TIME + 1))
        inputs, targets = ids[:, :, :-1], ids[:, :, 1:]
        with torch.no_grad():
            logits = model(inputs[0]).logits
            greedy = model.generate(inputs[0, :, :4], do_sample=False, max_new_tokens=12) if name in LLAMAS else None
        facts = {"inputs": inputs.int().contiguous(), "targets": targets.int().contiguous(), "logits": logits.contiguous()}
        if greedy is not None:
            facts["greedy"] = greedy.int().contiguous()
        facts["losses"] = losses_of(model, inputs, targets)
        save_file(facts, folder / "expected.safetensors")
        for file in folder.iterdir():
            file.chmod(0o644)


if __name__ == "__main__":
    make_folders(FOLDER, seed=13)
