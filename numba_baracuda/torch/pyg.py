"""PyTorch Geometric with the segment ops: aggregations for ``aggr=``, and :func:`patch`, which replaces what all of its layers call.

Importing this module imports torch_geometric.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch_geometric.utils
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing, aggr

from ..arrays import arrays
from ..core.errors import InvalidProblem
from ..segment.index import SegmentIndex
from . import scatter as ts
from .segments import DTYPES, Segments, ids_of_offsets, segments_of

#: which row of edges has the targets
_FLOWS = {"source_to_target": 1, "target_to_source": 0}
_ORIGINALS = {name: getattr(torch_geometric.utils, name) for name in ("scatter", "segment", "softmax")}


def _served(src: Any) -> bool:
    """Whether the ops take a tensor, and it is where they run at full speed, if they do anywhere."""
    return src.dtype in DTYPES and (src.is_cuda or arrays.emulating())


def _plain(ids: Any) -> Any:
    """Ids as a tensor of torch's own, of an ``Index`` as well."""
    return ids.as_tensor() if hasattr(ids, "as_tensor") else ids


def scatter(src: Any, index: Any, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Any:
    """``torch_geometric.utils.scatter`` by :func:`numba_baracuda.torch.scatter.scatter`, of tensors on the GPU.

    What that does not have goes to the original: ``reduce="any"``, the mean of integers, other dtypes, tensors on the CPU.
    Gradients of min and max go to the first extreme; an index out of range is dropped.
    """
    kind = reduce.removeprefix("a") if reduce in ("amin", "amax") else reduce
    exact = kind in ts.STEMS and (kind != "mean" or src.is_floating_point())
    if not exact or index.dim() != 1 or not _served(src):
        return _ORIGINALS["scatter"](src, index, dim, dim_size, reduce)
    return ts.scatter(src, _plain(index), dim, None, dim_size, kind)


def segment(src: Any, ptr: Any, reduce: str = "sum") -> Any:
    """``torch_geometric.utils.segment`` by :func:`numba_baracuda.torch.scatter.segment_csr`, of tensors on the GPU."""
    return ts.segment_csr(src, ptr, reduce=reduce) if _served(src) else _ORIGINALS["segment"](src, ptr, reduce)


def softmax(src: Any, index: Any = None, ptr: Any = None, num_nodes: int | None = None, dim: int = 0) -> Any:
    """``torch_geometric.utils.softmax`` by the op, of tensors on the GPU: by ``ptr`` where it is given and has one axis, else by ``index``."""
    if not _served(src) or (index is None and (ptr is None or ptr.dim() > 1)):
        return _ORIGINALS["softmax"](src, index, ptr, num_nodes, dim)
    if ptr is not None and ptr.dim() == 1:
        ids = ids_of_offsets(ptr, src.shape[dim])
        return segments_of("softmax", src, ids, dim, None, ptr.shape[0] - 1, ordered=True, floating=True).mapped("softmax", src)
    return ts.scatter_softmax(src, _plain(index), dim, num_nodes)


def _select(layer: Any, src: Any, index: Any) -> Any:
    """The rows of nodes for the edges of a layer. Their gradient is a sum of segments in a fixed order; that of torch's function takes atomics."""
    ids = _plain(index)
    if not _served(src) or not src.is_floating_point() or ids.dim() != 1:
        return _ORIGINAL_SELECT(layer, src, index)
    dim = layer.node_dim % src.dim()
    before, behind = src.shape[:dim], src.shape[dim + 1 :]
    along = ids.reshape(*[1] * len(before), -1, *[1] * len(behind))
    return Segments(along, (*before, ids.shape[0], *behind), dim, src.shape[dim], ordered=False).spread(src)


_REPLACED = {name: globals()[name] for name in _ORIGINALS}
_ORIGINAL_SELECT = MessagePassing._index_select_safe


def patch() -> None:
    """Makes every module of torch_geometric call :func:`scatter`, :func:`segment` and :func:`softmax` of this one, until :func:`unpatch`.

    Layers also take the rows of nodes for their edges from an op, and get the gradients of nodes by a sum of segments. Modules of others that
    imported a function by name before keep the one that they have.
    """
    _swap(_ORIGINALS, _REPLACED)
    MessagePassing._index_select_safe = _select


def unpatch() -> None:
    """Undoes :func:`patch`."""
    _swap(_REPLACED, _ORIGINALS)
    MessagePassing._index_select_safe = _ORIGINAL_SELECT


def _swap(old: dict[str, Any], new: dict[str, Any]) -> None:
    for place, module in [*sys.modules.items()]:
        if place.split(".")[0] == "torch_geometric" and module is not None:
            for name in old:
                if vars(module).get(name) is old[name]:
                    setattr(module, name, new[name])


def segment_index(edges: Any, num_nodes: int | None = None, *, flow: str = "source_to_target") -> SegmentIndex:
    """The :class:`numba_baracuda.SegmentIndex` of the edges' targets, for the segment ops: made once, it serves every layer.

    ``edges`` is an ``EdgeIndex`` or a tensor [2, E], of which row 1 has the targets, or row 0 with ``flow="target_to_source"``; or a sparse CSR
    tensor [targets, sources], such as ``adj_t``, whose row pointers say where the edges of a target lie. An ``EdgeIndex`` knows whether it is sorted,
    and with ``num_nodes`` or its own size nothing waits for the device. A tensor is looked at, which waits, and wants ``num_nodes``.

    Raises ``InvalidProblem`` for other edges, and where the number of nodes is not known.
    """
    where = "pyg.segment_index"
    if flow not in _FLOWS:
        raise InvalidProblem(f"{where}: flow is {flow!r}, wants {' or '.join(_FLOWS)}")
    if not isinstance(edges, torch.Tensor):
        raise InvalidProblem(f"{where}: edges is a {type(edges).__name__}, wants an EdgeIndex, a tensor [2, E] or a sparse CSR tensor")
    if edges.layout is torch.sparse_csr:
        return SegmentIndex.from_offsets(edges.crow_indices(), edges.col_indices().shape[0])
    if edges.layout is not torch.strided or edges.dim() != 2 or edges.shape[0] != 2:
        raise InvalidProblem(
            f"{where}: edges is {edges.layout} of shape {[*edges.shape]}, wants an EdgeIndex, a tensor [2, E] or a sparse CSR tensor"
        )
    row, ordered = _FLOWS[flow], None
    if isinstance(edges, EdgeIndex):
        ordered = edges.is_sorted_by_col if row else edges.is_sorted_by_row
        num_nodes = edges.get_sparse_size(row) if num_nodes is None else num_nodes
    if num_nodes is None:
        raise InvalidProblem(f"{where}: num_nodes is None, wants the number of nodes, which a tensor does not know")
    return SegmentIndex(_plain(edges)[row], num_nodes, ordered)


class _Reduced:
    """What an aggregation of torch_geometric calls to reduce, without :func:`patch`."""

    def reduce(self, x: Any, index: Any = None, ptr: Any = None, dim_size: int | None = None, dim: int = -2, reduce: str = "sum") -> Any:
        if ptr is not None:
            return segment(x, ptr.view(*[1] * (dim % x.dim()), -1), reduce)
        return scatter(x, index, dim, dim_size, reduce)


class SumAggregation(_Reduced, aggr.SumAggregation):  # type: ignore[misc]
    """The sum of each set, with the arguments of ``torch_geometric.nn.aggr.SumAggregation``."""


class MeanAggregation(_Reduced, aggr.MeanAggregation):  # type: ignore[misc]
    """The mean of each set, with the arguments of ``torch_geometric.nn.aggr.MeanAggregation``; 0 for none."""


class MaxAggregation(_Reduced, aggr.MaxAggregation):  # type: ignore[misc]
    """The maximum of each set, with the arguments of ``torch_geometric.nn.aggr.MaxAggregation``; 0 for none."""


class MinAggregation(_Reduced, aggr.MinAggregation):  # type: ignore[misc]
    """The minimum of each set, with the arguments of ``torch_geometric.nn.aggr.MinAggregation``; 0 for none."""


class MulAggregation(_Reduced, aggr.MulAggregation):  # type: ignore[misc]
    """The product of each set, with the arguments of ``torch_geometric.nn.aggr.MulAggregation``; 1 for none."""


class PowerMeanAggregation(_Reduced, aggr.PowerMeanAggregation):  # type: ignore[misc]
    """The power mean of each set, with the arguments of ``torch_geometric.nn.aggr.PowerMeanAggregation``."""


class VarAggregation(_Reduced, aggr.VarAggregation):  # type: ignore[misc]
    """The variance of each set, with the arguments of ``torch_geometric.nn.aggr.VarAggregation``; 0 for none.

    It is Σ (x − mean)² / count, of which no digits are lost to a large mean; with ``semi_grad=True``, mean(x²) − mean(x)², which has that gradient.
    """

    def forward(self, x: Any, index: Any = None, ptr: Any = None, dim_size: int | None = None, dim: int = -2) -> Any:
        """The variance of each set along ``dim``."""
        if self.semi_grad or not _served(x):
            return super().forward(x, index, ptr, dim_size, dim)
        ids, size = (_plain(index), dim_size) if ptr is None else (ids_of_offsets(ptr, x.shape[dim]), ptr.shape[0] - 1)
        return segments_of("VarAggregation", x, ids, dim, None, size, ordered=ptr is not None, floating=True).reduced("var", x, correction=0)


class StdAggregation(aggr.StdAggregation):  # type: ignore[misc]
    """The root of :class:`VarAggregation`, with the arguments of ``torch_geometric.nn.aggr.StdAggregation``; variances up to 1e-5 count as 0."""

    def __init__(self, semi_grad: bool = False) -> None:
        super().__init__(semi_grad)
        self.var_aggr = VarAggregation(semi_grad)


class SoftmaxAggregation(_Reduced, aggr.SoftmaxAggregation):  # type: ignore[misc]
    """The sum of each set's elements times their softmax, with the arguments of ``torch_geometric.nn.aggr.SoftmaxAggregation``."""

    def forward(self, x: Any, index: Any = None, ptr: Any = None, dim_size: int | None = None, dim: int = -2) -> Any:
        """The sum for each set along ``dim``."""
        t = self.t
        if self.channels != 1:
            self.assert_two_dimensional_input(x, dim)
            t = t.view(-1, self.channels)
        scaled = x if isinstance(t, (int, float)) and t == 1 else x * t
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.semi_grad):
            share = softmax(scaled, index, ptr, dim_size, dim)
        return self.reduce(x * share, index, ptr, dim_size, dim)
