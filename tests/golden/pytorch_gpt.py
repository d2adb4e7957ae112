# SPDX-License-Identifier: Apache-2.0
"""GPT-2's network in PyTorch as Lockstep defines it. The golden values and bench/compare_pytorch.py use
it."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    vocab_size: int
    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    bias: bool = True
    tie_weights: bool = True
    gelu: str = "tanh"  # or "none": PyTorch's name of the exact form with erf


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.n_head = shape.n_head
        self.c_attn = nn.Linear(shape.n_embd, 3 * shape.n_embd, bias=shape.bias)
        self.c_proj = nn.Linear(shape.n_embd, shape.n_embd, bias=shape.bias)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.c_attn(x).view(batch, time, 3, self.n_head, width // self.n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, width))


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gelu = shape.gelu
        self.c_fc = nn.Linear(shape.n_embd, 4 * shape.n_embd, bias=shape.bias)
        self.c_proj = nn.Linear(4 * shape.n_embd, shape.n_embd, bias=shape.bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate=self.gelu))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.n_embd, eps=1e-5, bias=shape.bias)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.n_embd, eps=1e-5, bias=shape.bias)
        self.mlp = Mlp(shape)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A GPT whose parameters have Hugging Face's GPT-2 names. Weights of linear layers are [out, in]."""

    def __init__(self, shape):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(shape.vocab_size, shape.n_embd),
            "wpe": nn.Embedding(shape.block_size, shape.n_embd),
            "h": nn.ModuleList(Block(shape) for _ in range(shape.n_layer)),
            "ln_f": nn.LayerNorm(shape.n_embd, eps=1e-5, bias=shape.bias),
        })
        self.lm_head = nn.Linear(shape.n_embd, shape.vocab_size, bias=False)
        if shape.tie_weights:
            self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        x = self.transformer["wte"](ids) + self.transformer["wpe"].weight[: ids.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


def cross_entropy(logits, targets):
    """Returns the mean over the targets that are not -1."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def adamw(model, learning_rate, betas, weight_decay, **options):
    """Returns an AdamW that decays the parameters of two or more dimensions, including embeddings."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate, betas=betas, eps=1e-8, **options)
