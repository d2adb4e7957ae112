#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/huggingface: folders of tiny GPT-2s as transformers and its users leave them.

Also writes the results that transformers and PyTorch compute with them. README.md describes the files."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

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


def make_model(changes):
    """Returns a model without parameters that are zero or one. Every term of every gradient then has an
    effect."""
    config = GPT2Config(n_positions=16, n_layer=LAYERS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **changes)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(offset + 0.12 * torch.randn(parameter.shape))
    return model.eval()


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
    for name, changes in MODELS.items():
        folder = root / name
        model = make_model(changes)
        model.save_pretrained(folder, **({"max_shard_size": "40KB"} if name == "untied" else {}))
        if name == "without_prefix":
            strip_prefix_and_add_masks(folder, model.config.n_positions)
        ids = torch.randint(0, changes["vocab_size"], (STEPS, BATCH, TIME + 1))
        inputs, targets = ids[:, :, :-1], ids[:, :, 1:]
        with torch.no_grad():
            logits = model(inputs[0]).logits
        facts = {"inputs": inputs.int().contiguous(), "targets": targets.int().contiguous(), "logits": logits.contiguous()}
        facts["losses"] = losses_of(model, inputs, targets)
        save_file(facts, folder / "expected.safetensors")
        for file in folder.iterdir():
            file.chmod(0o644)


if __name__ == "__main__":
    make_folders(FOLDER, seed=13)
