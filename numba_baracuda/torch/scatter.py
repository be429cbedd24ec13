"""The functions of torch_scatter, with its arguments and conventions: ``import numba_baracuda.torch.scatter as torch_scatter`` replaces it.

What all have in common: ``index`` (int64 or int32) may have fewer axes than ``src`` or axes of size 1. Where it is the same along the other axes, by
its shape or because it was expanded, whole rows of ``src`` go to a segment; where it differs along them, each element goes by an id of its own.
``dim_size=None`` takes the greatest id plus 1, for which the call waits. Ids outside [0, dim_size) are dropped.
Results are contiguous, of the dtype of ``src`` and deterministic. Integers of 8 and 16 bits are computed in 32 and wrap.

Where this differs from torch_scatter: NaN wins in min and max, −∞ and the least integer are values as others are, the gradient of mul is exact
where ``src`` is 0, the mul of no elements is 1 whatever the shape, and nothing is added to a sum or a count against division by 0. ``torch.compile``
compiles these functions, ``torch.jit.script`` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.errors import InvalidProblem
from .segments import Segments, axis, broadcastable, checked_out, ids_of, ids_of_offsets, segments_of

#: reductions by their names there
STEMS = {"sum": "sum", "add": "sum", "mul": "prod", "mean": "mean", "min": "min", "max": "max"}


# the functions of an index in any order


def scatter(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None, reduce: str = "sum") -> Any:
    """out[…, s, …] = reduce src[…, n, …] over index[…, n, …] = s along ``dim``.

    ``src`` […, N, …] and the result […, dim_size, …]; ``index`` as :mod:`numba_baracuda.torch.scatter` says. ``reduce`` is ``"sum"`` or ``"add"``,
    ``"mul"``, ``"mean"``, ``"min"`` or ``"max"``. Empty segments get 0, those of mul 1. The mean of integers is rounded down. ``out`` takes part in
    sum, mul, min and max as one more element, is added to the sum of a mean, is changed in place and returned; ``dim_size`` is then its own.
    Differentiable; min and max give their gradient to the first extreme.

    Raises ``InvalidProblem`` for arguments that contradict each other, ``Unsupported`` for dtypes that are not reduced.
    """
    return _scatter("scatter", src, index, dim, out, dim_size, reduce)[0]


def scatter_sum(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """:func:`scatter` with ``reduce="sum"``."""
    return _scatter("scatter_sum", src, index, dim, out, dim_size, "sum")[0]


def scatter_add(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """:func:`scatter` with ``reduce="sum"``."""
    return _scatter("scatter_add", src, index, dim, out, dim_size, "sum")[0]


def scatter_mul(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """:func:`scatter` with ``reduce="mul"``."""
    return _scatter("scatter_mul", src, index, dim, out, dim_size, "mul")[0]


def scatter_mean(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """:func:`scatter` with ``reduce="mean"``."""
    return _scatter("scatter_mean", src, index, dim, out, dim_size, "mean")[0]


def scatter_min(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> tuple[Any, Any]:
    """:func:`scatter` with ``reduce="min"``, and where along ``dim`` of ``src`` the first least element is, in the dtype of ``index``.

    That is ``src.size(dim)`` for an empty segment, and where an element of ``out`` is less than all.
    """
    return _scatter("scatter_min", src, index, dim, out, dim_size, "min", places=True)


def scatter_max(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> tuple[Any, Any]:
    """:func:`scatter` with ``reduce="max"``, and where along ``dim`` of ``src`` the first greatest element is, in the dtype of ``index``.

    That is ``src.size(dim)`` for an empty segment, and where an element of ``out`` is greater than all.
    """
    return _scatter("scatter_max", src, index, dim, out, dim_size, "max", places=True)


def scatter_softmax(src: Any, index: Any, dim: int = -1, dim_size: int | None = None) -> Any:
    """out[…, n, …] = exp(src[…, n, …] − max) / Σ exp(src[…, m, …] − max) over index[…, m, …] = index[…, n, …]; floating dtypes."""
    return segments_of("scatter_softmax", src, index, dim, None, dim_size, floating=True).mapped("softmax", src)


def scatter_log_softmax(src: Any, index: Any, dim: int = -1, eps: float = 1e-12, dim_size: int | None = None) -> Any:
    """The logarithm of :func:`scatter_softmax`, computed without it. ``eps`` is not used: the sum it would be added to is at least 1."""
    return segments_of("scatter_log_softmax", src, index, dim, None, dim_size, floating=True).mapped("log_softmax", src)


def scatter_logsumexp(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None, eps: float = 1e-12) -> Any:
    """out[…, s, …] = log Σ exp src[…, n, …] over index[…, n, …] = s; floating dtypes, 0 where a segment is empty.

    ``out`` takes part as one more element, and is changed in place and returned. ``eps`` is not used: the sum it would be added to is at least 1.
    """
    segments = segments_of("scatter_logsumexp", src, index, dim, out, dim_size, floating=True)
    if out is None:
        return segments.reduced("logsumexp", src, empty=0.0)
    return out.copy_(torch.logaddexp(out.clone(), segments.reduced("logsumexp", src)))


def scatter_std(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None, unbiased: bool = True) -> Any:
    """out[…, s, …] = √(Σ (src[…, n, …] − mean)² / (count − 1)) over index[…, n, …] = s, / count unless ``unbiased``; floating dtypes.

    It is 0 for one element and for none. The sums of squares are added to ``out``, which is changed in place; the result is another tensor.
    """
    segments = segments_of("scatter_std", src, index, dim, out, dim_size, floating=True)
    if out is None:
        return segments.reduced("std", src, correction=int(unbiased))
    count = segments.counts(src.dtype)
    out.add_(segments.reduced("var", src, correction=0) * count)
    return (out / (count - int(unbiased)).clamp(min=1)).sqrt().to(src.dtype)


# the functions of ids that ascend, and of offsets


def segment_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None, reduce: str = "sum") -> Any:
    """:func:`scatter` along the last axis of ``index``, whose ids ascend along it; ``reduce`` is not ``"mul"``.

    Where ids do not ascend values are unspecified, but nothing outside of the tensors is touched.
    """
    return _segment_coo("segment_coo", src, index, out, dim_size, reduce)[0]


def segment_csr(src: Any, indptr: Any, out: Any = None, reduce: str = "sum") -> Any:
    """out[…, s, …] = reduce src[…, n, …] for n from indptr[…, s] to indptr[…, s + 1] − 1, along the last axis of ``indptr``.

    ``src`` […, N, …]; ``indptr`` […, S + 1], int64 or int32, ascends along its last axis, and its other axes are those of ``src`` or 1. ``reduce`` is
    that of :func:`scatter` but ``"mul"``; the mean of integers is rounded to 0. ``out`` is overwritten and returned. The call does not wait.
    """
    return _segment_csr("segment_csr", src, indptr, out, reduce)[0]


def gather_coo(src: Any, index: Any, out: Any = None) -> Any:
    """out[…, n, …] = src[…, index[…, n], …] along the last axis of ``index``, whose ids ascend along it; 0 for ids that ``src`` does not have.

    ``out`` is overwritten and returned. The gradient is that of :func:`segment_coo`.
    """
    dim = axis("gather_coo", src, ids_of("gather_coo", "index", index, src).dim() - 1)
    return _gathered("gather_coo", "index", src, index, dim, out)


def gather_csr(src: Any, indptr: Any, out: Any = None) -> Any:
    """out[…, n, …] = src[…, s, …] for n from indptr[…, s] to indptr[…, s + 1] − 1, along the last axis of ``indptr``.

    The result has as many elements along it as the last offset says, for which the call waits; or as ``out``, which is overwritten and returned.
    The gradient is that of :func:`segment_csr`.
    """
    dim = axis("gather_csr", src, ids_of("gather_csr", "indptr", indptr, src).dim() - 1)
    if src.shape[dim] not in (0, indptr.shape[-1] - 1):
        raise InvalidProblem(f"gather_csr: indptr has {indptr.shape[-1]} offsets, wants {src.shape[dim] + 1}, one more than src has along axis {dim}")
    length = out.shape[dim] if out is not None else int(indptr.reshape(-1)[-1]) if src.numel() else 0
    return _gathered("gather_csr", "indptr", src, ids_of_offsets(indptr, length), dim, out)


def _named(name: str, reduce: str, like: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one reduction, ``segment_sum_csr`` and the like."""
    places = reduce in ("min", "max")

    def run_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None) -> Any:
        made = call(name, src, index, out, dim_size, reduce, places)
        return made if places else made[0]

    def run_csr(src: Any, indptr: Any, out: Any = None) -> Any:
        made = call(name, src, indptr, out, reduce, places)
        return made if places else made[0]

    made = run_coo if like is segment_coo else run_csr
    made.__name__ = made.__qualname__ = name
    also = ", and where the first extreme is, as :func:`scatter_max` has it" if places else ""
    made.__doc__ = f':func:`{like.__name__}` with ``reduce="{reduce}"``{also}.'
    return made


