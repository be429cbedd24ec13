"""The soak's scenarios: functions of a worker, which raise on failure."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import fuzz
import numpy as np
import references
import samples
import soak_processes
from fuzz_arrays import Placed, on_host, picked
from fuzz_families import CALLS, Case, Problem
from kinds import KINDS, Kind
from samples import Sample
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Op

#: a lock for captures of streams, and for freeing device memory, which waits for all streams
CAPTURE = threading.Lock()


@dataclass
class Worker:
    """One thread: its random numbers, its streams, and the objects that its scenarios keep between runs."""

    number: int
    seed: int
    ops: list[Op]
    most: int
    streams: int = 4
    kept: dict[str, Any] = field(default_factory=dict)
    _cases: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, self.number])
        self.kind: Kind = KINDS["numpy" if arrays.emulating() else "cupy"]
        self._streams: list[Any] = []

    @contextmanager
    def stream(self, which: int | None = None) -> Iterator[Any]:
        """Makes one of the worker's streams current inside the block, and waits for the stream at its end."""
        if self.kind.emulated:
            yield None
            return
        import cupy

        while len(self._streams) < self.streams:
            self._streams.append(cupy.cuda.Stream(non_blocking=True))
        with self._streams[int(self.rng.integers(self.streams)) if which is None else which] as stream:
            yield stream
            stream.synchronize()

    def drop_streams(self) -> None:
        """Replaces the worker's streams: a failed capture leaves its stream unusable."""
        self._streams = []

    def case(self) -> Case:
        """A problem of any op, with ordinary values: the fuzzer tests values, the soak tests interference."""
        self._cases += 1
        made = fuzz.make(self.ops, self.seed, self.number * 1_000_000 + self._cases, self.most)
        options = {name: option for name, option in made.options.items() if name != "check_ids"}
        return replace(made, values="normal" if made.values == "normal" else "whole", options=options, schedule=None)


# ---------------------------------------------------------------- in threads


def mixed(worker: Worker) -> None:
    """Any op, of any shape, on one of the streams."""
    case = worker.case()
    with worker.stream():
        _blamed(case, lambda: fuzz.run(case))


def same_bits(worker: Worker) -> None:
    """One op on all streams at once: the same bits from each."""
    case = worker.case()
    options = {name: option for name, option in case.options.items() if name not in ("deterministic", *CALLS)}
    problem: Problem = fuzz.FAMILIES[nb.OPS[case.op].family].problem(nb.OPS[case.op], case)
    if problem.refusal or problem.unspecified or any(before is not None for *_, before in problem.outputs.values()):
        return
    with worker.stream(0):
        inputs = {name: Placed(worker.kind, array, case.layouts.get(name)) for name, array in problem.inputs.items()}
    given, made, found = {name: placed.array for name, placed in inputs.items()}, [], []
    with ExitStack() as streams:
        for which in range(worker.streams):
            streams.enter_context(worker.stream(which))
            made.append(problem.call(given, {}, options))
    for which, each in enumerate(made):
        with worker.stream(which):
            found.append({name: on_host(worker.kind, array) for name, array in each.items()})

    def check() -> None:
        problem.compare(found[0])
        for other in found[1:]:
            for name, array in other.items():
                assert array.tobytes() == found[0][name].tobytes(), f"{name}: other bits on another stream"

    _blamed(case, check)


