"""Peers of PyTorch and PyTorch Geometric."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from .case import Case
from .peer import INDEXED, Given, Peer, along, always, both, brief, calm, extreme_given, floats, indexed, one_go
from .reduce_truths import axes_of

#: kind → the name of its reduction, and the initial value of an output
_REDUCTIONS = {"sum": ("sum", 0), "mean": ("mean", 0), "max": ("amax", -math.inf), "min": ("amin", math.inf), "prod": ("prod", 1)}
_READY = "lengths ready"


def torch_peers(torch: Any) -> Iterator[Peer]:
    yield from _folds(torch)
    yield from _softmaxes(torch)
    yield from _gradients(torch)
    yield from _reductions(torch)
    yield from _scans(torch)
    yield Peer("sum", "row_sum", lambda t: (t.x, t.y), lambda x, y: torch.sum(x, 1, out=y))
    yield Peer("stable sort", "SegmentIndex", lambda t: (t.segment_ids,), lambda ids: torch.sort(ids, stable=True)[1])


def _autograd(torch: Any, op: str, forward: Callable[[Any, Any], Any], fits: Callable[[Case], bool] = always) -> Peer:
    """Autograd's gradient of ``forward(x, dy)``, which uses only the shape of dy; the graph exists before the clock starts.

    A gradient that is a view, as a sum's is of dy, is written out: ours is an array, too.
    """

    def graph(t: Given) -> tuple[Any, ...]:
        leaf = (t.x if "x" in t else t.dx).detach().requires_grad_()
        return forward(leaf, t.dy), leaf, t.dy

    def gradient(y: Any, x: Any, dy: Any) -> Any:
        return torch.autograd.grad(y, x, dy, retain_graph=True)[0].contiguous()

    return Peer("autograd", f"{op}_backward", graph, gradient, fits)


def _reductions(torch: Any) -> Iterator[Peer]:
    functions: dict[str, Callable[..., Any]] = {
        "sum": torch.sum,
        "mean": torch.mean,
        "max": torch.amax,
        "min": torch.amin,
        "prod": lambda x, dim, keepdim: functools.reduce(lambda left, axis: torch.prod(left, axis, keepdim), dim, x),
        "norm2": lambda x, dim, keepdim: torch.linalg.vector_norm(x, 2, dim, keepdim),
        "logsumexp": torch.logsumexp,
        "var": torch.var,
        "std": torch.std,
    }

    def position(which: str) -> Callable[..., Any]:
        """The element's position in C order over the axes; they are moved to the end, with a copy where that needs one."""
        return lambda x, dim, keepdim: getattr(x.movedim(dim, tuple(range(-len(dim), 0))).flatten(-len(dim)), which)(-1)

    others: dict[str, Callable[..., Any]] = {
        "argmax": position("argmax"),
        "argmin": position("argmin"),
        "any": torch.any,
        "all": torch.all,
        "count_nonzero": lambda x, dim, keepdim: torch.count_nonzero(x, dim),
    }

    def fold(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: function(x, dim=axes_of(x, y), keepdim=True)

    for kind, function in functions.items():
        yield Peer(kind, f"reduce_{kind}", lambda t: (t.x, t.y), fold(function))
        yield _autograd(torch, f"reduce_{kind}", fold(function))
    for kind, function in others.items():
        run = fold(function)
        yield Peer(kind, f"reduce_{kind}", lambda t: (t.x, t.y), lambda x, y, run=run: run(x, y).view(y.shape))


def _scans(torch: Any) -> Iterator[Peer]:
    functions: dict[str, Callable[..., Any]] = {
        "cumsum": torch.cumsum,
        "cumprod": torch.cumprod,
        "cummax": lambda x, dim: torch.cummax(x, dim).values,
        "cummin": lambda x, dim: torch.cummin(x, dim).values,
        "logcumsumexp": torch.logcumsumexp,
    }
    for (kind, function), axis in itertools.product(functions.items(), range(4)):
        scan = functools.partial(function, dim=axis)
        yield Peer(kind, kind, lambda t: (t.x,), scan, along(axis))
        yield _autograd(torch, kind, lambda x, dy, scan=scan: scan(x), along(axis))  # type: ignore[misc]
    yield Peer("flip + cumsum + flip", "cumsum", lambda t: (t.x,), lambda x: x.flip(1).cumsum(1).flip(1), along(1, reverse=True))


def _wide(t: Given) -> Any:
    """The ids broadcast along the columns, as a view."""
    ids, x = t.long_ids, t.input
    return ids.reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)


def _added(x: Any, ids: Any, counts: Any) -> Any:
    """The sums of the segments."""
    return x.new_zeros((len(counts), *x.shape[1:])).index_add_(0, ids, x)


def _apart(x: Any, ids: Any, counts: Any) -> Any:
    """Each row's difference from the mean of its segment."""
    return x - _added(x, ids, counts).div_(counts).index_select(0, ids)