# how they do it


def _scatter(name: str, src: Any, index: Any, dim: int, out: Any, dim_size: int | None, reduce: str, places: bool = False) -> tuple[Any, Any]:
    _known(name, reduce, STEMS)
    return _reduced(segments_of(name, src, index, dim, out, dim_size), src, out, reduce, places)


def _segment_coo(name: str, src: Any, index: Any, out: Any, dim_size: int | None, reduce: str, places: bool = False) -> tuple[Any, Any]:
    _known(name, reduce, _ORDERED)
    dim = axis(name, src, ids_of(name, "index", index, src).dim() - 1)
    return _reduced(segments_of(name, src, index, dim, out, dim_size, ordered=True), src, out, reduce, places)


def _segment_csr(name: str, src: Any, indptr: Any, out: Any, reduce: str, places: bool = False) -> tuple[Any, Any]:
    _known(name, reduce, _ORDERED)
    dim = axis(name, src, ids_of(name, "indptr", indptr, src).dim() - 1)
    size = max(indptr.shape[-1] - 1, 0)
    if out is not None:
        checked_out(name, out, src, dim, size)
    index = broadcastable(name, "indptr", ids_of_offsets(indptr, src.shape[dim]), tuple(src.shape), dim)
    made, where = _reduced(Segments(index, tuple(src.shape), dim, size, True), src, None, reduce, places, rounding="trunc")
    return made if out is None else out.copy_(made), where


