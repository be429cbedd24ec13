"""CuPy's NCCL communicator as a communicator."""

from __future__ import annotations

import math
from typing import Any

from ..arrays import allocation, arrays
from ..arrays.views import View
from .communicator import Pending

#: element -> the name of NCCL's type of it, and its number
_TYPES = {
    "f32": ("FLOAT32", 7), "f64": ("FLOAT64", 8), "f16": ("FLOAT16", 6), "bf16": ("BFLOAT16", 9), "i32": ("INT32", 2), "i64": ("INT64", 4),
    "u8": ("UINT8", 1),
}  # fmt: skip


class NcclCommunicator:
    """A ``cupy.cuda.nccl.NcclCommunicator``. What runs beside a caller's stream is on one of its own."""

    def __init__(self, group: Any) -> None:
        import cupy

        self._cupy, self._group = cupy, group
        self.rank, self.size = int(group.rank_id()), int(group.size())
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def exchange(self, text: str) -> list[str]:
        """The text of each rank, padded with blanks to the length of the longest for the exchange."""
        cupy = self._cupy
        said = cupy.frombuffer(text.encode(), cupy.uint8)
        lengths = cupy.asnumpy(self._all(cupy.array([said.size]))).ravel()
        padded = cupy.full(int(lengths.max()), ord(" "), cupy.uint8)
        padded[: said.size] = said
        return [bytes(each[:length]).decode() for each, length in zip(cupy.asnumpy(self._all(padded)), lengths, strict=True)]

    def _all(self, x: Any) -> Any:
        return self.all_gather(x, self._cupy.cuda.get_current_stream().ptr).wait()

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """``[size, *x.shape]``: the array of each rank."""
        view, byte = arrays.view(x, "all_gather", "x"), self._cupy.cuda.nccl.NCCL_UINT8
        made = allocation.empty(view, (self.size, *view.shape), view.element, stream)
        return self._queued(lambda own: self._group.allGather(view.ptr, made.data.ptr, made.nbytes // self.size, byte, own), made, x, stream, beside)

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """The sum over all ranks, in the place of x."""
        view = arrays.view(x, "all_reduce", "x")
        kind, add = self._kind(view), self._cupy.cuda.nccl.NCCL_SUM
        return self._queued(lambda own: self._group.allReduce(view.ptr, view.ptr, math.prod(view.shape), kind, add, own), x, x, stream, beside)

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """Row ``rank`` of the sum over all ranks."""
        view = arrays.view(x, "reduce_scatter", "x")
        made = allocation.empty(view, tuple(view.shape[1:]), view.element, stream)
        count, kind, add = math.prod(view.shape[1:]), self._kind(view), self._cupy.cuda.nccl.NCCL_SUM
        return self._queued(lambda own: self._group.reduceScatter(view.ptr, made.data.ptr, count, kind, add, own), made, x, stream, beside)

    def _kind(self, view: View) -> int:
        name, number = _TYPES[view.element]
        return int(getattr(self._cupy.cuda.nccl, f"NCCL_{name}", number))

    def _queued(self, collective: Any, made: Any, given: Any, stream: int, beside: bool) -> Pending:
        if not beside:
            collective(stream)
            return Pending(made)
        cuda = self._cupy.cuda
        caller = cuda.ExternalStream(stream) if stream else cuda.Stream.null
        self._stream.wait_event(caller.record())
        collective(self._stream.ptr)
        done, alive = self._stream.record(), [given]

        def order() -> None:
            caller.wait_event(done)
            alive.clear()  # its memory is reused in the order of the caller's stream

        return Pending(made, order)
