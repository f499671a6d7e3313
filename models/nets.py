"""The networks that `export.py` writes as ONNX.

Shapes in comments: B batch, T time, C channels, H heads, V vocabulary.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """Linear layers with an activation between them, (B, dims[0]) -> (B, dims[-1])."""

    def __init__(self, dims, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(dims))
        self.activation = activation

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


@dataclass(frozen=True)
class GptConfig:
    """A decoder-only transformer. `gelu`: "none" is the exact form (erf), "tanh" the
    approximation. `attention`: "manual" spells the products out, "sdpa" calls the fused
    function; both compute the same."""

    layers: int
    dim: int
    heads: int
    seq: int
    vocab: int
    bias: bool = True
    gelu: str = "none"
    attention: str = "sdpa"
    causal = True


@dataclass(frozen=True)
class VitConfig:
    """A transformer over the patches of square grey images; the rest as in GptConfig."""

    layers: int
    dim: int
    heads: int
    image: int
    patch: int
    classes: int
    bias: bool = True
    gelu: str = "none"
    attention: str = "sdpa"
    causal = False

    @property
    def patches(self):
        return (self.image // self.patch) ** 2


class Attention(nn.Module):
    """Self-attention, (B, T, C) -> (B, T, C); one packed projection makes Q, K and V. Where it is
    causal, a position attends to itself and those before."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.causal = config.causal
        self.manual = config.attention == "manual"
        self.c_attn = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.c_proj = nn.Linear(config.dim, config.dim, bias=config.bias)
        if self.manual and self.causal:
            ones = torch.ones(1, 1, config.seq, config.seq)
            self.register_buffer("mask", torch.tril(ones))

    def attend(self, q, k, v):
        """softmax(Q K^T / sqrt(d)) V over the positions attended to; all (B, H, T, d)."""
        if not self.manual:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        steps = q.size(-2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if self.causal:
            scores = scores.masked_fill(self.mask[:, :, :steps, :steps] == 0, float("-inf"))
        return F.softmax(scores, dim=-1) @ v

    def forward(self, x):
        batch, steps, dim = x.size()
        q, k, v = (
            part.view(batch, steps, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(dim, dim=2)
        )
        y = self.attend(q, k, v).transpose(1, 2).contiguous().view(batch, steps, dim)
        return self.c_proj(y)


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.dim, 4 * config.dim, bias=config.bias)
        self.gelu = nn.GELU(approximate=config.gelu)
        self.c_proj = nn.Linear(4 * config.dim, config.dim, bias=config.bias)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.dim, bias=config.bias)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.dim, bias=config.bias)
        self.mlp = FeedForward(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Token ids (B, T) -> logits (B, T, V). Learned positions, normalisation first, no dropout.

    With `tied`, the head is the token table itself; without, it is a second parameter.
    """

    def __init__(self, config, tied=True):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab, config.dim)
        self.wpe = nn.Embedding(config.seq, config.dim)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.dim, bias=config.bias)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, input_ids):
        positions = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Vit(nn.Module):
    """Images (B, S, S) -> logits (B, classes). Patches are embedded by a linear layer, positions
    are learned, the head reads the mean over the patches."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.patch = nn.Linear(config.patch**2, config.dim, bias=config.bias)
        self.position = nn.Parameter(torch.zeros(config.patches, config.dim))
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.dim, bias=config.bias)
        self.head = nn.Linear(config.dim, config.classes, bias=config.bias)

    def cut(self, images):
        """(B, S, S) -> (B, patches, pixels of a patch), rows of patches first."""
        batch, size, _ = images.size()
        side, n = self.config.patch, size // self.config.patch
        tiles = images.view(batch, n, side, n, side).transpose(2, 3)
        return tiles.reshape(batch, n * n, side * side)

    def forward(self, images):
        x = self.patch(self.cut(images)) + self.position
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x).mean(dim=1))


def init_distinct(model):
    """Gives every parameter its own values, so that an exporter cannot merge two of them.

    Linear weights have standard deviation 1/sqrt(inputs), tables and biases 0.1, norm scales
    1 + 0.1 * randn.
    """
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            with torch.no_grad():
                parameter.normal_(std=0.1)
                if isinstance(module, nn.LayerNorm) and name == "weight":
                    parameter.add_(1.0)
                if isinstance(module, nn.Linear) and name == "weight":
                    parameter.mul_(10 / math.sqrt(module.in_features))
    if isinstance(model, Gpt):  # the head was visited last, and it may be the token table
        nn.init.normal_(model.wte.weight, std=0.1)


def init_gpt2(model):
    """GPT-2's initialisation: 0.02, less where a branch joins the residual stream."""
    for name, parameter in model.named_parameters():
        if name.endswith("c_proj.weight"):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * len(model.h)))
        elif name.endswith(".bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