def indexed(worker: Worker) -> None:
    """An index built on one stream serves ops on the others."""
    rows, segments = int(worker.rng.integers(1, max(2, worker.most // 8))), int(worker.rng.integers(1, 300))
    ops = [op for op in worker.ops if op.family == "segment" and "f32" in op.elements] or [samples.OPS["segment_sum"]]
    op: Op = picked(worker.rng, ops)
    sample = Sample(f"soak {worker.number} {worker.rng.integers(1 << 30)}", rows, (4,), segments, samples.runs)
    given = samples.operands(op, sample)
    with worker.stream(0):
        placed = {name: worker.kind.array(array) for name, array in given.items()}
        placed["segment_ids"] = nb.SegmentIndex(placed["segment_ids"], segments)
    for which in range(worker.streams):
        with worker.stream(which):
            got = on_host(worker.kind, samples.call(op, list(placed.values()), segments))
        assert_close(got, references.truth(op.name, given, segments), "f32", op.name)


def churn(worker: Worker) -> None:
    """Allocates and frees arrays of all sizes, filled with garbage, so that blocks of the pool lose earlier values."""
    with worker.stream():
        for _ in range(8):
            worker.kind.poisoned((int(np.exp(worker.rng.uniform(0, np.log(32 * worker.most)))),), np.uint8)


class Captured:
    """A captured op, with operands and workspace of its own."""

    def __init__(self, worker: Worker, case: Case) -> None:
        self.case, self.kind = case, worker.kind
        self.family = fuzz.FAMILIES[nb.OPS[case.op].family]
        self.problem = self.family.problem(nb.OPS[case.op], case)
        self.inputs = {name: Placed(self.kind, array, case.layouts.get(name)) for name, array in self.problem.inputs.items()}
        self.out = {
            name: Placed(self.kind, np.full(shape, 99).astype(dtype), case.layouts.get(name))
            for name, (shape, dtype, _) in self.problem.outputs.items()
        }
        self.options = {name: option for name, option in case.options.items() if name not in CALLS}
        self.workspace = self.kind.workspace(16)
        try:
            self._call()
        except nb.WorkspaceTooSmall as error:
            self.workspace = self.kind.workspace(error.needed)
            self._call()

    def _call(self) -> None:
        given, into = ({name: placed.array for name, placed in each.items()} for each in (self.inputs, self.out))
        self.problem.call(given, into, self.options | {"workspace": self.workspace})

    def capture(self, stream: Any) -> None:
        stream.synchronize()
        gc.collect()  # garbage of this thread must not be freed during the capture
        with CAPTURE:
            stream.begin_capture()
            try:
                self._call()
            finally:
                self.graph = stream.end_capture()

    def replay(self, worker: Worker, stream: Any) -> None:
        """Launches the graph, with the same inputs or others at the same addresses, after filling its outputs and workspace with garbage."""
        if worker.rng.random() < 0.5:
            self.case = replace(self.case, seed=int(worker.rng.integers(1 << 30)))
            self.problem = self.family.problem(nb.OPS[self.case.op], self.case)
            for name, array in self.problem.inputs.items():
                self.inputs[name].put(array)
        for name, (shape, dtype, _) in self.problem.outputs.items():
            self.out[name].put(np.full(shape, 77).astype(dtype))
        self.workspace[...] = 0xA5
        churn(worker)
        self.graph.launch(stream)
        stream.synchronize()
        _blamed(self.case, lambda: self.problem.compare({name: placed.read() for name, placed in self.out.items()}))


def graphs(worker: Worker) -> None:
    """Ops are captured with ``out=`` and ``workspace=``, and replayed while other threads allocate."""
    held = worker.kept.setdefault("graphs", [])
    with worker.stream() as stream:
        if len(held) < 4 or worker.rng.random() < 0.2:
            case = _capturable(worker)
            if case is not None:
                captured = Captured(worker, case)
                try:
                    captured.capture(stream)
                except BaseException:
                    worker.drop_streams()
                    raise
                held[:] = [*held[-3:], captured]
        for captured in held:
            captured.replay(worker, stream)


def _capturable(worker: Worker) -> Case | None:
    for _ in range(20):
        case = worker.case()
        named = case.options.keys()
        problem = fuzz.FAMILIES[nb.OPS[case.op].family].problem(nb.OPS[case.op], case)
        waits = case.settings.get("form", "array") != "array" or "skip_ignored" in named or any(name.startswith("return_") for name in named)
        if not waits and not (problem.refusal or problem.unspecified) and all(before is None for *_, before in problem.outputs.values()):
            return case
    return None


def exhausted(worker: Worker) -> None:
    """Memory runs out at each allocation of an op in turn: the op raises MemoryError and leaks nothing, and the next call is right."""
    import cupy

    op = picked(worker.rng, [samples.OPS[name] for name in ("unsorted_segment_logsumexp", "unsorted_segment_sum", "segment_var", "segment_softmax")])
    rows, segments = int(worker.rng.integers(worker.most // 16, worker.most // 8)), int(worker.rng.integers(100, 9000))
    sample = Sample(f"out of memory {worker.number} {worker.rng.integers(1 << 30)}", rows, (8,), segments, samples.skewed)
    given, pool = samples.operands(op, sample), cupy.cuda.MemoryPool()
    with worker.stream() as stream, cupy.cuda.using_allocator(pool.malloc):
        call = functools.partial(samples.call, op, [worker.kind.array(array) for array in given.values()], segments)
        first = on_host(worker.kind, call())
        _release(pool)
        used, refused = pool.used_bytes(), 0
        call()
        stream.synchronize()
        most = pool.total_bytes()
        for share in (0.0, 0.2, 0.4, 0.6, 0.8, 0.95):
            _release(pool)
            pool.set_limit(size=used + max(512, int(share * (most - used))))
            refused += _refused(call)
            stream.synchronize()
            gc.collect()
            assert pool.used_bytes() == used, f"{op.name}: {pool.used_bytes() - used} bytes are kept after a MemoryError"
        pool.set_limit(size=0)
        assert refused, f"{op.name}: no limit between {used} and {most} bytes was felt"
        again = on_host(worker.kind, call())
        del call
        _release(pool)
    assert_close(again, references.truth(op.name, given, segments), "f32", op.name)
    assert again.tobytes() == first.tobytes(), f"{op.name}: other bits after a MemoryError"


def _refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except MemoryError as error:
        assert str(error), "a MemoryError that says nothing"
        return True
    return False


def _release(pool: Any) -> None:
    with CAPTURE:
        pool.free_all_blocks()


def _blamed(case: Case, check: Callable[[], Any]) -> None:
    try:
        check()
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n  from tests.fuzz import *; run({case!r})") from error


@dataclass(frozen=True)
class Scenario:
    """``weight`` is how often a thread chooses it; 0 for scenarios that run in processes, one after the other."""

    run: Callable[[Any], None]
    weight: float
    emulated: bool = True

    @property
    def name(self) -> str:
        return self.run.__name__


SCENARIOS = (
    Scenario(mixed, 8), Scenario(same_bits, 3), Scenario(indexed, 2), Scenario(churn, 2), Scenario(graphs, 3, emulated=False),
    Scenario(exhausted, 0.5, emulated=False), *[Scenario(each, 0) for each in soak_processes.ALL],
)  # fmt: skip
