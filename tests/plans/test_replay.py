"""Calls of new sizes: what a trace of one problem makes of others is what a plan for these makes."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from in_threads import failures_of
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda.arrays import allocation
from numba_baracuda.arrays import arrays as views
from numba_baracuda.core.axes import c_strides
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import EMULATED, Op, Target
from numba_baracuda.plans import calls, frames, plan
from numba_baracuda.plans.frames import Bound
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import Passes
from numba_baracuda.segment import index_calls

#: a card with 132 multiprocessors whose kernels nobody runs, and one with few
CARDS = {"large": Target((9, 0), 132, emulated=True), "small": EMULATED}
_places = itertools.cycle(range(1, 8000))


def anywhere(shape: tuple[int, ...], strides: tuple[int, ...], element: str, offset: int = 0) -> np.ndarray:
    """An array without memory, far from all others: strides in elements, and so many elements behind a multiple of 16 bytes."""
    dtype = numpy_dtype(element)

    class Nowhere:
        __array_interface__: ClassVar = {
            "data": ((next(_places) << 50) + offset * dtype.itemsize, False), "shape": shape, "version": 3, "typestr": f"<V{dtype.itemsize}",
            "strides": tuple(step * dtype.itemsize for step in strides),
        }  # fmt: skip

    return np.asarray(Nowhere()).view(dtype)


class Place:
    """How arrays of one argument lie: most often in C order; else with gaps, axes in another order, some backwards, or broadcast."""

    def __init__(self, draw: random.Random, rank: int, output: bool = False) -> None:
        self.order, self.way, self.offset = list(range(rank))[::-1], draw.randrange(12), draw.choice([0, 0, 0, 0, 1, 2])
        if self.way == 0:
            draw.shuffle(self.order)
        self.step, self.gap = draw.choice([2, 3]) if self.way == 1 else 1, draw.choice([1, 4, 8]) if self.way in (2, 3) else 0
        signs = [-1, 1] if self.way == 4 else [0, 1] if self.way == 5 and not output else [1]
        self.signs = [draw.choice(signs) for _ in range(rank)]

    def array(self, shape: tuple[int, ...], element: str) -> np.ndarray:
        steps, step = [0] * len(shape), self.step
        for axis in self.order:
            steps[axis], step = step * self.signs[axis], step * max(shape[axis], 1) + self.gap
        return anywhere(shape, tuple(steps), element, self.offset)


def extent(draw: random.Random, most: float = 6.5) -> int:
    """Any number of digits is as likely as any other; sometimes none are there."""
    return 0 if draw.random() < 0.02 else int(10 ** draw.uniform(0, most))


Call = Callable[[], Any]


def segment_calls(draw: random.Random, op: Op, element: str) -> Callable[[], Call]:
    """Calls of one class: of the sizes of these, and arrays that lie alike."""
    trailing, index, given_out = draw.choice([(), (1,), (16,), (37,), (64,), (5, 8), (128,)]), draw.choice(["i32", "i32", "i64"]), draw.random() < 0.3
    options: dict[str, Any] = {"deterministic": draw.random() < 0.7}
    if "ties" in op.traits["keywords"]:
        options["ties"] = draw.choice(["first", "all"])
    told = "num_segments" in [operand.axes[0] for operand in op.operands[:2]]
    counted = not told and (not op.traits["backward"] or draw.random() < 0.5)
    places = [Place(draw, 1 if operand.index else 1 + len(trailing), operand.output) for operand in op.operands]

    def make() -> Call:
        extents = {"num_inputs": extent(draw), "num_segments": extent(draw)}
        shapes = [(extents[operand.axes[0]], *(() if operand.index else trailing)) for operand in op.operands]
        elements = [index if operand.index else element for operand in op.operands]
        *given, out = (place.array(shape, each) for place, shape, each in zip(places, shapes, elements, strict=True))
        more = {"out": out} if given_out else {}
        return lambda: getattr(nb, op.name)(*given, *([extents["num_segments"]] if counted else []), **options, **more)

    return make


def shape_of(draw: random.Random, rank: int) -> Callable[[], tuple[int, ...]]:
    fixed = [draw.choice([0, 0, 1, 16, 37, 64]) for _ in range(rank)]
    fixed[draw.randrange(rank)] = 0
    return lambda: tuple(each or extent(draw, 6.5 if rank < 2 else 4.5) for each in fixed)


def reduce_calls(draw: random.Random, op: Op, element: str) -> Callable[[], Call]:
    rank = draw.choice([1, 2, 2, 2, 3])
    axis, keepdims, given_out, shape = draw.choice([0, rank - 1, None, (0, rank - 1)]), draw.random() < 0.5, draw.random() < 0.3, shape_of(draw, rank)
    axis = 0 if rank == 1 and isinstance(axis, tuple) else axis
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    small = rank if keepdims else rank - len(axes)
    names = {operand.name: operand for operand in op.operands}
    places = {name: Place(draw, rank if name in ("x", "dx") else small, operand.output) for name, operand in names.items()}

    def make() -> Call:
        whole = shape()
        kept = tuple(1 if k in axes else each for k, each in enumerate(whole) if keepdims or k not in axes)
        result = op.indices[0] if op.indices else element
        arrays = {
            name: places[name].array(whole if name in ("x", "dx") else kept, result if operand.output else element) for name, operand in names.items()
        }
        *given, (_, out) = arrays.items()
        options: dict[str, Any] = {"axis": axis} | ({"out": out} if given_out else {})
        if not op.traits["backward"]:
            options["keepdims"] = keepdims
        elif "x" not in names:
            options["input_shape"] = whole
        return lambda: getattr(nb, op.name)(**dict(given), **options)

    return make


def scan_calls(draw: random.Random, op: Op, element: str) -> Callable[[], Call]:
    rank = draw.choice([1, 2, 2, 3])
    options = {"axis": draw.choice([0, rank - 1]), "reverse": draw.random() < 0.5, "deterministic": draw.random() < 0.7}
    if op.traits["has_indices"] and not op.traits["backward"]:
        options["return_indices"] = draw.random() < 0.5
    shape, places = shape_of(draw, rank), [Place(draw, rank) for operand in op.operands if not operand.output]

    def make() -> Call:
        whole = shape()
        given = [place.array(whole, element) for place in places]
        return lambda: getattr(nb, op.name)(*given, **options)

    return make


CALLS = {"segment": segment_calls, "reduce": reduce_calls, "scan": scan_calls}
OPS = [op for op in nb.OPS.values() if op.family in CALLS]


class Watch:
    """Launches nothing; keeps what was settled, by a plan and by replays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, card: str) -> None:
        self.exact, self.traced, self.bounds = 0, 0, list[Bound]()
        monkeypatch.setattr(plan, "_plans", {})
        monkeypatch.setattr(frames, "bounds", {})
        monkeypatch.setattr(calls, "_classes", {})
        monkeypatch.setattr(plan, "EMULATED", CARDS[card])
        monkeypatch.setattr(calls.Calls, "_workspace", lambda self_, *rest: None)
        monkeypatch.setattr(frames.Bound, "run", lambda bound, *rest: self.bounds.append(bound))
        monkeypatch.setattr(allocation, "empty", lambda like, shape, element, *rest: anywhere(shape, c_strides(shape), element))
        for name, counter in (("_exactly", "exact"), ("_trace", "traced")):
            monkeypatch.setattr(calls.Calls, name, self._counted(getattr(calls.Calls, name), counter))

    def _counted(self, function: Callable[..., Any], counter: str) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            setattr(self, counter, getattr(self, counter) + 1)
            return function(*given)

        return run

    def bound(self, call: Callable[[], Any]) -> Bound:
        call()
        return self.bounds.pop()

    def by_plan(self, call: Callable[[], Any]) -> Bound:
        """What a process that has seen no other call settles."""
        held = calls._classes
        frames.bounds, calls._classes = {}, {}
        try:
            return self.bound(call)
        finally:
            calls._classes = held

    def untraceable(self) -> Iterator[tuple[str, Exception]]:
        for key, each in calls._classes.items():
            if each.untraceable:
                yield key[0].name, each.untraceable


