"""Segments along any axis of a tensor, as the ops have them: rows in front, and one id for each."""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch

from ..core.errors import InvalidProblem, Unsupported
from . import FUNCTIONS

_IDS = (torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: dtypes that are computed in a wider one
_NARROW = (torch.uint8, torch.int8, torch.int16)
DTYPES = (*_FLOATS, *_IDS, *_NARROW)


class Segments:
    """What ``index`` says of the elements along ``dim``: to which of ``size`` segments each belongs.

    ``index`` has as many axes as the tensors, of their sizes or 1. Along some axes other than ``dim`` it may differ: these go in front of it, and
    their positions into the ids, so that segments of different positions are different segments. An axis that the index has been expanded along,
    with stride 0, is not among them. ``ordered`` says whether ids ascend.
    """

    def __init__(self, index: Any, shape: tuple[int, ...], dim: int, size: int, ordered: bool) -> None:
        self.shape, self.size, self.length, self.dtype, self.prefix = shape, size, shape[dim], index.dtype, "" if ordered else "unsorted_"
        others = [d for d in range(len(shape)) if d != dim]
        alone = index.numel() == index.shape[dim] == shape[dim]
        self.front = [] if alone else [d for d in others if index.shape[d] != 1 and (index.stride(d) != 0 or index.shape[d] == 0)]
        self.behind = [d for d in others if d not in self.front]
        self.order = [*self.front, dim, *self.behind]
        self.moved = self.order != sorted(self.order)
        self.parts = prod([shape[d] for d in self.front])
        if alone:
            self.ids = index.reshape(-1)
            return
        index = index.expand([n if d == dim else k for d, (k, n) in enumerate(zip(index.shape, shape, strict=True))])
        self.ids = index.permute(self.order)[(..., *[0] * len(self.behind))]
        if self.front:
            ids = self.ids.reshape(self.parts, self.length).long()
            first = torch.arange(self.parts, device=ids.device)[:, None] * size
            self.ids = torch.where((ids >= 0) & (ids < size), ids + first, -1).reshape(-1)

    def rows(self, tensor: Any) -> Any:
        """The tensor as rows, with what is along ``dim`` at each position in front of them one behind the other."""
        made = tensor.permute(self.order) if self.moved else tensor
        return made.reshape(self.parts * made.shape[len(self.front)], *made.shape[len(self.front) + 1 :]) if self.front else made

    def restored(self, rows: Any, length: int) -> Any:
        """Rows of the ops as a contiguous tensor again, with ``length`` elements along ``dim``."""
        made = rows.reshape(*[self.shape[d] for d in self.front], length, *rows.shape[1:]) if self.front else rows
        return made.permute([self.order.index(d) for d in range(len(self.order))]).contiguous() if self.moved else made

    def reduced(self, stem: str, tensor: Any, **options: Any) -> Any:
        """The op of this stem: an element for each segment."""
        return self.restored(self._run(stem, tensor, options), self.size)

    def mapped(self, stem: str, tensor: Any) -> Any:
        """The op of this stem that gives an element for each of the tensor's."""
        return self.restored(self._run(stem, tensor, {}), self.length)

    def spread(self, tensor: Any) -> Any:
        """The element of its segment for each element along ``dim``; 0 for ids out of range."""
        rows = self.rows(tensor)
        if tensor.dtype in _FLOATS:
            return self.restored(self._op("sum_backward")(rows, self.ids), self.length)
        if not rows.shape[0]:
            return self.restored(rows.new_zeros(self.ids.shape[0], *rows.shape[1:]), self.length)
        found = rows.index_select(0, self.ids.clamp(0, rows.shape[0] - 1))
        outside = (self.ids < 0) | (self.ids >= rows.shape[0])
        return self.restored(found.masked_fill(outside.reshape(-1, *[1] * (found.dim() - 1)), 0), self.length)

    def counts(self, dtype: Any) -> Any:
        """How many elements each segment has, at least 1, to divide numbers of ``dtype`` by: int32, or floats of at least 32 bits."""
        ones = torch.ones(self.ids.shape, dtype=torch.int32, device=self.ids.device)
        wide = torch.promote_types(dtype, torch.float32) if dtype in _FLOATS else torch.int32
        made = self._op("sum")(ones, self.ids, self.parts * self.size).clamp(min=1).to(wide)
        return self.restored(made.reshape(-1, *[1] * len(self.behind)), self.size)

    def first(self, stem: str, tensor: Any) -> Any:
        """Where along ``dim`` the first extreme of each segment is; the length of ``dim`` where it is empty."""
        rows = self.ids.shape[0]
        found = self.reduced(f"arg{stem}", tensor.detach(), empty=rows, dtype=self.ids.dtype)
        return torch.where(found == rows, self.length, found % max(self.length, 1)).to(self.dtype) if self.front else found

    def _run(self, stem: str, tensor: Any, options: dict[str, Any]) -> Any:
        narrow = tensor.dtype in _NARROW
        made = self._op(stem)(self.rows(tensor.int() if narrow else tensor), self.ids, self.parts * self.size, **options)
        return made.to(tensor.dtype) if narrow and not stem.startswith("arg") else made

    def _op(self, stem: str) -> Any:
        return FUNCTIONS[f"{self.prefix}segment_{stem}"]


def axis(name: str, src: Any, dim: Any, floating: bool = False) -> int:
    """``dim`` counted from the front; raises where ``src`` has none such, or elements that no op here reduces."""
    if not isinstance(src, torch.Tensor):
        raise InvalidProblem(f"{name}: src is a {type(src).__name__}, wants a torch tensor")
    if src.is_nested or src.layout is not torch.strided:
        raise Unsupported(f"{name}: src is {'nested' if src.is_nested else f'of layout {src.layout}'}, wants a strided tensor")
    if src.dtype not in (_FLOATS if floating else DTYPES):
        raise Unsupported(f"{name}: src is {src.dtype}, wants a floating dtype{'' if floating else ', or integers of up to 64 bits'}")
    if not isinstance(dim, int) or not -src.dim() <= dim < src.dim():
        raise InvalidProblem(f"{name}: dim is {dim!r}, wants one of the {src.dim()} axes of src")
    return dim if dim >= 0 else dim + cast(int, src.dim())


def ids_of(name: str, argument: str, index: Any, src: Any) -> Any:
    """The index, if that is what it is; raises otherwise."""
    if not isinstance(index, torch.Tensor):
        raise InvalidProblem(f"{name}: {argument} is a {type(index).__name__}, wants a torch tensor")
    if index.dtype not in _IDS:
        raise InvalidProblem(f"{name}: {argument} is {index.dtype}, wants int32 or int64")
    if index.device != src.device:
        raise InvalidProblem(f"{name}: {argument} is on {index.device}, wants {src.device}, where src is")
    if not 0 < index.dim() <= src.dim():
        raise InvalidProblem(f"{name}: {argument} has {index.dim()} axes, wants 1 to {src.dim()}, as src")
    return index


def broadcastable(name: str, argument: str, index: Any, shape: tuple[int, ...], dim: int) -> Any:
    """The index with as many axes as ``shape``; raises where an axis has neither that size nor 1. One axis lies along ``dim``, several in front."""
    before = dim if index.dim() == 1 else 0
    made = index.reshape(*[1] * before, *index.shape, *[1] * (len(shape) - before - index.dim())) if index.dim() < len(shape) else index
    for d, (got, wants) in enumerate(zip(made.shape, shape, strict=True)):
        if got not in (1, wants):
            raise InvalidProblem(f"{name}: {argument} has shape {[*index.shape]}, wants {wants} or 1 along axis {d} of src")
    return made


def segments_of(name: str, src: Any, index: Any, dim: int, out: Any, dim_size: int | None, ordered: bool = False, floating: bool = False) -> Segments:
    """What an index says of the elements of ``src``; raises where one of the arguments is of no use."""
    dim = axis(name, src, dim, floating)
    index = broadcastable(name, "index", ids_of(name, "index", index, src), tuple(src.shape), dim)
    if out is not None:
        dim_size = checked_out(name, out, src, dim, None)
    elif dim_size is None:
        if index.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(index):
            raise InvalidProblem(f"{name}: dim_size is None for an index without values to read, wants a number of segments")
        dim_size = int(index.max()) + 1 if index.numel() else 0
    if not isinstance(dim_size, (int, torch.SymInt)) or dim_size < 0:
        raise InvalidProblem(f"{name}: dim_size is {dim_size!r}, wants a number of segments")
    return Segments(index, tuple(src.shape), dim, dim_size, ordered)


def checked_out(name: str, out: Any, src: Any, dim: int, size: int | None) -> int:
    """The size of ``out`` along ``dim``; raises where a result has no place in it."""
    if not isinstance(out, torch.Tensor):
        raise InvalidProblem(f"{name}: out is a {type(out).__name__}, wants a torch tensor")
    wanted: list[int | None] = [*src.shape]
    wanted[dim] = out.shape[dim] if size is None and out.dim() == src.dim() else size
    if [*out.shape] != wanted or out.dtype != src.dtype or out.device != src.device:
        got, shape = f"{out.dtype} {[*out.shape]} on {out.device}", ", ".join("any" if each is None else str(each) for each in wanted)
        raise InvalidProblem(f"{name}: out is {got}, wants {src.dtype} [{shape}] on {src.device}")
    return cast(int, out.shape[dim])


def ids_of_offsets(indptr: Any, length: int) -> Any:
    """The ids of ``length`` rows by offsets […, S + 1]: −1 before the first, S from the last one on."""
    rows = torch.arange(length, dtype=indptr.dtype, device=indptr.device).expand(*indptr.shape[:-1], length)
    return torch.searchsorted(indptr.contiguous(), rows.contiguous(), right=True, out_int32=indptr.dtype == torch.int32) - 1