def _folds(torch: Any) -> Iterator[Peer]:
    def scatter(reduce: str, start: float) -> Callable[..., Any]:
        return lambda y, ids, x: y.fill_(start).scatter_reduce_(0, ids, x, reduce, include_self=reduce != "mean")

    def reduced(kind: str) -> Callable[..., Any]:
        return lambda x, lengths: torch.segment_reduce(x, kind, lengths=lengths, axis=0, unsafe=True)

    def sort_and_reduce(kind: str) -> Callable[..., Any]:
        return lambda x, ids, lengths: reduced(kind)(x.index_select(0, torch.sort(ids, stable=True)[1]), lengths)

    def gather_and_reduce(kind: str) -> Callable[..., Any]:
        return lambda x, order, lengths: reduced(kind)(x.index_select(0, order), lengths)

    def variance(x: Any, ids: Any, lengths: Any, counts: Any) -> Any:
        apart = x - reduced("mean")(x, lengths).index_select(0, ids)
        return reduced("sum")(apart.square_(), lengths) / (counts - 1).clamp_(min=1)

    def added_variance(x: Any, ids: Any, counts: Any) -> Any:
        apart = _apart(x, ids, counts)
        return _added(apart.square_(), ids, counts) / (counts - 1).clamp_(min=1)

    def first(reduce: str, start: float) -> Callable[..., Any]:
        def run(y: Any, ids: Any, wide: Any, x: Any) -> Any:
            best = scatter(reduce, start)(x.new_empty(y.shape), wide, x)
            rows = torch.arange(len(x), device=x.device).reshape(-1, *[1] * (x.ndim - 1))
            return scatter("amin", len(x))(y, wide, torch.where(x == best.index_select(0, ids), rows, len(x)))

        return run

    add = "index_add_"
    yield Peer(add, "*segment_sum", lambda t: (t.output, t.segment_ids, t.input), lambda y, ids, x: y.zero_().index_add_(0, ids, x))
    yield Peer(add, "*segment_norm2", lambda t: (t.output, t.segment_ids, t.input), lambda y, ids, x: y.zero_().index_add_(0, ids, x * x).sqrt_())
    yield Peer(
        f"{add}, counts ready",
        "*segment_mean",
        lambda t: (t.output, t.segment_ids, t.input, t.counts),
        lambda y, ids, x, counts: y.zero_().index_add_(0, ids, x).div_(counts),
    )
    for kind, (reduce, start) in _REDUCTIONS.items():
        fits = calm if kind == "prod" else always
        yield Peer("scatter_reduce_", f"*segment_{kind}", lambda t: (t.output, _wide(t), t.input), scatter(reduce, start), fits)
        name, op = "segment_reduce", f"unsorted_segment_{kind}"
        yield Peer(f"{name}, {_READY}", f"segment_{kind}", lambda t: (t.input, t.lengths), reduced(kind), both(floats, brief))
        yield Peer(f"sort + {name}, {_READY}", op, lambda t: (t.input, t.segment_ids, t.lengths), sort_and_reduce(kind), both(one_go, brief))
    for kind in INDEXED:
        name, op = f"index_select + segment_reduce, order and {_READY}", f"unsorted_segment_{kind}"
        yield Peer(name, op, lambda t: (t.input, t.permutation, t.lengths), gather_and_reduce(kind), both(indexed, brief))
    for kind in ("max", "min"):
        given: Callable[[Given], tuple[Any, ...]] = lambda t: (t.output, t.segment_ids, _wide(t), t.input)  # noqa: E731
        yield Peer("scatter_reduce_ twice", f"*segment_arg{kind}", given, first(*_REDUCTIONS[kind]))
    lengths: Callable[[Given], tuple[Any, ...]] = lambda t: (t.input, t.segment_ids, t.lengths, t.counts)  # noqa: E731
    counts: Callable[[Given], tuple[Any, ...]] = lambda t: (t.input, t.segment_ids, t.counts)  # noqa: E731
    for kind, finish in (("var", lambda found: found), ("std", torch.sqrt)):
        twice: Callable[..., Any] = lambda *given, finish=finish: finish(variance(*given))  # noqa: E731
        added: Callable[..., Any] = lambda *given, finish=finish: finish(added_variance(*given))  # noqa: E731
        yield Peer(f"segment_reduce twice, {_READY}", f"segment_{kind}", lengths, twice, brief)
        yield Peer("index_add_ twice, counts ready", f"*segment_{kind}", counts, added)


