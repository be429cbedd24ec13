"""Peers of JAX and CuPy, and a plain kernel."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from . import rescan
from .case import Case, nbytes
from .peer import INDEXED, Given, Peer, along, always, both, calm, extreme_given, indexed, native, no_crowded_halves, packed
from .reduce_truths import axes_of


def jax_peers(jax: Any) -> Iterator[Peer]:
    for peer in (*_jax_ordered(jax, "", True), *_jax_ordered(jax, "unsorted_", False), *_jax_indexed(jax)):
        yield replace(peer, fits=both(peer.fits, no_crowded_halves)) if "segment_sum" in peer.name else peer
    yield Peer("sum", "row_sum", lambda t: (t.x,), lambda x: jax.numpy.sum(x, axis=1))
    yield from _jax_reductions(jax)
    yield from _jax_scans(jax)
    yield Peer("argsort", "SegmentIndex", lambda t: (t.segment_ids,), jax.numpy.argsort)


def _jax_reductions(jax: Any) -> Iterator[Peer]:
    jnp = jax.numpy
    functions = {
        "sum": jnp.sum, "mean": jnp.mean, "max": jnp.max, "min": jnp.min, "prod": jnp.prod, "logsumexp": jax.nn.logsumexp,
        "norm2": lambda x, axis, keepdims: jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=keepdims)),
        "var": lambda x, axis, keepdims: jnp.var(x, axis=axis, keepdims=keepdims, ddof=1),
        "std": lambda x, axis, keepdims: jnp.std(x, axis=axis, keepdims=keepdims, ddof=1),
    }  # fmt: skip

    def position(which: Callable[..., Any]) -> Callable[..., Any]:
        """The element's position in C order over the axes."""
        return lambda x, axis, keepdims: which(jnp.moveaxis(x, axis, range(-len(axis), 0)).reshape(*_kept(x, axis), -1), axis=-1)

    others = {"argmax": position(jnp.argmax), "argmin": position(jnp.argmin), "any": jnp.any, "all": jnp.all, "count_nonzero": jnp.count_nonzero}

    def fold(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: function(x, axis=axes_of(x, y), keepdims=True).reshape(y.shape)

    for kind, function in (functions | others).items():
        yield Peer(kind, f"reduce_{kind}", lambda t: (t.x, t.y), fold(function), packed)
    for kind, function in functions.items():
        run = fold(function)
        forward = jax.jit(lambda x, dy, run=run: jax.vjp(lambda x: run(x, dy), x)[1])
        yield Peer("vjp", f"reduce_{kind}_backward", _pulled(forward), lambda pull, dy: pull(dy)[0], packed)


def _kept(x: Any, axes: tuple[int, ...]) -> list[int]:
    """The extents of the other axes."""
    return [extent for axis, extent in enumerate(x.shape) if axis not in axes]


def _pulled(forward: Callable[..., Any]) -> Callable[[Given], tuple[Any, ...]]:
    """The pullback by ``vjp``, whose forward pass ends before the clock starts, and dy."""
    return lambda t: (forward(t.x if "x" in t else t.dx, t.dy), t.dy)


def _jax_scans(jax: Any) -> Iterator[Peer]:
    """Scans and their gradients by ``vjp``, whose forward pass ends before the clock starts."""
    names = {kind: kind for kind in ("cumsum", "cumprod", "cummax", "cummin")} | {"logcumsumexp": "cumlogsumexp"}
    for (kind, name), axis, reverse in itertools.product(names.items(), range(4), (False, True)):
        scan = functools.partial(getattr(jax.lax, name), axis=axis, reverse=reverse)
        forward = jax.jit(lambda x, dy, scan=scan: jax.vjp(scan, x)[1])
        yield Peer(name, kind, lambda t: (t.x.astype("int32") if t.x.dtype == bool else t.x,), scan, along(axis, reverse))
        yield Peer("vjp", f"{kind}_backward", _pulled(forward), lambda pull, dy: pull(dy)[0], along(axis, reverse))


def _jax_ordered(jax: Any, prefix: str, ordered: bool) -> Iterator[Peer]:
    """Peers for sorted ids, or for ids in any order. JAX needs the number of segments when it compiles, so it is the length of an array."""
    jnp = jax.numpy

    def fold(kind: str) -> Callable[..., Any]:
        function = getattr(jax.ops, f"segment_{kind}")
        return lambda y, x, ids: function(x, ids, len(y), indices_are_sorted=ordered)

    def take(dy: Any, ids: Any) -> Any:
        return jnp.take(dy, ids, axis=0, mode="clip", indices_are_sorted=ordered)

    def mean(y: Any, x: Any, ids: Any) -> Any:
        counts = jnp.maximum(fold("sum")(y, jnp.ones_like(ids), ids), 1)
        return fold("sum")(y, x, ids) / counts.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1))

    def deviations(y: Any, x: Any, ids: Any, counts: Any) -> Any:
        return x - take(fold("sum")(y, x, ids) / counts, ids)

    def over(dy: Any, y: Any) -> Any:
        return jnp.where(y == 0, 0, dy / y)

    def moments(dy: Any, x: Any, ids: Any, counts: Any) -> Any:
        return deviations(dy, x, ids, counts) * take(dy / jnp.maximum(counts - 1, 1), ids)

    def variance(y: Any, x: Any, ids: Any, counts: Any) -> Any:
        apart = deviations(y, x, ids, counts)
        return fold("sum")(y, apart * apart, ids) / jnp.maximum(counts - 1, 1)

    def first(kind: str) -> Callable[..., Any]:
        def run(y: Any, x: Any, ids: Any) -> Any:
            best = x == take(fold(kind)(y, x, ids), ids)
            rows = jnp.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1))
            return fold("min")(y, jnp.where(best, rows, len(x)), ids)

        return run

    def shifted(y: Any, x: Any, ids: Any) -> tuple[Any, Any, Any]:
        top = fold("max")(y, x, ids)
        powers = jnp.exp(x - take(top, ids))
        return top, powers, fold("sum")(y, powers, ids)

    def logsumexp(y: Any, x: Any, ids: Any) -> Any:
        top, _, total = shifted(y, x, ids)
        return top + jnp.log(total)

    def softmax(y: Any, x: Any, ids: Any) -> Any:
        _, powers, total = shifted(y, x, ids)
        return powers / take(total, ids)

    def log_softmax(y: Any, x: Any, ids: Any) -> Any:
        return x - take(logsumexp(y, x, ids), ids)

    def log_softmax_gradient(lengths: Any, dy: Any, y: Any, ids: Any) -> Any:
        return dy - jnp.exp(y) * take(fold("sum")(lengths, dy, ids), ids)

    def softmax_gradient(lengths: Any, dy: Any, y: Any, ids: Any) -> Any:
        return y * (dy - take(fold("sum")(lengths, y * dy, ids), ids))

    op, ready = f"{prefix}segment_", ", counts ready"
    for kind in ("sum", "max", "min", "prod"):
        yield Peer(f"segment_{kind}", op + kind, lambda t: (t.output, t.input, t.segment_ids), fold(kind), calm if kind == "prod" else always)
    yield Peer("segment_sum", f"{op}norm2", lambda t: (t.output, t.input, t.segment_ids), lambda y, x, ids: jnp.sqrt(fold("sum")(y, x * x, ids)))
    counted: Callable[[Given], tuple[Any, ...]] = lambda t: (t.output, t.input, t.segment_ids, t.counts)  # noqa: E731
    yield Peer(f"segment_sum{ready}", f"{op}mean", counted, lambda y, x, ids, counts: fold("sum")(y, x, ids) / counts)
    yield Peer("segment_sum of rows and of ones", f"{op}mean", lambda t: (t.output, t.input, t.segment_ids), mean)
    yield Peer(f"segment_sum twice{ready}", f"{op}var", counted, variance)
    yield Peer(f"segment_sum twice{ready}", f"{op}std", counted, lambda *given: jnp.sqrt(variance(*given)))
    yield Peer("segment_max + segment_sum", f"{op}logsumexp", lambda t: (t.output, t.input, t.segment_ids), logsumexp)
    yield Peer("segment_max + segment_sum", f"{op}softmax", lambda t: (t.lengths, t.input, t.segment_ids), softmax)
    yield Peer("segment_max + segment_sum", f"{op}log_softmax", lambda t: (t.lengths, t.input, t.segment_ids), log_softmax)
    yield Peer("take", f"{op}sum_backward", lambda t: (t.d_output, t.segment_ids), take)
    yield Peer(f"take{ready}", f"{op}mean_backward", lambda t: (t.d_output, t.segment_ids, t.counts), lambda dy, ids, counts: take(dy / counts, ids))
    for kind in ("max", "min"):
        yield Peer(
            "take + where, output ready",
            f"{op}{kind}_backward",
            extreme_given(kind),
            lambda dy, x, ids, y: jnp.where(x == take(y, ids), take(dy, ids), 0),
        )
    kept: Callable[[Given], tuple[Any, ...]] = lambda t: (t.d_output, t.input, t.output, t.segment_ids)  # noqa: E731
    yield Peer("take", f"{op}prod_backward", kept, lambda dy, x, y, ids: take(dy * y, ids) / x)
    yield Peer("take + exp", f"{op}logsumexp_backward", kept, lambda dy, x, y, ids: take(dy, ids) * jnp.exp(x - take(y, ids)))
    yield Peer("take", f"{op}norm2_backward", kept, lambda dy, x, y, ids: take(over(dy, y), ids) * x)
    spread: Callable[[Given], tuple[Any, ...]] = lambda t: (t.d_output, t.input, t.segment_ids, t.counts)  # noqa: E731
    yield Peer(f"segment_sum + take{ready}", f"{op}var_backward", spread, lambda dy, *given: moments(2 * dy, *given))
    divided: Callable[[Given], tuple[Any, ...]] = lambda t: (t.output, *spread(t))  # noqa: E731
    yield Peer(f"segment_sum + take{ready}", f"{op}std_backward", divided, lambda y, dy, *given: moments(over(dy, y), *given))
    for kind, name in (("max", "argmax"), ("min", "argmin")):
        yield Peer(f"segment_{kind} + segment_min", op + name, lambda t: (t.lengths, t.input, t.segment_ids), first(kind))
    saved: Callable[[Given], tuple[Any, ...]] = lambda t: (t.lengths, t.d_output, t.output, t.segment_ids)  # noqa: E731
    yield Peer("segment_sum", f"{op}softmax_backward", saved, softmax_gradient)
    yield Peer("segment_sum", f"{op}log_softmax_backward", saved, log_softmax_gradient)


