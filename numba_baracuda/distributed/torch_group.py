"""``torch.distributed`` as a communicator: NCCL for tensors on GPUs, gloo for those in host memory."""

from __future__ import annotations

import contextlib
from typing import Any

from ..core.errors import InvalidProblem
from .communicator import Pending


class TorchCommunicator:
    """A torch ``ProcessGroup``, None for the default one, or a ``DeviceMesh`` of one dimension, such as ``mesh["tp"]``.

    Collectives that nothing runs beside are on the caller's stream where torch queues them there, from 2.8 on, and else on that of the process group.
    """

    def __init__(self, group: Any = None) -> None:
        import torch
        import torch.distributed as dist

        if hasattr(group, "get_group"):
            if group.ndim != 1:
                raise InvalidProblem(f'TorchCommunicator: group is a DeviceMesh of {group.ndim} dimensions, wants one of them, such as mesh["tp"]')
            group = group.get_group()
        self._torch, self._dist, self.group = torch, dist, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        # the older names are deprecated from torch 2.13 on
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def exchange(self, text: str) -> list[str]:
        """The text of each rank."""
        texts: list[Any] = [None] * self.size
        self._dist.all_gather_object(texts, text, group=self.group)
        return texts

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """``[size, *x.shape]``: the tensor of each rank."""
        return self._called(self._gather, x, (self.size, *x.shape), stream, beside)

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """The sum over all ranks, in the place of x."""
        with self._on(stream, x):
            return self._pending(x, self._dist.all_reduce(x, group=self.group, async_op=beside), stream)

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """Row ``rank`` of the sum over all ranks."""
        return self._called(self._scatter, x, tuple(x.shape[1:]), stream, beside)

    def _called(self, collective: Any, x: Any, shape: tuple[int, ...], stream: int, beside: bool) -> Pending:
        with self._on(stream, x):
            made = x.new_empty(shape)
            return self._pending(made, collective(made.view(-1), x.view(-1), group=self.group, async_op=beside), stream)

    def _pending(self, made: Any, work: Any, stream: int) -> Pending:
        if work is None:  # the stream is behind it
            return Pending(made)

        def order() -> None:
            with self._on(stream, made):
                work.wait()

        return Pending(made, order)

    def _on(self, stream: int, x: Any) -> Any:
        """The stream of this handle as the current one."""
        cuda = self._torch.cuda
        if not x.is_cuda or cuda.current_stream(x.device).cuda_stream == stream:
            return contextlib.nullcontext()
        return cuda.stream(cuda.ExternalStream(stream, device=x.device) if stream > 1 else cuda.default_stream(x.device))