def settled(bound: Bound) -> tuple[Any, ...]:
    """All that a bound says, sizes by their types, too; of new results nobody asks whether they overlap, nor how far operands reach but beside a
    caller's workspace."""
    frame, reach, apart = bound.frame, bound.reach if bound.room else (), () if bound.results else bound.apart
    own = bound.sizes, bound.offsets, bound.counts, bound.workspace, reach, apart, bound.results, bound.room
    return repr(own), bound.recipe, frame.op, frame.elements, frame.held, frame.pairs, frame.naming, frame.steps


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_replays_settle_what_plans_do(emulator: Kind, op: Op, card: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    draw, watch, replayed, calls_made = random.Random(op.name), Watch(monkeypatch, card), 0, 0
    kinds, sizes = (20, 60) if request.config.getoption("--full") else (2, 25)
    for element in op.elements:
        for _ in range(kinds):
            make = CALLS[op.family](draw, op, element)
            for _ in range(sizes):
                call, exact = make(), watch.exact
                calls_made += 1
                try:
                    made = watch.bound(call)
                except nb.BaracudaError as error:
                    with pytest.raises(type(error)) as again:
                        watch.by_plan(call)
                    assert str(again.value) == str(error)
                    continue
                if watch.exact == exact:
                    replayed += 1
                    assert settled(made) == settled(watch.by_plan(call))
    assert not list(watch.untraceable())
    assert replayed > calls_made // 8


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_argmin", "reduce_var", "reduce_std_backward", "reduce_prod_backward"])
def test_replays_of_two_passes(emulator: Kind, name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    with using(Passes, min_bytes=1, min_positions=2, many_positions=4, min_share=1):
        test_replays_settle_what_plans_do(emulator, nb.OPS[name], next(iter(CARDS)), monkeypatch, request)


# ---------------------------------------------------------------- what it costs

WIDE = [("segment_sum", {}), ("unsorted_segment_sum", {}), ("segment_softmax", {}), ("segment_max_backward", {}),
        ("unsorted_segment_mean_backward", {}), ("reduce_sum", {"axis": 0}), ("reduce_var_backward", {"axis": 1}), ("cumsum", {"axis": 0}),
        ("cummax", {"axis": 1, "return_indices": True})]  # fmt: skip


def wide_call(draw: random.Random, name: str, options: dict[str, Any]) -> Call:
    """A call of an op with arrays in C order, of 64 columns."""
    op, extents = nb.OPS[name], {"num_inputs": draw.randrange(20_000, 200_000), "num_segments": draw.randrange(200, 5000)}
    rows = extents["num_inputs"]
    shapes = {"input_shape": (rows, 64), "output_shape": (1, 64) if options.get("axis") == 0 else (rows, 1)}
    given = []
    for operand in op.operands:
        if not operand.output:
            shape = shapes.get(operand.axes[0]) or ((rows,) if operand.index else (extents[operand.axes[0]], 64))
            given.append(anywhere(shape, c_strides(shape), "i32" if operand.index else "f32"))
    if op.family == "segment" and not op.traits["backward"]:
        given.append(extents["num_segments"])
    return lambda: getattr(nb, name)(*given, **options)


def specs() -> set[Any]:
    """The kernels of all programs."""
    made = [program for each in calls._classes.values() for program in each.programs]
    return {step.spec for program in made for step in program.frame.steps if isinstance(step, frames.Kernel)}


@pytest.mark.parametrize(("name", "options"), WIDE, ids=[name for name, _ in WIDE])
def test_after_some_calls_nothing_is_new(emulator: Kind, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    draw, watch = random.Random(0), Watch(monkeypatch, "large")
    for _ in range(600):
        watch.bound(wide_call(draw, name, options))
    known, before = specs(), (watch.exact, watch.traced)
    for _ in range(1000):
        watch.bound(wide_call(draw, name, options))
    assert (watch.exact, watch.traced) == before and specs() == known
    assert watch.exact <= 10 and 1 <= len(known) <= 10


@pytest.mark.parametrize("stem", ["sum", "mean", "logsumexp"])
def test_few_programs_serve_atomics(emulator: Kind, stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of enough rows that blocks look for ids that crowd."""
    draw, watch = random.Random(0), Watch(monkeypatch, "large")
    for _ in range(1000):
        watch.bound(wide_call(draw, f"unsorted_segment_{stem}", {"deterministic": False}))
    assert watch.exact <= 16 and not list(watch.untraceable())
    assert [spec for spec in specs() if spec.kernel == "scatter_rows" and dict(spec.constants)["sampled"]]


def test_programs_that_serve_more_calls_come_first(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, watch = random.Random(0), Watch(monkeypatch, "large")
    for _ in range(600):
        watch.bound(wide_call(draw, "segment_softmax", {}))
    (served,) = [[program.served for program in each.programs] for each in calls._classes.values()]
    assert len(served) > 2 and all(later <= 2 * earlier for earlier, later in itertools.pairwise(served))


def test_memory_stays_as_it_is(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, watch = random.Random(0), Watch(monkeypatch, "large")

    def several(count: int) -> int:
        for _ in range(count):
            watch.bound(wide_call(draw, "segment_sum", {}))
        gc.collect()
        return sys.getallocatedblocks()

    before = several(2000)
    assert several(4000) - before < 10 * 4000


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("step", ["look", "keep", "sort", "expand"])
def test_replays_make_the_indices_that_plans_do(emulator: Kind, step: str, card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, watch = random.Random(step), Watch(monkeypatch, card)
    for element in ("i32", "i64") * 3:
        place, exact, name = Place(draw, 1), watch.exact, "bounds" if step == "expand" else "segment_ids"
        for _ in range(25):
            given, size = views.view(place.array((1 + extent(draw),), element), "SegmentIndex", name), extent(draw)
            call = functools.partial(index_calls.ascend if step == "look" else functools.partial(index_calls.make, step), given, size, None)
            assert settled(watch.bound(call)) == settled(watch.by_plan(call))
        assert watch.exact - exact < 25 + 12  # by_plan counts once a call
    assert watch.traced and not list(watch.untraceable())


# ---------------------------------------------------------------- what it gives


def test_results_of_replays_are_those_of_plans(kind: Kind) -> None:
    """New sizes run the kernels of a class that has been traced, with new arrays and given ones."""
    rng = np.random.default_rng(0)
    for rows, segments in ((90, 11), (93, 14), (101, 9), (120, 20), (97, 17)):
        x, ids = kind.array(rng.integers(-8, 9, (rows, 3)).astype(np.float32)), np.sort(rng.integers(0, segments, rows)).astype(np.int32)
        order, into = rng.permutation(rows), kind.array(np.zeros((segments, 3), np.float32))
        sums = np.zeros((segments, 3), np.float32)
        np.add.at(sums, ids, kind.numpy(x))
        assert (kind.numpy(nb.segment_sum(x, kind.array(ids), segments)) == sums).all()
        assert nb.segment_sum(x, kind.array(ids), segments, out=into) is into and (kind.numpy(into) == sums).all()
        assert (kind.numpy(nb.segment_sum(x, nb.SegmentIndex(kind.array(ids), segments))) == sums).all()
        shuffled = nb.SegmentIndex(kind.array(ids[order]), segments)
        assert (kind.numpy(nb.segment_sum(kind.array(kind.numpy(x)[order]), shuffled)) == sums).all()
        assert (kind.numpy(nb.reduce_sum(x, 0, keepdims=False)) == kind.numpy(x).sum(0)).all()
        spread = nb.reduce_sum_backward(into[:1], axis=0, input_shape=(rows, 3))
        assert (kind.numpy(spread) == np.broadcast_to(sums[:1], (rows, 3))).all()
        values, places = nb.cummax(x, 0, return_indices=True)
        assert (kind.numpy(values) == np.maximum.accumulate(kind.numpy(x))).all()
        assert (np.take_along_axis(kind.numpy(x), kind.numpy(places), 0) == kind.numpy(values)).all()
        needed = nb.select(nb.SegmentDescriptor("unsorted_segment_sum", rows, 3, segments)).workspace_size
        room = kind.workspace(needed)
        assert (kind.numpy(nb.unsorted_segment_sum(x, kind.array(ids), segments, workspace=room)) == sums).all()
        with pytest.raises(nb.WorkspaceTooSmall, match=f"unsorted_segment_sum: workspace holds {needed - 1} bytes, wants {needed}"):
            nb.unsorted_segment_sum(x, kind.array(ids), segments, workspace=room[:-1])


def test_threads_with_sizes_of_their_own(kind: Kind) -> None:
    start = threading.Barrier(8)

    def work(me: int) -> None:
        start.wait()
        for turn in range(6):
            x = np.arange((40 + 8 * turn + me) * 5, dtype=np.float32).reshape(-1, 5) % 7
            assert (kind.numpy(nb.reduce_sum(kind.array(x), 0, keepdims=False)) == x.sum(0)).all()

    failures = failures_of(work, 8)
    assert not failures, failures


# ---------------------------------------------------------------- what it refuses


def refusals(turn: int) -> Iterator[tuple[str, Call]]:
    """Wrong calls of sizes that nobody has met."""
    rows, segments = 300 + 8 * turn, 40 + turn
    x, ids = np.ones((rows, 4), np.float32), np.zeros(rows, np.int32)
    frozen, wide = np.empty((segments, 4), np.float32), np.empty((rows + 4, 4), np.float32)
    frozen.flags.writeable = False
    yield "segment_ids", lambda: nb.segment_sum(x, ids[:-1], segments)
    yield "num_segments", lambda: nb.segment_sum(x, ids, -segments)
    yield "num_segments", lambda: nb.segment_sum(x, ids, segments + (1 << 64))
    yield "output has shape", lambda: nb.segment_sum(x, ids, segments, out=np.empty((segments + 1, 4), np.float32))
    yield "output is float64", lambda: nb.segment_sum(x, ids, segments, out=np.empty((segments, 4)))
    yield "read-only", lambda: nb.segment_sum(x, ids, segments, out=frozen)
    yield "overlapping view", lambda: nb.segment_sum(x, ids, segments, out=np.lib.stride_tricks.as_strided(wide, (segments, 4), (0, 4)))
    yield "output overlaps input", lambda: nb.segment_sum(x, ids, segments, out=x[:segments])
    yield "y overlaps x", lambda: nb.cumsum(wide[:-4], 0, out=wide[4:])
    yield "with keepdims=False", lambda: nb.reduce_sum(x, 0, keepdims=False, out=np.empty((1, 4), np.float32))
    yield "dy has shape", lambda: nb.reduce_sum_backward(np.ones((1, 4), np.float32), axis=0, input_shape=(rows, 5))
    yield "wants extents below", lambda: nb.cumsum(np.lib.stride_tricks.as_strided(x, ((1 << 39) + turn, 4), (0, 4)), 0)


@pytest.fixture
def traced(emulator: Kind) -> None:
    """The classes of these calls have programs."""
    for turn in range(4):
        rows, segments = 100 + 4 * turn, 30 + turn
        x, ids = np.ones((rows, 4), np.float32), np.zeros(rows, np.int32)
        nb.segment_sum(x, ids, segments)
        nb.segment_sum(x, ids, segments, out=np.empty((segments, 4), np.float32))
        nb.cumsum(x, 0)
        nb.cumsum(x, 0, out=np.empty_like(x))
        nb.reduce_sum(x, 0, keepdims=False, out=np.empty(4, np.float32))
        nb.reduce_sum_backward(np.ones((1, 4), np.float32), axis=0, input_shape=(rows, 4))


def test_refusals_are_the_same_with_and_without_programs(traced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(3):
        for told, call in refusals(turn):
            with pytest.raises(nb.BaracudaError, match=told) as found:
                call()
            with monkeypatch.context() as patch, pytest.raises(type(found.value)) as fresh:
                patch.setattr(calls, "_classes", {})
                patch.setattr(frames, "bounds", {})
                call()
            assert str(fresh.value) == str(found.value)
