"""What others offer for the same ops: rows of functions for each framework.

A peer's ``given`` picks its arguments from the operands, shared with the framework without a copy where it can. What it derives from the ids (counts,
lengths, 64-bit ids) is ready before the clock starts, which no op of the package asks for. ``run`` does the work on whatever ``given`` returned.
JAX's stream is out of reach of events, so its calls are timed on the host's clock, several at a time.
"""

from __future__ import annotations

import fnmatch
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .timing import Events, Timing, WallClock

NAMES = ("torch", "compile", "jax", "cupy")
#: torch.compile takes seconds a case
DEFAULT = ("torch", "jax", "cupy")


class Given:
    """The operands of a case as arrays of a framework, and what peers derive from them."""

    def __init__(self, xp: Any, operands: Mapping[str, Any], share: Callable[[Any], Any]) -> None:
        self._xp, self._operands, self._share = xp, operands, share

    def __getattr__(self, name: str) -> Any:
        return self._share(self._operands[name])

    def _lengths(self) -> Any:
        segments = len(self._operands["output" if "output" in self._operands else "d_output"])
        ids = self._operands["segment_ids" if "segment_ids" in self._operands else "sorted_ids"]
        return self._xp.bincount(ids, minlength=segments).astype(self._xp.int64)

    @property
    def lengths(self) -> Any:
        """Rows of each segment, 64-bit."""
        return self._share(self._lengths())

    @property
    def counts(self) -> Any:
        """Rows of each segment, at least 1, of the values' type and laid out to divide them."""
        values = next(iter(self._operands.values()))
        return self._share(self._xp.maximum(self._lengths(), 1).astype(values.dtype).reshape(-1, *[1] * (values.ndim - 1)))

    @property
    def long_ids(self) -> Any:
        return self._share(self._operands["segment_ids"].astype(self._xp.int64))


@dataclass(frozen=True)
class Peer:
    """One way to compute an op; ``ops`` is a pattern of the shell."""

    name: str
    ops: str
    given: Callable[[Given], tuple[Any, ...]]
    run: Callable[..., Any]


def _torch(torch: Any) -> Iterator[Peer]:
    def wide(t: Given) -> Any:
        """The ids repeated along the columns, in no memory of their own."""
        ids, x = t.long_ids, t.input
        return ids.reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)

    def segment_reduce(kind: str) -> Callable[..., Any]:
        return lambda x, lengths: torch.segment_reduce(x, kind, lengths=lengths, axis=0, unsafe=True, initial=0)

    def sort_and_reduce(x: Any, ids: Any, lengths: Any) -> Any:
        order = torch.sort(ids, stable=True)[1]
        return torch.segment_reduce(x.index_select(0, order), "sum", lengths=lengths, axis=0, unsafe=True, initial=0)

    add = "index_add_"
    yield Peer(add, "*segment_sum", lambda t: (t.output, t.segment_ids, t.input), lambda y, ids, x: y.zero_().index_add_(0, ids, x))
    scatter = "scatter_reduce_"
    yield Peer(scatter, "*segment_sum", lambda t: (t.output, wide(t), t.input), lambda y, ids, x: y.zero_().scatter_reduce_(0, ids, x, "sum"))
    yield Peer("segment_reduce, lengths ready", "segment_sum", lambda t: (t.input, t.lengths), segment_reduce("sum"))
    yield Peer("sort + segment_reduce, lengths ready", "unsorted_segment_sum", lambda t: (t.input, t.segment_ids, t.lengths), sort_and_reduce)
    yield Peer(
        f"{add}, counts ready",
        "*segment_mean",
        lambda t: (t.output, t.segment_ids, t.input, t.counts),
        lambda y, ids, x, counts: y.zero_().index_add_(0, ids, x).div_(counts),
    )
    yield Peer(
        scatter,
        "*segment_mean",
        lambda t: (t.output, wide(t), t.input),
        lambda y, ids, x: y.zero_().scatter_reduce_(0, ids, x, "mean", include_self=False),
    )
    yield Peer("segment_reduce, lengths ready", "segment_mean", lambda t: (t.input, t.lengths), segment_reduce("mean"))
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
    yield Peer(
        "index_select + segment_reduce, lengths ready",
        "fold_permuted",
        lambda t: (t.input, t.permutation, t.lengths),
        lambda x, order, lengths: segment_reduce("sum")(x.index_select(0, order), lengths),
    )
    yield Peer("sum", "row_sum", lambda t: (t.x, t.y), lambda x, y: torch.sum(x, 1, out=y))


