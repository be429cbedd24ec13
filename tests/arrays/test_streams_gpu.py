"""What a stream waits for before it runs an op, and what a captured one keeps until it is replayed."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda.arrays import arrays

pytestmark = pytest.mark.gpu

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

ROWS, COLUMNS, SEGMENTS = 200_000, 16, 9_000
RNG = np.random.default_rng(4)
IDS, X = RNG.integers(0, SEGMENTS, ROWS).astype(np.int32), RNG.integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
SUMS = np.zeros((SEGMENTS, COLUMNS), np.float32)
np.add.at(SUMS, IDS, X)


def side() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


# ---------------------------------------------------------------- graphs


def check_replay(record: Callable[[Any], Any], mode: str) -> None:
    """What ``record(stream)`` captured gives its result after others have filled all memory that the pool has, and leaves theirs alone."""
    stream, wanted = side(), getattr(cupy.cuda.runtime, f"streamCaptureMode{mode}")
    cupy.cuda.Device().synchronize()
    record(stream)
    stream.synchronize()
    gc.collect()
    gc.disable()  # what is freed meanwhile would end a capture of the Global mode
    with stream:
        stream.begin_capture(wanted)
        try:
            result = record(stream)
        finally:
            gc.enable()
            graph = stream.end_capture()
    with stream:
        taken = [cupy.full(1 << 16, 0xA5, np.uint8) for _ in range(2000)]
    for _ in range(2):
        with stream:
            result[...] = 99
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(result), SUMS)
        assert all(bool((each == 0xA5).all()) for each in taken)


@pytest.mark.parametrize("mode", ["Global", "Relaxed"])
@pytest.mark.parametrize("given", [True, False], ids=["workspace", "no workspace"])
@pytest.mark.parametrize("kind", ["cupy", "numba"])
def test_a_graph_keeps_its_scratch(kind: str, given: bool, mode: str) -> None:
    """Of an op that sorts: no run of the graph writes to memory that somebody else has by then."""
    plan = nb.select(nb.SegmentDescriptor("unsorted_segment_sum", ROWS, COLUMNS, SEGMENTS))
    x, ids, out = cupy.asarray(X), cupy.asarray(IDS), cupy.empty((SEGMENTS, COLUMNS), np.float32)
    workspace = cupy.empty(plan.workspace_size, np.uint8) if given else None
    operands = {"input": x, "segment_ids": ids, "output": out}
    if kind == "numba":
        from numba import cuda

        operands = {name: cuda.as_cuda_array(array, sync=False) for name, array in operands.items()}

    def record(stream: Any) -> Any:
        plan.run(stream.ptr, workspace, **operands)
        return out

    check_replay(record, mode)


def test_a_graph_keeps_an_index_and_a_result() -> None:
    x, ids = cupy.asarray(X), cupy.asarray(IDS)
    held = []

    def record(stream: Any) -> Any:
        index = nb.SegmentIndex(ids, SEGMENTS, is_sorted=False, stream=stream)
        held.append(index)
        return nb.unsorted_segment_sum(x, index, stream=stream)

    check_replay(record, "Relaxed")


def test_the_workspace_of_a_sort_is_all_it_takes() -> None:
    """With a workspace given, nothing is taken from the pool."""
    plan = nb.select(nb.SegmentDescriptor("unsorted_segment_sum", ROWS, COLUMNS, SEGMENTS))
    operands = {"input": cupy.asarray(X), "segment_ids": cupy.asarray(IDS), "output": cupy.empty((SEGMENTS, COLUMNS), np.float32)}
    whole = cupy.full(plan.workspace_size + 4096, 0xA5, np.uint8)
    plan.run(workspace=whole[2048:-2048], **operands)
    taken, pool = list[int](), cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(lambda nbytes: taken.append(nbytes) or pool.malloc(nbytes)):
        plan.run(workspace=whole[2048:-2048], **operands)
    assert taken == []
    np.testing.assert_array_equal(cupy.asnumpy(operands["output"]), SUMS)
    assert bool((whole[:2048] == 0xA5).all()) and bool((whole[-2048:] == 0xA5).all())


# ---------------------------------------------------------------- producers


class Interface:
    """An array of which only its interface is known, which names the stream that makes it."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": stream.ptr, "version": 3}


