"""A model whose last layer is tensor-parallel: ``torchrun --nproc-per-node 2 examples/tensor_parallel.py``, on GPUs, or on the CPU in the emulator.

Every rank has the embedding and its part of the classes, sees the same bytes, and learns to predict the next one.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from numba_baracuda.distributed import TorchCommunicator, part
from numba_baracuda.torch.distributed import linear_cross_entropy

TEXT = b"the cat sat on the mat. " * 3
WIDTH, CLASSES, STEPS = 8, 128, 12


def main() -> None:
    """Trains, and prints the first and the last loss."""
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    group = TorchCommunicator()
    first, end = part("example", group, CLASSES)
    torch.manual_seed(0)  # the same numbers on every rank
    embedding = torch.nn.Embedding(CLASSES, WIDTH, device=device)
    weight = torch.randn(CLASSES, WIDTH, device=device)[first:end].clone().requires_grad_()
    optimizer = torch.optim.Adam([*embedding.parameters(), weight], lr=0.1)
    symbols = torch.tensor(list(TEXT), device=device)
    losses = []
    for _ in range(STEPS):
        loss = linear_cross_entropy(embedding(symbols[:-1]), weight, symbols[1:], group=group)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    if group.rank == 0:
        print(f"{group.size} ranks, classes {first} to {end - 1} on this one: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
