"""Small folds by one launch on several streams, in graphs and by several threads at the same time: the memory that a stream keeps is not shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from in_threads import failures_of
from test_single_pass import kernels, recipe_of

import numba_baracuda as nb
from numba_baracuda.arrays import arrays, stream_scratch
from numba_baracuda.runtime import driver

pytestmark = pytest.mark.gpu

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

#: one row, few rows, columns of one block and of several; blocks by the dozen and by the hundred
PROBLEMS: list[tuple[tuple[int, ...], int]] = [((1 << 20,), 0), ((5, 100_000), 1), ((20_000, 64), 0), ((100_000, 64), 0), ((3000, 700), 0)]


@pytest.fixture(autouse=True)
def _zeros() -> Iterator[None]:
    """The zeros of every stream are what they were."""
    yield
    cupy.cuda.Device().synchronize()
    for (device, _), memory in stream_scratch._memories.items():
        if memory:
            zeros = cupy.cuda.UnownedMemory(memory.base, stream_scratch.ZEROED_BYTES, None, device)
            assert not cupy.ndarray(stream_scratch.ZEROED_BYTES, np.uint8, cupy.cuda.MemoryPointer(zeros, 0)).any()


def problem(which: int, seed: int) -> tuple[Any, int, np.ndarray]:
    """An array of small integers, the axis, and its sums, which are exact in any order."""
    shape, axis = PROBLEMS[which]
    x = np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)
    return cupy.asarray(x), axis, x.sum(axis, dtype=np.float64)


def test_the_problems_are_one_launch() -> None:
    for shape, axis in PROBLEMS:
        assert len(kernels(recipe_of(nb.OPS["reduce_sum"], shape, axis))) == 1


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "var", "logsumexp"])
def test_values(name: str) -> None:
    for which in range(len(PROBLEMS)):
        x, axis, _ = problem(which, which)
        wide = x.astype(np.float64)
        wanted = {
            "sum": wide.sum(axis), "max": wide.max(axis), "argmax": x.argmax(axis), "var": wide.var(axis, ddof=1),
            "logsumexp": cupy.log(cupy.exp(wide).sum(axis)),
        }[name]  # fmt: skip
        for _ in range(3):
            got = getattr(nb, f"reduce_{name}")(x, axis, False)
            np.testing.assert_allclose(cupy.asnumpy(got).astype(np.float64), cupy.asnumpy(wanted), rtol=1e-5, atol=1e-5)


def test_every_run_gives_the_same_bits() -> None:
    for shape, axis in PROBLEMS:
        x = cupy.asarray(np.random.default_rng(1).standard_normal(shape, np.float32))
        first = cupy.asnumpy(nb.reduce_sum(x, axis))
        assert all(np.array_equal(first, cupy.asnumpy(nb.reduce_sum(x, axis))) for _ in range(50))


def test_nothing_is_cleared_and_nothing_allocated_from_the_second_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x, axis, wanted = problem(2, 0)
    out = cupy.empty(wanted.shape, np.float32)
    nb.reduce_sum(x, axis, False, out=out)
    monkeypatch.setattr(driver, "memset_async", None)
    monkeypatch.setattr(driver, "alloc_async", None)
    monkeypatch.setattr("numba_baracuda.arrays.allocation.scratch", None)
    out[...] = 99
    nb.reduce_sum(x, axis, False, out=out)
    np.testing.assert_array_equal(cupy.asnumpy(out), wanted)


def test_streams_and_graphs_side_by_side() -> None:
    """Graphs of a stream are replayed on another one, beside eager calls on both."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    given = [problem(k % len(PROBLEMS), k) for k in range(8)]
    eager = [cupy.full(wanted.shape, 99, np.float32) for _, _, wanted in given]
    replayed = [cupy.full(wanted.shape, 99, np.float32) for _, _, wanted in given]
    for (x, axis, _), out in zip(given, eager, strict=True):
        nb.reduce_sum(x, axis, False, out=out)  # compiles, and makes the default stream's memory
    cupy.cuda.Device().synchronize()
    graphs = []
    for k, ((x, axis, _), out) in enumerate(zip(given, replayed, strict=True)):
        stream = streams[k % 4]
        nb.reduce_sum(x, axis, False, out=out, stream=stream)  # the stream has memory when it is captured
        stream.synchronize()
        with stream:
            stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
            nb.reduce_sum(x, axis, False, out=out, stream=stream)
            graphs.append(stream.end_capture())
    for turn in range(60):
        cupy.cuda.Device().synchronize()
        for out in (*eager, *replayed):
            out[...] = 99
        cupy.cuda.Device().synchronize()
        for k in range(len(given)):
            x, axis, _ = given[k]
            graphs[k].launch(streams[(k + turn) % 4])
            nb.reduce_sum(x, axis, False, out=eager[k], stream=streams[(k + 2 * turn + 1) % 4])
        cupy.cuda.Device().synchronize()
        for (_, _, wanted), first, second in zip(given, eager, replayed, strict=True):
            np.testing.assert_array_equal(cupy.asnumpy(first), wanted)
            np.testing.assert_array_equal(cupy.asnumpy(second), wanted)