_ORDERED = [name for name in STEMS if name != "mul"]


def _known(name: str, reduce: str, wanted: Any) -> None:
    if reduce not in wanted:
        raise InvalidProblem(f"{name}: reduce is {reduce!r}, wants one of {', '.join(wanted)}")


def _reduced(segments: Segments, src: Any, out: Any, reduce: str, places: bool, rounding: str = "floor") -> tuple[Any, Any]:
    """The result, in ``out`` where there is one, and the places of extremes where they are wanted."""
    stem = STEMS[reduce]
    if stem in ("min", "max"):
        made = segments.reduced(stem, src, empty=0)
        if out is None:
            return made, segments.first(stem, src) if places else None
        where, length = segments.first(stem, src), segments.length
        wins = (where != length) & ~((out < made) if stem == "min" else (out > made)) & ~out.isnan()
        return out.copy_(torch.where(wins, made, out)), where.masked_fill(~wins, length)
    if stem == "mean" and (out is not None or not src.is_floating_point()):
        total = segments.reduced("sum", src)
        total = total if out is None else out.add_(total)
        return total.div_(segments.counts(src.dtype), rounding_mode=None if src.is_floating_point() else rounding), None
    made = segments.reduced(stem, src)
    return made if out is None else out.mul_(made) if stem == "prod" else out.add_(made), None


def _gathered(name: str, argument: str, src: Any, index: Any, dim: int, out: Any) -> Any:
    shape = list(src.shape)
    shape[dim] = index.shape[-1]
    if out is not None:
        checked_out(name, out, src, dim, shape[dim])
    segments = Segments(broadcastable(name, argument, index, tuple(shape), dim), tuple(shape), dim, src.shape[dim], True)
    made = segments.spread(src)
    return made if out is None else out.copy_(made)


for _reduce in _ORDERED:
    for _like, _call in ((segment_coo, _segment_coo), (segment_csr, _segment_csr)):
        _name = _like.__name__.replace("_", f"_{_reduce}_")
        globals()[_name] = _named(_name, _reduce, _like, _call)
__all__ = [name for name in globals() if name.startswith(("scatter", "segment_", "gather_"))]