def _softmaxes(torch: Any) -> Iterator[Peer]:
    def shifted(x: Any, ids: Any, wide: Any, segments: int) -> tuple[Any, Any, Any]:
        """The maximum of each segment, exp(row − maximum), and the sums of these."""
        top = x.new_full((segments, *x.shape[1:]), -math.inf).scatter_reduce_(0, wide, x, "amax")
        powers = (x - top.index_select(0, ids)).exp_()
        return top, powers, torch.zeros_like(top).index_add_(0, ids, powers)

    def logsumexp(*given: Any) -> Any:
        top, _, total = shifted(*given)
        return top.add_(total.log_())

    def softmax(x: Any, ids: Any, *given: Any) -> Any:
        _, powers, total = shifted(x, ids, *given)
        return powers.div_(total.index_select(0, ids))

    def log_softmax(x: Any, ids: Any, wide: Any, segments: int) -> Any:
        return x - logsumexp(x, ids, wide, segments).index_select(0, ids)

    def log_gradient(dy: Any, y: Any, ids: Any, segments: int) -> Any:
        total = y.new_zeros((segments, *y.shape[1:])).index_add_(0, ids, dy)
        return dy - y.exp().mul_(total.index_select(0, ids))

    def gradient(dy: Any, y: Any, ids: Any, segments: int) -> Any:
        shares = y * dy
        total = y.new_zeros((segments, *y.shape[1:])).index_add_(0, ids, shares)
        return shares.sub_(total.index_select(0, ids).mul_(y))

    def given(t: Given) -> tuple[Any, ...]:
        return t.input, t.segment_ids, _wide(t), t.segments

    yield Peer("scatter_reduce_ + index_add_", "*segment_logsumexp", given, logsumexp)
    yield Peer("scatter_reduce_ + index_add_", "*segment_softmax", given, softmax)
    yield Peer("scatter_reduce_ + index_add_", "*segment_log_softmax", given, log_softmax)
    with contextlib.suppress(ImportError):
        utils: Any = importlib.import_module("torch_geometric.utils")
        geometric = "torch_geometric softmax, 64-bit ids"
        yield Peer(geometric, "*segment_softmax", lambda t: (t.input, t.long_ids, t.segments), lambda x, ids, n: utils.softmax(x, ids, num_nodes=n))
    saved: Callable[[Given], tuple[Any, ...]] = lambda t: (t.d_output, t.output, t.segment_ids, t.segments)  # noqa: E731
    yield Peer("index_add_", "*segment_softmax_backward", saved, gradient)
    yield Peer("index_add_", "*segment_log_softmax_backward", saved, log_gradient)


def _gradients(torch: Any) -> Iterator[Peer]:
    gradient = "*segment_sum_backward"
    yield Peer("index_select", gradient, lambda t: (t.d_input, t.d_output, t.segment_ids), lambda dx, dy, ids: torch.index_select(dy, 0, ids, out=dx))
    yield Peer("indexing, 64-bit ids", gradient, lambda t: (t.d_output, t.long_ids), lambda dy, ids: dy[ids])
    yield Peer(
        "index_select, counts ready",
        "*segment_mean_backward",
        lambda t: (t.d_input, t.d_output, t.segment_ids, t.counts),
        lambda dx, dy, ids, counts: torch.index_select(dy / counts, 0, ids, out=dx),
    )
    yield Peer(
        "indexing, 64-bit ids, counts ready",
        "*segment_mean_backward",
        lambda t: (t.d_output, t.long_ids, t.counts),
        lambda dy, ids, counts: (dy / counts)[ids],
    )

    def chosen(dy: Any, x: Any, ids: Any, y: Any) -> Any:
        return torch.where(x == y.index_select(0, ids), dy.index_select(0, ids), 0)

    for kind in ("max", "min"):
        yield Peer("index_select + where, output ready", f"*segment_{kind}_backward", extreme_given(kind), chosen)
    yield Peer(
        "index_select + div",
        "*segment_prod_backward",
        lambda t: (t.d_output, t.input, t.output, t.segment_ids),
        lambda dy, x, y, ids: (dy * y).index_select(0, ids).div_(x),
    )

    def over(dy: Any, y: Any) -> Any:
        return torch.where(y == 0, 0, dy / y)

    def moments(x: Any, ids: Any, counts: Any, dy: Any) -> Any:
        return _apart(x, ids, counts).mul_((dy / (counts - 1).clamp_(min=1)).index_select(0, ids))

    saved: Callable[[Given], tuple[Any, ...]] = lambda t: (t.d_output, t.input, t.output, t.segment_ids)  # noqa: E731
    yield Peer(
        "index_select + exp",
        "*segment_logsumexp_backward",
        saved,
        lambda dy, x, y, ids: (x - y.index_select(0, ids)).exp_().mul_(dy.index_select(0, ids)),
    )
    yield Peer("index_select + mul", "*segment_norm2_backward", saved, lambda dy, x, y, ids: over(dy, y).index_select(0, ids).mul_(x))
    yield Peer(
        "index_add_ + index_select, counts ready",
        "*segment_var_backward",
        lambda t: (t.input, t.segment_ids, t.counts, t.d_output),
        lambda x, ids, counts, dy: moments(x, ids, counts, 2 * dy),
    )
    yield Peer(
        "index_add_ + index_select, counts ready",
        "*segment_std_backward",
        lambda t: (t.input, t.segment_ids, t.counts, t.d_output, t.output),
        lambda x, ids, counts, dy, y: moments(x, ids, counts, over(dy, y)),
    )