class Exchanged:
    """An array of which only DLPack is known, which makes it on a stream of its own."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array, self.stream = array, stream

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        (cupy.cuda.ExternalStream(stream) if stream > 1 else cupy.cuda.Stream.null).wait_event(self.stream.record())
        with self.stream:
            return self.array.__dlpack__(stream=self.stream.ptr, **options)


_CALLS = {
    "both inputs": lambda wrap, late, a, b: nb.unsorted_segment_sum(wrap(late["x"], a), wrap(late["ids"], a), SEGMENTS, stream=b),
    "the second input": lambda wrap, late, a, b: nb.unsorted_segment_sum(cupy.asarray(X), wrap(late["ids"], a), SEGMENTS, stream=b),
    "no stream": lambda wrap, late, a, b: nb.unsorted_segment_sum(Interface(cupy.asarray(X), b), wrap(late["ids"], a), SEGMENTS),
    "the output": lambda wrap, late, a, b: nb.unsorted_segment_sum(cupy.asarray(X), cupy.asarray(IDS), SEGMENTS, out=wrap(late["out"], a), stream=b),
    "an index": lambda wrap, late, a, b: nb.unsorted_segment_sum(
        wrap(late["x"], a), nb.SegmentIndex(wrap(late["ids"], a), SEGMENTS, is_sorted=False, stream=b), stream=b
    ),
}


@pytest.mark.parametrize("wrap", [Interface, Exchanged])
@pytest.mark.parametrize("which", _CALLS)
def test_an_op_waits_for_whoever_makes_its_operands(delay: Any, which: str, wrap: Any) -> None:
    producer, stream = side(), side()
    for turn in range(2):  # the first makes the kernels
        late = {"x": cupy.zeros(X.shape, X.dtype), "ids": cupy.zeros(IDS.shape, IDS.dtype), "out": cupy.zeros((SEGMENTS, COLUMNS), np.float32)}
        good = cupy.asarray(X), cupy.asarray(IDS)
        cupy.cuda.Device().synchronize()
        delay(producer.ptr, 1 + 200 * turn)
        with producer:
            late["x"][...], late["ids"][...] = good
            late["out"].fill(7)
        result = _CALLS[which](wrap, late, producer, stream)
        cupy.cuda.Device().synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(result.array if isinstance(result, wrap) else result), SUMS)


def test_a_numba_array_is_waited_for_on_the_stream_it_is_bound_to(delay: Any) -> None:
    from numba import cuda

    mine, stream = cuda.stream(), side()
    x = cuda.to_device(np.zeros_like(X))
    good, ids = cupy.asarray(X), cuda.to_device(IDS)
    for turn in range(2):
        cupy.asarray(x).fill(0)
        cupy.cuda.Device().synchronize()
        delay(int(mine), 1 + 200 * turn)
        with cupy.cuda.ExternalStream(int(mine)):
            cupy.asarray(x)[...] = good
        result = nb.unsorted_segment_sum(x.bind(mine), ids, SEGMENTS, stream=stream)
        cupy.cuda.Device().synchronize()
        np.testing.assert_array_equal(result.copy_to_host(), SUMS)


@pytest.mark.parametrize("mode", ["Global", "Relaxed"])
@pytest.mark.parametrize("wrap", [Interface, Exchanged])
@pytest.mark.parametrize("current", [True, False], ids=["current", "given"])
def test_a_captured_stream_waits_for_nothing_outside(wrap: Any, current: bool, mode: str) -> None:
    """A stream that is not captured cannot be waited for by one that is."""
    producer, stream = side(), side()
    x, ids, out = cupy.asarray(X), cupy.asarray(IDS), cupy.empty((SEGMENTS, COLUMNS), np.float32)
    plan = nb.select(nb.SegmentDescriptor("unsorted_segment_sum", ROWS, COLUMNS, SEGMENTS))
    workspace = cupy.empty(plan.workspace_size, np.uint8)

    def run() -> None:
        plan.run(stream, workspace, input=wrap(x, producer), segment_ids=wrap(ids, producer), output=out)

    run()
    cupy.cuda.Device().synchronize()
    stream.begin_capture(getattr(cupy.cuda.runtime, f"streamCaptureMode{mode}"))
    try:
        if current:
            with stream:
                run()
        else:
            run()
    finally:
        graph = stream.end_capture()
    out.fill(99)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), SUMS)


def test_a_producer_of_the_same_capture_is_waited_for(delay: Any) -> None:
    main, branch = side(), side()
    good, x, ids = cupy.asarray(X), cupy.zeros(X.shape, X.dtype), cupy.asarray(IDS)
    out = cupy.empty((SEGMENTS, COLUMNS), np.float32)
    nb.unsorted_segment_sum(x, ids, SEGMENTS, out=out, stream=main)
    delay(branch.ptr, 1)
    with branch:
        x[...] = good
    x.fill(0)
    cupy.cuda.Device().synchronize()
    main.begin_capture()
    branch.wait_event(main.record())
    delay(branch.ptr, 100)
    with branch:
        x[...] = good
    nb.unsorted_segment_sum(Interface(x, branch), ids, SEGMENTS, out=out, stream=main)
    graph = main.end_capture()
    graph.launch(main)
    main.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), SUMS)


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))], ids=["copy", "deepcopy", "pickle"])
def test_a_copied_index_has_its_own_memory(how: Any) -> None:
    index = nb.SegmentIndex(cupy.asarray(IDS), SEGMENTS)
    other = how(index)
    for name in ("segment_ids", "sorted_ids", "permutation", "offsets", "counts"):
        assert other.view_of(name).ptr == getattr(other, name).data.ptr
        if how is not copy.copy:
            getattr(index, name).fill(0)
    np.testing.assert_array_equal(cupy.asnumpy(nb.unsorted_segment_sum(cupy.asarray(X), other)), SUMS)