def test_more_streams_than_get_memory() -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(stream_scratch.MOST_STREAMS + 8)]
    x, axis, wanted = problem(2, 3)
    cupy.cuda.Device().synchronize()
    outs = [cupy.empty(wanted.shape, np.float32) for _ in streams]
    for _ in range(3):
        for stream, out in zip(streams, outs, strict=True):
            nb.reduce_sum(x, axis, False, out=out, stream=stream)
    cupy.cuda.Device().synchronize()
    for out in outs:
        np.testing.assert_array_equal(cupy.asnumpy(out), wanted)
    assert sum(map(bool, stream_scratch._memories.values())) <= stream_scratch.MOST_STREAMS


def test_a_stream_with_the_handle_of_one_that_is_gone(delay: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of the other may still run beside its own, in memory of its own. Beyond the limit, CuPy's pool would give both the same memory."""
    monkeypatch.setattr(stream_scratch, "MOST_STREAMS", len(stream_scratch._made) + 60)
    x, axis, wanted = problem(3, 5)
    outs = [cupy.full(wanted.shape, 99, np.float32) for _ in range(60)]
    cupy.cuda.Device().synchronize()
    handles = []
    for out in outs:
        stream = cupy.cuda.Stream(non_blocking=True)
        handles.append(stream.ptr)
        delay(stream.ptr, 2)
        for _ in range(3):
            nb.reduce_sum(x, axis, False, out=out, stream=stream)
        del stream
    cupy.cuda.Device().synchronize()
    for out in outs:
        np.testing.assert_array_equal(cupy.asnumpy(out), wanted)
    print(f"{len(outs)} streams had {len(set(handles))} handles")


@pytest.mark.parametrize("which", ["own", "shared", "per thread"])
def test_threads(which: str) -> None:
    """With streams of their own, with one that they share, and with the handle that is another stream for each."""
    shared = cupy.cuda.Stream(non_blocking=True)

    def work(me: int) -> None:
        stream: Any = {"own": cupy.cuda.Stream(non_blocking=True), "shared": shared, "per thread": 2}[which]
        x, axis, wanted = problem(me % len(PROBLEMS), me)
        out = cupy.empty(wanted.shape, np.float32)
        cupy.cuda.Device().synchronize()
        for _ in range(100):
            nb.reduce_sum(x, axis, False, out=out, stream=stream)
        cupy.cuda.Device().synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(out), wanted)

    failures = failures_of(work, 6)
    assert not failures, failures


def test_threads_share_the_memory_of_a_stream_for_calls_of_several_launches() -> None:
    """Every thread's launches stay together in the order of the stream."""
    shared = cupy.cuda.Stream(non_blocking=True)
    rng = np.random.default_rng(7)
    rows = [rng.integers(-8, 9, (60_000, 64)).astype(np.float32) for _ in range(4)]
    ids = np.sort(rng.integers(0, 500, 60_000)).astype(np.int32)

    def work(me: int) -> None:
        x, segment_ids, out = cupy.asarray(rows[me]), cupy.asarray(ids), cupy.empty((500, 64), np.float32)
        wanted = np.zeros((500, 64))
        np.add.at(wanted, ids, rows[me])
        cupy.cuda.Device().synchronize()
        for turn in range(100):
            got = (nb.segment_sum if turn % 2 else nb.unsorted_segment_sum)(x, segment_ids, 500, out=out, stream=shared)
            cupy.cuda.Device().synchronize()
            np.testing.assert_array_equal(cupy.asnumpy(got), wanted)

    failures = failures_of(work, 4)
    assert not failures, failures
