"""Every path of the kernels that merge what ranks have, and of those that only ranks use; the cases of :mod:`watched_cases`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loss_cases
import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.distributed import InProcessCommunicator

CASES: dict[str, Callable[[Kind, pytest.MonkeyPatch], None]] = {}
SEED = 1


def ranks(name: str, work: Callable[[InProcessCommunicator], Any], right: Callable[[], Any], size: int = 3, axis: int = 0) -> None:
    """The results of ranks, which are threads; one after another along an axis they are what one process gives."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        if not kind.emulated:
            pytest.skip("ranks are threads, with arrays in host memory")
        wanted = right()
        with kind.schedule(SEED):
            made = InProcessCommunicator.run(size, work)
        for each in made:
            if isinstance(each, BaseException):
                raise each
        np.testing.assert_allclose(np.concatenate(made, axis), wanted, rtol=1e-5, atol=1e-6)

    CASES[f"ranks: {name}"] = case


def _shares(name: str, rows: int, classes: int, **options: Any) -> None:
    """The gradients of the weight, of which each rank has a part; the second of three has no classes."""
    x, w, target = loss_cases.problem(rows, 3, classes)
    ends = [0, classes // 2 + 1, classes // 2 + 1, classes]

    def work(comm: InProcessCommunicator) -> Any:
        own = w[ends[comm.rank] : ends[comm.rank + 1]].copy()
        return distributed.fused_linear_cross_entropy(x, own, target, group=comm, grad_weight=True, chunk=5, **options).grad_weight

    ranks(name, work, lambda: nb.fused_linear_cross_entropy(x, w, target, grad_weight=True, **options).grad_weight)


def _parts(name: str, op: str, shape: tuple[int, int], axis: int, joined: int, **options: Any) -> None:
    """An op along an axis of which ranks have parts; ``joined``: the axis along which results follow one another, −1 where all have the same."""
    x = np.random.default_rng(SEED).uniform(0.5, 1.5, shape).astype(np.float32)
    ends = [0, 0, shape[axis] // 3, shape[axis]]

    def work(comm: InProcessCommunicator) -> Any:
        own = np.ascontiguousarray(x[(slice(None),) * axis + (slice(ends[comm.rank], ends[comm.rank + 1]),)])
        return getattr(distributed, op)(own, axis, group=comm, **options)

    copies = 3 if joined < 0 else 1
    ranks(name, work, lambda: np.concatenate([getattr(nb, op)(x, axis, **options)] * copies), axis=max(joined, 0))


def _slopes(name: str, op: str, shape: tuple[int, int], axis: int) -> None:
    """The gradient of a reduction along an axis of which the first of three ranks has nothing; among the elements are zeros."""
    x = np.random.default_rng(SEED).integers(0, 9, shape).astype(np.float32)
    ends = [0, 0, shape[axis] // 3, shape[axis]]

    def given() -> tuple[Any, Any]:
        y = getattr(nb, op.removesuffix("_backward"))(x, axis)
        return np.ones_like(y), y

    def work(comm: InProcessCommunicator) -> Any:
        dy, y = given()
        own = np.ascontiguousarray(x[(slice(None),) * axis + (slice(ends[comm.rank], ends[comm.rank + 1]),)])
        return getattr(distributed, op)(dy, own, y, axis=axis, group=comm)

    def right() -> Any:
        dy, y = given()
        return getattr(nb, op)(dy, x, y, axis=axis)

    ranks(name, work, right, axis=axis)


def _counted() -> None:
    x, w, target = loss_cases.problem(9, 3, 40)

    def work(comm: InProcessCommunicator) -> Any:
        own = slice(3 * comm.rank, 3 * comm.rank + 3)
        return distributed.fused_linear_cross_entropy(x[own].copy(), w, target[own].copy(), data_group=comm, grad_input=True).grad_input

    ranks("counted losses", work, lambda: nb.fused_linear_cross_entropy(x, w, target, grad_input=True).grad_input)


def _segments(name: str, op: str, indexed: bool = False, **options: Any) -> None:
    """An op of segments of whose rows the second of three ranks has none; ``indexed``: ranks give indices of theirs."""
    rng = np.random.default_rng(SEED)
    x, ids = rng.uniform(-1.5, -0.5, (20, 3)).astype(np.float32), rng.integers(-1, 8, 20)  # below 0, which segments without rows have
    ids = ids if op.startswith("unsorted") else np.sort(ids)

    def work(comm: InProcessCommunicator) -> Any:
        own = slice(0, 5) if comm.rank == 0 else slice(5, 20 if comm.rank == 2 else 5)
        mine = nb.SegmentIndex(ids[own].copy(), 7) if indexed else ids[own].copy()
        return getattr(distributed, op)(x[own].copy(), mine, 7, group=comm, **options)

    ranks(name, work, lambda: getattr(nb, op)(x, ids, 7))


_shares("losses", 11, 70, label_smoothing=0.1, return_accuracy=True)
_shares("losses of odd rows", 6, 37, softcap=2.0, lse_square_scale=0.03)
_shares(
    "losses and entropies", 9, 70, label_smoothing=0.1, softcap=1.5, reduction="none", dy_entropy=np.linspace(-1, 1, 9, dtype=np.float32)
)  # fmt: skip
_counted()
_segments("segments", "unsorted_segment_max", result="sharded")
_segments("segments in order", "segment_var", result="sharded")
_segments("segments of indices", "unsorted_segment_argmax", indexed=True, result="sharded")
_segments("positions", "segment_argmax", result="sharded")
_segments("rows of segments", "unsorted_segment_log_softmax")
_segments("rows of segments in order", "segment_log_softmax")
_parts("variances", "reduce_var", (3, 20), 1, -1)
_slopes("back to variances", "reduce_var_backward", (3, 20), 1)
_slopes("back to products", "reduce_prod_backward", (20, 3), 0)
_parts("scanned rows", "cumsum", (3, 40), 1, 1)
_parts("scanned long rows", "cumsum", (1, 9000), 1, 1)
_parts("scanned columns", "cummax", (40, 3), 0, 0)
_parts("scanned long columns", "logcumsumexp", (4100, 2), 0, 0, reverse=True)