def _jax_indexed(jax: Any) -> Iterator[Peer]:
    def gather_and_fold(kind: str) -> Callable[..., Any]:
        function = getattr(jax.ops, f"segment_{kind}")
        return lambda y, x, order, ids: function(jax.numpy.take(x, order, axis=0, mode="clip"), ids, len(y), indices_are_sorted=True)

    for kind in INDEXED:
        name = f"take + segment_{kind}, order ready"
        given: Callable[[Given], tuple[Any, ...]] = lambda t: (t.output, t.input, t.permutation, t.sorted_ids)  # noqa: E731
        yield Peer(name, f"unsorted_segment_{kind}", given, gather_and_fold(kind), indexed)


def cupy_peers(xp: Any) -> Iterator[Peer]:
    """``add.at`` is what ``cupyx.scatter_add`` calls, and NumPy has it too."""

    def scatter(ufunc: str, start: float) -> Callable[..., Any]:
        def run(y: Any, ids: Any, x: Any) -> Any:
            y.fill(start)
            getattr(xp, ufunc).at(y, ids, x)
            return y

        return run

    add = scatter("add", 0)

    def compared(case: Case) -> bool:
        """CuPy rounds float64 to float32 before it compares."""
        return native(case) and case.element != "f64"

    for kind, ufunc, start, can in (
        ("sum", "add", 0.0, native), ("max", "maximum", -xp.inf, compared), ("min", "minimum", xp.inf, compared)
    ):  # fmt: skip
        name = "scatter_add" if kind == "sum" else f"scatter_{kind}"
        yield Peer(name, f"*segment_{kind}", lambda t: (t.output, t.segment_ids, t.input), scatter(ufunc, start), can)
    yield Peer(
        "scatter_add, counts ready",
        "*segment_mean",
        lambda t: (t.output, t.segment_ids, t.input, t.counts),
        lambda y, ids, x, counts: xp.divide(add(y, ids, x), counts, out=y),
        native,
    )
    yield Peer("take", "*segment_sum_backward", lambda t: (t.d_output, t.segment_ids, t.d_input), lambda dy, ids, dx: xp.take(dy, ids, 0, dx))
    yield Peer(
        "take, counts ready",
        "*segment_mean_backward",
        lambda t: (t.d_output, t.segment_ids, t.counts, t.d_input),
        lambda dy, ids, counts, dx: xp.take(dy / counts, ids, 0, dx),
    )
    yield Peer("sum", "row_sum", lambda t: (t.x, t.y), lambda x, y: x.sum(axis=1, out=y))
    yield Peer("argsort", "SegmentIndex", lambda t: (t.segment_ids,), lambda ids: xp.argsort(ids, kind="stable"))
    yield from _cupy_scans(xp)


def _cupy_scans(xp: Any) -> Iterator[Peer]:
    def fits(axis: int) -> Callable[[Case], bool]:
        return lambda case: along(axis)(case) and native(case)

    for kind, axis in itertools.product(("cumsum", "cumprod"), range(4)):
        scan = functools.partial(getattr(xp, kind), axis=axis)
        yield Peer(kind, kind, lambda t: (t.x, t.y), lambda x, y, scan=scan: scan(x, out=y), fits(axis))


def kernel_peers(xp: Any) -> Iterator[Peer]:
    """``benchmarks/rescan.py``, whose work grows with the square of the rows."""
    given: Callable[[Given], tuple[Any, ...]] = lambda t: (t.d_output, t.input, t.segment_ids, t.d_input)  # noqa: E731
    yield Peer("rescan", "unsorted_segment_max_backward", given, rescan.launcher(xp), lambda case: nbytes(case) < 1e8)
