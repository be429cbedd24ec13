"""Which calls work in the memory that a stream keeps, and what they queue there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples import name_of

import numba_baracuda as nb
from numba_baracuda.arrays import allocation, arrays, stream_scratch
from numba_baracuda.core.op import FRESH_BYTES, LINE_BYTES, Clear, Launch, Op, Recipe, Target, contiguous
from numba_baracuda.plans import first, frames
from numba_baracuda.plans.bound import BoundCall
from numba_baracuda.runtime import driver, jit

CARD = Target((9, 0), 132)
BASE, POOL = 7 << 20, 3 << 20
SHAPE = (20_000, 64)


class Card:
    """A device whose kernels nobody runs: what was queued, by the kind of step, with the addresses that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queued: list[tuple[str, int, list[int]]] = []
        self.dropped, self.taken = list[tuple[int, int]](), 0
        self.failing: BaseException | None = None
        monkeypatch.setattr(first, "prepare", lambda steps, target, device: None)
        monkeypatch.setattr(frames.Frame, "_parameters", lambda frame, spec: jit.resolve(spec).parameters)
        monkeypatch.setattr(frames.Frame, "_act", lambda frame, step, sizes: (self._act(step), tuple))
        monkeypatch.setattr(frames.Frame, "ready", lambda frame, k, sizes, pointers: frame.acts[k][0])
        self.memory: stream_scratch.Memory | None = stream_scratch.Memory(BASE)
        self.lock = self.memory.lock
        monkeypatch.setattr(stream_scratch, "of", lambda device, stream: self.memory)
        monkeypatch.setattr(stream_scratch, "drop", lambda *what: self.dropped.append(what))
        monkeypatch.setattr(allocation, "scratch", self._scratch)

    def _act(self, step: Any) -> Callable[..., None]:
        def act(stream: int, pointers: Sequence[int] = (), *sizes: Any) -> None:
            if self.failing:
                raise self.failing
            self.queued.append((type(step).__name__, stream, list(pointers)))

        return act

    def _scratch(self, like: Any, nbytes: int, stream: int) -> Any:
        self.taken += nbytes
        return SimpleNamespace(ptr=POOL)

    def bound(self, op: Op, recipe: Recipe, *given: np.ndarray) -> tuple[frames.Bound, list[Any]]:
        views = [arrays.read(array, (op.name, operand.name, "")) for operand, array in zip(op.operands, given, strict=True)]
        return frames.bind(op, recipe, views, CARD, 0), views


