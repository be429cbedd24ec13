"""A decoder with the head and the loss of transformers' causal language models, in torch alone."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F

from numba_baracuda.torch.hf import causal_lm_loss


def ForCausalLMLoss(logits: Any, labels: Any, vocab_size: int, **given: Any) -> Any:
    """The loss of that name, with its arguments: of logits in float32."""
    rows = logits.float().view(-1, vocab_size)
    return causal_lm_loss(lambda target, **options: F.cross_entropy(rows, target.reshape(-1), **options), labels, **given)


class Block(torch.nn.Module):  # type: ignore[misc]
    """Attention with rotated positions, and a gated pair of linear layers."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.norms, self.heads = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2)), heads
        self.mix, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.gate, self.up = (torch.nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, width, bias=False)

    def forward(self, x: Any, turns: tuple[Any, Any]) -> Any:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.mix(self.norms[0](x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(rotated(q, turns), rotated(k, turns), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: Any, turns: tuple[Any, Any]) -> Any:
    """Pairs of elements turned by the angles of their positions."""
    cos, sin = turns
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """What :func:`numba_baracuda.torch.hf.patch` takes: forward(input_ids, labels), a head with the weight of the vectors, and a loss."""

    loss_function = staticmethod(ForCausalLMLoss)

    def __init__(self, layers: int, width: int, inner: int, heads: int, classes: int) -> None:
        super().__init__()
        self.vectors, self.lm_head = torch.nn.Embedding(classes, width), torch.nn.Linear(width, classes, bias=False)
        self.lm_head.weight = self.vectors.weight
        self.blocks = torch.nn.ModuleList(Block(width, inner, heads) for _ in range(layers))
        self.norm, self.classes = torch.nn.RMSNorm(width), classes
        self.half = width // heads // 2
        for each in self.parameters():
            if each.dim() > 1:
                torch.nn.init.normal_(each, std=0.02)

    def hidden(self, input_ids: Any) -> Any:
        """The states that the head is given."""
        x = self.vectors(input_ids)
        rates = 10000.0 ** -(torch.arange(self.half, device=x.device) / self.half)
        angles = torch.arange(input_ids.shape[1], device=x.device)[:, None] * rates
        turns = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, turns)
        return self.norm(x)

    def forward(self, input_ids: Any, labels: Any = None, **given: Any) -> Any:
        """The loss, where there are labels, and the logits."""
        logits = self.lm_head(self.hidden(input_ids))
        loss = None if labels is None else self.loss_function(logits=logits, labels=labels, vocab_size=self.classes, **given)
        return SimpleNamespace(loss=loss, logits=logits)


def liger_loss(model: Any) -> Any:
    """Has the model compute its loss by Liger's, without logits."""
    liger: Any = importlib.import_module("liger_kernel.transformers.fused_linear_cross_entropy")

    def forward(input_ids: Any, labels: Any) -> Any:
        rows = model.hidden(input_ids).flatten(0, 1)

        def loss_of(target: Any, **options: Any) -> Any:
            return liger.LigerFusedLinearCrossEntropyLoss(**options)(model.lm_head.weight, rows, target.reshape(-1))

        return SimpleNamespace(loss=causal_lm_loss(loss_of, labels), logits=None)

    model.forward = forward
    return model