def _jax(jax: Any) -> Iterator[Peer]:
    jnp, segment_sum = jax.numpy, jax.ops.segment_sum
    for order in ("", "unsorted_"):

        def total(y: Any, x: Any, ids: Any, sorted_: bool = not order) -> Any:
            return segment_sum(x, ids, y.shape[0], indices_are_sorted=sorted_)

        def mean(y: Any, x: Any, ids: Any, counts: Any, total: Callable[..., Any] = total) -> Any:
            return total(y, x, ids) / counts

        def take(dy: Any, ids: Any, sorted_: bool = not order) -> Any:
            return jnp.take(dy, ids, axis=0, mode="clip", indices_are_sorted=sorted_)

        def share(dy: Any, ids: Any, counts: Any, take: Callable[..., Any] = take) -> Any:
            return take(dy / counts, ids)

        yield Peer("segment_sum", f"{order}segment_sum", lambda t: (t.output, t.input, t.segment_ids), total)
        yield Peer("segment_sum, counts ready", f"{order}segment_mean", lambda t: (t.output, t.input, t.segment_ids, t.counts), mean)
        yield Peer("take", f"{order}segment_sum_backward", lambda t: (t.d_output, t.segment_ids), take)
        yield Peer("take, counts ready", f"{order}segment_mean_backward", lambda t: (t.d_output, t.segment_ids, t.counts), share)
    yield Peer(
        "take + segment_sum",
        "fold_permuted",
        lambda t: (t.output, t.input, t.permutation, t.sorted_ids),
        lambda y, x, order, ids: segment_sum(jnp.take(x, order, axis=0, mode="clip"), ids, y.shape[0], indices_are_sorted=True),
    )
    yield Peer("sum", "row_sum", lambda t: (t.x,), lambda x: jnp.sum(x, axis=1))


def _cupy(xp: Any) -> Iterator[Peer]:
    """``add.at`` is what ``cupyx.scatter_add`` calls, and NumPy has it too."""

    def add(y: Any, ids: Any, x: Any) -> Any:
        y.fill(0)
        xp.add.at(y, ids, x)
        return y

    def mean(y: Any, ids: Any, x: Any, counts: Any) -> Any:
        return xp.divide(add(y, ids, x), counts, out=y)

    name = "scatter_add"
    yield Peer(name, "*segment_sum", lambda t: (t.output, t.segment_ids, t.input), add)
    yield Peer(f"{name}, counts ready", "*segment_mean", lambda t: (t.output, t.segment_ids, t.input, t.counts), mean)
    yield Peer("take", "*segment_sum_backward", lambda t: (t.d_output, t.segment_ids, t.d_input), lambda dy, ids, dx: xp.take(dy, ids, 0, dx))
    yield Peer(
        "take, counts ready",
        "*segment_mean_backward",
        lambda t: (t.d_output, t.segment_ids, t.counts, t.d_input),
        lambda dy, ids, counts, dx: xp.take(dy / counts, ids, 0, dx),
    )
    yield Peer(
        f"take + {name}",
        "fold_permuted",
        lambda t: (t.output, t.sorted_ids, t.input, t.permutation),
        lambda y, ids, x, order: add(y, ids, xp.take(x, order, 0)),
    )
    yield Peer("sum", "row_sum", lambda t: (t.x, t.y), lambda x, y: x.sum(axis=1, out=y))


@dataclass(frozen=True)
class Framework:
    """A framework at hand: its peers, and how arrays go to it, calls are made ready, and time is taken."""

    name: str
    peers: tuple[Peer, ...]
    share: Callable[[Any], Any]
    ready: Callable[[Callable[..., Any]], Callable[..., Any]]
    wait: Callable[[Any], Any] | None = None
    note: str = ""

    def of(self, op: str) -> list[Peer]:
        return [peer for peer in self.peers if fnmatch.fnmatchcase(op, peer.ops)]

    def bind(self, peer: Peer, xp: Any, sets: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        """The peer's call for each operand set; compiled once, if at all."""
        run = self.ready(peer.run)
        given = [peer.given(Given(xp, operands, self.share)) for operands in sets]
        return [lambda arguments=arguments: run(*arguments) for arguments in given]  # type: ignore[misc]

    def time(self, events: Events, calls: list[Callable[[], Any]], repeats: int) -> Timing:
        return WallClock(self.wait)(calls, repeats) if self.wait else events(calls, repeats)


def load(name: str, xp: Any) -> Framework:
    """A framework by name; raises what its import raises."""
    if name == "cupy":
        return Framework(name, tuple(_cupy(xp)), lambda array: array, lambda run: run)
    if name == "jax":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        jax: Any = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        return Framework(name, tuple(_jax(jax)), jax.dlpack.from_dlpack, jax.jit, lambda result: result.block_until_ready(), "host clock")
    torch: Any = importlib.import_module("torch")
    ready = torch.compile if name == "compile" else lambda run: run
    return Framework(name, tuple(_torch(torch)), torch.from_dlpack, ready)


def release(xp: Any) -> None:
    """Gives memory of what has gone out of use back to the device, whoever pools it, and forgets compiled functions."""
    gc.collect()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch"].compiler.reset()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
    if xp.__name__ == "cupy":
        xp.get_default_memory_pool().free_all_blocks()
