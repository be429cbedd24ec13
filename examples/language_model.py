"""A small decoder learns to write Python byte by byte, with the fused loss and with logits in memory.

    python examples/language_model.py [--steps 200] [--width 256] [--layers 4] [--length 256] [--batch 32] [--vocabulary 4096]

The text is the source of the standard library; a token is a byte, or one of the most frequent pairs of bytes, up to VOCABULARY. Both runs begin with
the same numbers and see the same text; the last lines say how far their losses are apart, and how much memory each took. On a GPU where there is one,
in bfloat16, else in the emulator, which is slow: give it few steps of small extents.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import numba_baracuda.torch as nbt
from numba_baracuda.arrays.arrays import emulating


def tokens(vocabulary: int, most: int) -> Any:
    """The text as tokens: pairs of bytes from left to right, split where a pair is not in the vocabulary."""
    paths, text = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")), b""
    for path in paths:
        text += path.read_bytes()
        if len(text) > most:
            break
    data = np.frombuffer(text[: len(text) // 2 * 2], np.uint8).astype(np.int64)
    pairs = data[::2] * 256 + data[1::2]
    kinds, counts = np.unique(pairs, return_counts=True)
    number = np.full(1 << 16, -1)
    frequent = kinds[np.argsort(-counts, kind="stable")][: max(vocabulary - 256, 0)]
    number[frequent] = np.arange(len(frequent)) + 256
    split = np.stack([np.where(number[pairs] < 0, data[::2], number[pairs]), np.where(number[pairs] < 0, data[1::2], -1)], 1).reshape(-1)
    return torch.from_numpy(split[split >= 0])


class Block(torch.nn.Module):  # type: ignore[misc]
    """Attention to what came before, and two linear layers, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2))
        self.mix, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.up, self.down, self.heads = torch.nn.Linear(width, 4 * width, bias=False), torch.nn.Linear(4 * width, width, bias=False), heads

    def forward(self, x: Any) -> Any:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.mix(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """Tokens to hidden states; the weight of the vectors is that of the head, too."""

    def __init__(self, vocabulary: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.vectors, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*[Block(width, max(width // 64, 1)) for _ in range(layers)], torch.nn.RMSNorm(width))
        torch.nn.init.normal_(self.vectors.weight, std=width**-0.5)

    def forward(self, ids: Any) -> Any:
        return self.blocks(self.vectors(ids) + self.places.weight[: ids.shape[1]])


def loss_of_torch(hidden: Any, weight: Any, target: Any) -> Any:
    """With all logits in memory."""
    return F.cross_entropy(F.linear(hidden, weight).flatten(0, 1).float(), target.flatten())


WAYS: dict[str, Callable[..., Any]] = {"torch": loss_of_torch, "numba_baracuda": nbt.linear_cross_entropy}


def train(way: str, given: argparse.Namespace, device: str) -> tuple[list[float], float]:
    """The loss before each step, and tokens a second, the first step left out."""
    torch.manual_seed(0)
    text = tokens(given.vocabulary, 4 * given.batch * given.length * given.steps + (1 << 16))
    model = Decoder(given.vocabulary, given.width, given.layers, given.length).to(device)
    optimizer, draw = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    losses, begin = [], time.perf_counter()
    for step in range(given.steps):
        first = torch.randint(0, len(text) - given.length - 1, (given.batch, 1), generator=draw)
        rows = text[first + torch.arange(given.length + 1)].to(device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = WAYS[way](model(rows[:, :-1]), model.vectors.weight, rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 0:
            begin = time.perf_counter()
    return losses, max(given.steps - 1, 1) * given.batch * given.length / (time.perf_counter() - begin)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Trains in every way; the losses of each."""
    parser = argparse.ArgumentParser(description="A small language model on Python's own source.")
    for name, usual in (("steps", 200), ("width", 256), ("layers", 4), ("length", 256), ("batch", 32), ("vocabulary", 4096)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given, device, found = parser.parse_args(arguments), "cpu" if emulating() else "cuda", {}
    for way in WAYS:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        found[way], rate = train(way, given, device)
        memory = f", {torch.cuda.max_memory_allocated() >> 20} MiB" if device == "cuda" else ""
        print(f"{way}: loss {found[way][0]:.4f} to {found[way][-1]:.4f}, {rate:.0f} tokens/s{memory}")
    print(f"losses at most {max(abs(a - b) for a, b in zip(*found.values(), strict=True)):.1e} apart")
    return found


if __name__ == "__main__":
    main()