@pytest.fixture
def card(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


def small_sum(card: Card) -> tuple[frames.Bound, list[Any], list[int]]:
    op, descriptor = nb.OPS["reduce_sum"], nb.ReduceDescriptor("sum", SHAPE, 0)
    recipe = op.variants[0].recipe(op, descriptor, {"x": contiguous(SHAPE), "y": contiguous((1, 64))}, CARD)
    bound, views = card.bound(op, recipe, np.zeros(SHAPE, np.float32), np.zeros((1, 64), np.float32))
    return bound, views, [view.ptr for view in views]


def test_a_call_of_one_launch_works_in_the_memory_of_its_stream(card: Card) -> None:
    bound, views, pointers = small_sum(card)
    bound.run(9, [*pointers], views, None)
    arrivals, partials = BASE, BASE + stream_scratch.TAKEN_BYTES + LINE_BYTES
    assert card.queued == [("Kernel", 9, [*pointers, arrivals, partials, 0])] and card.taken == 0 and not card.dropped
    assert not card.lock.locked()


def test_while_another_thread_queues_launches_a_call_allocates(card: Card) -> None:
    bound, views, pointers = small_sum(card)
    with card.lock:
        bound.run(9, [*pointers], views, None)
    assert [kind for kind, *_ in card.queued] == ["Clear", "Kernel"] and card.taken == bound.workspace


def test_without_such_memory_the_counters_are_cleared(card: Card) -> None:
    card.memory = None
    bound, views, pointers = small_sum(card)
    bound.run(9, [*pointers], views, None)
    assert card.queued == [(kind, 9, [*pointers, POOL, POOL + LINE_BYTES, 0]) for kind in ("Clear", "Kernel")]
    assert card.taken == bound.workspace


def test_a_given_workspace_is_used_and_cleared(card: Card) -> None:
    bound, views, pointers = small_sum(card)
    bound.run(9, [*pointers], views, SimpleNamespace(ptr=5 << 20))
    assert card.queued == [(kind, 9, [*pointers, 5 << 20, (5 << 20) + LINE_BYTES, 0]) for kind in ("Clear", "Kernel")] and card.taken == 0


def test_a_bound_call_has_scratch_of_its_own(card: Card) -> None:
    """It may be captured later."""
    bound, views, _ = small_sum(card)
    BoundCall(bound, views, 9, None)()
    assert [kind for kind, *_ in card.queued] == ["Clear", "Kernel"] and card.taken == bound.workspace


def test_a_call_works_in_the_memory_of_its_own_stream(card: Card) -> None:
    """Also where the call before it, of the same sizes, was on another."""
    bound, views, pointers = small_sum(card)
    for base in (BASE, 2 * BASE, 2 * BASE, BASE):
        card.memory = stream_scratch.Memory(base)
        bound.run(9, [*pointers], views, None)
        assert card.queued.pop() == ("Kernel", 9, [*pointers, base, base + stream_scratch.TAKEN_BYTES + LINE_BYTES, 0]) and not card.queued


def test_memory_whose_zeros_could_not_be_renewed_is_dropped(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    op, x = nb.OPS["cumsum"], np.zeros((1, 1 << 20), np.float32)
    layouts = {"x": contiguous(x.shape), "y": contiguous(x.shape)}
    recipe = op.variants[0].recipe(op, nb.ScanDescriptor("cumsum", x.shape, 1), layouts, CARD)
    bound, views = card.bound(op, recipe, x, np.zeros_like(x))
    pointers = [view.ptr for view in views]
    assert bound.frame.fresh and card.memory is not None
    lines = -(-bound.workspace // stream_scratch.LINE_BYTES)
    for k in range(2):
        bound.run(9, [*pointers], views, None)
        fresh = BASE + stream_scratch.ZEROED_BYTES + k * lines * stream_scratch.LINE_BYTES
        assert card.queued.pop() == ("Kernel", 9, [*pointers, fresh, 0]) and not card.queued

    def fail(*what: Any) -> None:
        raise nb.KernelLaunchError("cuMemsetD8Async: CUDA_ERROR_INVALID_VALUE (1)", 1)

    monkeypatch.setattr(driver, "memset_async", fail)
    card.memory.fresh._used = stream_scratch.ALL_FRESH_BYTES
    with pytest.raises(nb.KernelLaunchError):
        bound.run(9, [*pointers], views, None)
    assert card.dropped == [(0, 9)] and not card.lock.locked() and not card.queued


@pytest.mark.parametrize("error", [nb.KernelLaunchError("fold_columns: failed", 1), KeyboardInterrupt()], ids=["launch", "interrupt"])
def test_memory_of_a_failed_launch_is_dropped(card: Card, error: BaseException) -> None:
    bound, views, pointers = small_sum(card)
    card.failing = error
    with pytest.raises(type(error)):
        bound.run(9, [*pointers], views, None)
    assert card.dropped == [(0, 9)] and not card.lock.locked()


@pytest.mark.parametrize("op", [op for op in nb.OPS.values() if op.family in ("reduce", "segment", "scan")], ids=name_of)
def test_slots_that_are_restored_or_fresh_come_first(op: Op) -> None:
    """They are cleared to zeros, by the first steps of all."""
    for descriptor, layouts in op.samples(op):
        for variant in op.variants:
            if variant.refuses(op, descriptor) is None:
                recipe = variant.recipe(op, descriptor, layouts, CARD)
                kept = [step for step in recipe.steps if isinstance(step, Clear) and (step.restored or step.fresh)]
                assert list(recipe.steps[: len(kept)]) == kept and all(step.byte == 0 for step in kept)
                assert len({step.fresh for step in kept}) < 2
                assert [slot.name for slot in recipe.slots[: len(kept)]] == [step.slot for step in kept]
                assert all(slot.nbytes <= FRESH_BYTES for slot in recipe.slots[: len(kept)])


def large_sum(card: Card, rows: int, columns: int) -> tuple[frames.Bound, list[Any]]:
    op, shape = nb.OPS["reduce_sum"], (rows, columns)
    recipe = op.variants[0].recipe(op, nb.ReduceDescriptor("sum", shape, 0), {"x": contiguous(shape), "y": contiguous((1, columns))}, CARD)
    assert sum(isinstance(step, Launch) for step in recipe.steps) == 2
    return card.bound(op, recipe, np.zeros(shape, np.float32), np.zeros((1, columns), np.float32))


def test_several_launches_share_the_memory(card: Card) -> None:
    bound, views = large_sum(card, 300_000, 64)
    bound.run(9, [view.ptr for view in views], views, None)
    assert [(kind, pointers[2]) for kind, _, pointers in card.queued] == [("Kernel", BASE + stream_scratch.TAKEN_BYTES)] * 2 and card.taken == 0


def test_a_large_workspace_is_allocated(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, views = large_sum(card, 300_000, 64)
    monkeypatch.setattr(stream_scratch, "ROOM_BYTES", bound.workspace - 1)
    bound.run(9, [view.ptr for view in views], views, None)
    assert len(card.queued) == 2 and card.taken == bound.workspace


def test_a_call_that_waits_allocates(card: Card) -> None:
    """It would keep the memory from other threads."""
    op, x, ids = nb.OPS["segment_sum"], np.zeros((20_000, 64), np.float32), np.zeros(20_000, np.int32)
    layouts = {"input": contiguous(x.shape), "segment_ids": contiguous(ids.shape), "output": contiguous((10, 64))}
    for check_ids in (False, True):
        descriptor = nb.SegmentDescriptor("segment_sum", 20_000, 64, 10, check_ids=check_ids)
        bound, views = card.bound(op, op.variants[0].recipe(op, descriptor, layouts, CARD), x, ids, np.zeros((10, 64), np.float32))
        bound.run(9, [view.ptr for view in views], views, None)
        assert card.taken == (bound.workspace if check_ids else 0)
