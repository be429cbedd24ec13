"""What only a device shows: frameworks' arrays, streams, CUDA graphs, sizes beyond 2^31, and that the emulator computes the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
import samples
from kinds import KINDS, Kind, lay
from references import stem
from samples import BACKWARD, FORWARD, OPS, Sample, name_of, variants_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Op, Variant

pytestmark = pytest.mark.gpu
EVERY = pytest.mark.parametrize(("op", "variant"), variants_of(list(OPS.values())), ids=name_of)
EVERY_OP = pytest.mark.parametrize("op", list(OPS.values()), ids=name_of)

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

DEVICE = KINDS["cupy"]


# ---------------------------------------------------------------- arrays


def test_numba_arrays_from_the_host() -> None:
    from numba import cuda

    x, ids = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 0, 1, 3, 3, 3], np.int32)
    made = nb.segment_sum(cuda.to_device(x), cuda.to_device(ids), 4)
    assert KINDS["numba"].owns(made)
    np.testing.assert_array_equal(made.copy_to_host(), [[2, 4], [4, 5], [0, 0], [24, 27]])


def test_kinds_can_be_mixed_and_the_first_decides() -> None:
    torch = pytest.importorskip("torch")
    x, ids = np.ones((6, 2), np.float32), np.array([0, 0, 1, 3, 3, 3], np.int64)
    made = nb.segment_sum(torch.from_numpy(x).cuda(), cupy.asarray(ids), 4, out=cupy.empty((4, 2), np.float32))
    np.testing.assert_array_equal(cupy.asnumpy(made)[:, 0], [2, 1, 0, 3])
    assert isinstance(nb.segment_sum(torch.from_numpy(x).cuda(), cupy.asarray(ids), 4), torch.Tensor)
    assert isinstance(nb.segment_sum(cupy.asarray(x), torch.from_numpy(ids).cuda(), 4), cupy.ndarray)


def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no device")
    x, ids = jax.numpy.ones((6, 2), "float32"), jax.numpy.array([0, 0, 1, 3, 3, 3], "int32")
    np.testing.assert_array_equal(cupy.asnumpy(nb.segment_sum(x, ids, 4))[:, 0], [2, 1, 0, 3])
    with pytest.raises(nb.InvalidProblem, match="output is read-only"):
        nb.segment_sum(x, ids, 4, out=jax.numpy.ones((4, 2), "float32"))


def test_arrays_in_host_memory_are_refused_with_the_cure() -> None:
    torch = pytest.importorskip("torch")
    ids = cupy.zeros(4, np.int32)
    with pytest.raises(nb.Unsupported, match=r"input is a NumPy array, wants one in device memory: .*cupy.asarray"):
        nb.segment_sum(np.ones(4, np.float32), ids, 3)
    with pytest.raises(nb.Unsupported, match=r"input is a torch tensor on cpu, wants one in device memory: x.cuda\(\)"):
        nb.segment_sum(torch.ones(4), ids, 3)
    with pytest.raises(nb.Unsupported, match="segment_ids is a NumPy array"):
        nb.segment_sum(cupy.ones(4, np.float32), np.zeros(4, np.int32), 3)


@EVERY
@pytest.mark.parametrize("columns", [1, 4, 37, 200])
def test_nothing_around_the_output_is_touched(op: Op, variant: Variant, columns: int) -> None:
    sample = Sample(f"guarded {columns}", 3001, (columns,), 700, samples.outside)
    given = samples.operands(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample))
    rows = getattr(made.descriptor, op.operands[-1].axes[0])
    whole = cupy.full((rows + 8, columns), 77, samples.output_type(op, sample))
    space = cupy.full(made.workspace_size + 64, 0xA5, np.uint8)
    inputs = {name: cupy.asarray(array) for name, array in given.items()}
    made.run(**inputs, **{op.operands[-1].name: whole[4:-4]}, workspace=space[32 : 32 + made.workspace_size])
    assert_close(cupy.asnumpy(whole[4:-4]), references.truth(op.name, given, sample.segments), sample.element, op.name)
    assert bool((whole[:4] == 77).all()) and bool((whole[-4:] == 77).all())
    assert bool((space[:32] == 0xA5).all()) and bool((space[32 + made.workspace_size :] == 0xA5).all())
    for name, array in given.items():
        np.testing.assert_array_equal(cupy.asnumpy(inputs[name]), array, err_msg=f"{name} was written")


# ---------------------------------------------------------------- streams


def _streams() -> dict[str, Callable[[], Any]]:
    """Streams in every spelling, none of which waits for the default stream."""

    def of_torch() -> Any:
        return pytest.importorskip("torch").cuda.Stream()

    def of_numba() -> Any:
        from numba import cuda

        keep = cupy.cuda.Stream(non_blocking=True)
        stream = cuda.external_stream(keep.ptr)
        stream.keep = keep
        return stream

    def number() -> Any:
        return cupy.cuda.Stream(non_blocking=True)

    return {"cupy": lambda: cupy.cuda.Stream(non_blocking=True), "torch": of_torch, "numba": of_numba, "an integer": number}


def _handle(stream: Any) -> int:
    from numba_baracuda.arrays.streams import stream_handle

    return stream_handle(stream, arrays.view(cupy.zeros(1), "test", "like"))


@pytest.mark.parametrize("spelling", ["cupy", "torch", "numba", "an integer"])
@EVERY
def test_ops_run_on_the_stream_they_are_given(op: Op, variant: Variant, spelling: str, delay: Any) -> None:
    """Inputs are filled on that stream behind a long kernel: on any other stream the op would read what was there before."""
    sample = Sample("streams", 5000, (4,), 300, whole=True)
    given = samples.operands(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample))
    output = op.operands[-1]
    inputs = {name: cupy.asarray(array) if name == "segment_ids" else cupy.zeros_like(cupy.asarray(array)) for name, array in given.items()}
    ready = {name: cupy.asarray(array) for name, array in given.items()}
    out = cupy.full((getattr(made.descriptor, output.axes[0]), 4), 99, samples.output_type(op, sample))
    stream = _streams()[spelling]()
    handle = _handle(stream)
    made.run(**inputs, **{output.name: out}, stream=stream)  # compiles, and fills the pools of this stream
    cupy.cuda.runtime.deviceSynchronize()
    external = cupy.cuda.ExternalStream(handle)
    delay(handle)
    with external:
        for name, array in inputs.items():
            array[...] = ready[name]
    made.run(**inputs, **{output.name: out}, stream=handle if spelling == "an integer" else stream)
    assert not external.done, "the op waited for the stream"
    external.synchronize()
    assert_close(cupy.asnumpy(out), references.truth(op.name, given, sample.segments), sample.element, op.name)


@pytest.mark.parametrize("framework", ["cupy", "torch"])
@EVERY_OP
def test_without_a_stream_ops_run_on_the_current_one(op: Op, framework: str, delay: Any) -> None:
    kind = KINDS[framework]
    sample = Sample("current stream", 5000, (4,), 300, whole=True)
    given = samples.operands(op, sample)
    samples.call(op, [lay(kind, "contiguous", array) for array in given.values()], sample.segments)
    late = [lay(kind, "contiguous", array if name == "segment_ids" else np.zeros_like(array)) for name, array in given.items()]
    ready = [lay(kind, "contiguous", array) for array in given.values()]
    with current(framework) as handle:
        cupy.cuda.runtime.deviceSynchronize()
        delay(handle)
        for array, value in zip(late, ready, strict=True):
            array[...] = value
        made = samples.call(op, late, sample.segments)
        after = kind.numpy(made)  # ordered on the current stream
    assert_close(after, references.truth(op.name, given, sample.segments), sample.element, op.name)


@contextlib.contextmanager
def current(framework: str) -> Iterator[int]:
    """A side stream that is the framework's current one inside."""
    if framework == "torch":
        torch = pytest.importorskip("torch")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            yield stream.cuda_stream
    else:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            yield stream.ptr


@pytest.mark.parametrize(("op", "variant"), variants_of(list(OPS.values()), deterministic=True), ids=name_of)
def test_a_side_stream_changes_no_bit(op: Op, variant: Variant) -> None:
    sample = Sample("bits", 200_000, (8,), 9_000, samples.skewed)
    given = samples.operands(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample))
    first = samples.run(DEVICE, made, given)
    assert samples.run(DEVICE, made, given).tobytes() == first.tobytes()
    with current("cupy"):
        assert samples.run(DEVICE, made, given).tobytes() == first.tobytes()


def test_workspaces_of_two_streams_do_not_meet(delay: Any) -> None:
    """While one stream dozes with a workspace taken, another takes its own."""
    sample = Sample("two streams", 200_000, (17,), 3_000, samples.skewed)
    op = OPS["segment_sum"]
    made = nb.select(samples.descriptor(op, sample))
    given = samples.operands(op, sample)
    truth = references.truth(op.name, given, sample.segments)
    inputs = {name: cupy.asarray(array) for name, array in given.items()}
    results = [(cupy.cuda.Stream(non_blocking=True), cupy.zeros((sample.segments, 17), np.float32)) for _ in range(4)]
    cupy.cuda.runtime.deviceSynchronize()
    for turn in range(3):
        for stream, out in results:
            delay(stream.ptr, 10 * (turn + 1))
            made.run(**inputs, output=out, stream=stream)
    for stream, out in results:
        stream.synchronize()
        assert_close(cupy.asnumpy(out), truth, sample.element, op.name)


# ---------------------------------------------------------------- graphs


class Captured:
    """A plan with operands and workspace of its own, whose inputs can be changed between replays."""

    def __init__(self, op: Op, variant: Variant, kind: Kind) -> None:
        self.op, self.kind = op, kind
        self.sample = Sample("captured", 20_000, (17,), 900, samples.skewed, whole=True)
        self.plan = samples.plan_of(op, variant, samples.descriptor(op, self.sample))
        self.given = samples.operands(op, self.sample)
        self.inputs = {name: kind.array(array) for name, array in self.given.items()}
        output = op.operands[-1]
        described = self.plan.descriptor
        self.out = kind.array(np.full((getattr(described, output.axes[0]), 17), 99, samples.output_type(op, self.sample)))
        self.operands = {**self.inputs, output.name: self.out}
        self.workspace = kind.array(np.zeros(max(self.plan.workspace_size, 1), np.uint8))

    def run(self, stream: Any = None) -> None:
        self.plan.run(stream, self.workspace, **self.operands)

    def check(self, replay: Callable[[], None]) -> None:
        """Replays with the first inputs, then with others at the same addresses."""
        for turn in range(3):
            other = samples.operands(self.op, Sample(f"captured {turn}", 20_000, (17,), 900, samples.skewed, whole=True))
            for name, array in other.items():
                self.inputs[name][...] = self.kind.array(array)
            self.out[...] = 99
            cupy.cuda.runtime.deviceSynchronize()
            replay()
            cupy.cuda.runtime.deviceSynchronize()
            assert_close(self.kind.numpy(self.out), references.truth(self.op.name, other, 900), "f32", self.op.name)


@EVERY
def test_cupy_graphs(op: Op, variant: Variant) -> None:
    captured = Captured(op, variant, DEVICE)
    stream = cupy.cuda.Stream(non_blocking=True)
    captured.run(stream)
    stream.synchronize()
    with stream:
        stream.begin_capture()
        captured.run(stream)
        graph = stream.end_capture()

    def replay() -> None:
        graph.launch(stream)

    captured.check(replay)


@EVERY
def test_torch_graphs(op: Op, variant: Variant) -> None:
    torch = pytest.importorskip("torch")
    captured = Captured(op, variant, KINDS["torch"])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        captured.run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured.run()
    captured.check(graph.replay)


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if op.traits["ordered"] or (op.traits["backward"] and stem(op.name) in ("sum", "mean"))], ids=name_of
)
def test_torch_graphs_of_functions_that_allocate(op: Op) -> None:
    """Results and workspaces come from the graph's own pool."""
    torch = pytest.importorskip("torch")
    sample = Sample("captured function", 20_000, (17,), 900, samples.skewed, whole=True)
    given = samples.operands(op, sample)
    inputs = [KINDS["torch"].array(array) for array in given.values()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        samples.call(op, inputs, sample.segments)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = samples.call(op, inputs, sample.segments)
    for _ in range(2):
        made.fill_(99)
        graph.replay()
        assert_close(made.cpu().numpy(), references.truth(op.name, given, sample.segments), sample.element, op.name)


def test_checking_ids_cannot_be_captured() -> None:
    x, ids = cupy.ones((9, 4), np.float32), cupy.zeros(9, np.int32)
    out, stream = cupy.zeros((3, 4), np.float32), cupy.cuda.Stream(non_blocking=True)
    nb.segment_sum(x, ids, 3, out=out, check_ids=True, stream=stream)
    with stream:
        stream.begin_capture()
        with pytest.raises(nb.Unsupported, match="drop check_ids=True or end the capture"):
            nb.segment_sum(x, ids, 3, out=out, check_ids=True, stream=stream)
        with contextlib.suppress(Exception):
            stream.end_capture()


# ---------------------------------------------------------------- sizes


ROWS, COLUMNS, RUN = (1 << 27) + 3, 16, 1000
#: values and a copy of them in order; ids, keys and places, before and after they are sorted
BOTH_ORDERS = (2 * 4 * ROWS * COLUMNS + 7 * 4 * ROWS) / 1e9


@pytest.mark.memory(BOTH_ORDERS)
@pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(FORWARD) if stem(pair[0].name) == "sum"], ids=name_of)
def test_sums_of_more_than_2_to_the_31_elements(op: Op, variant: Variant) -> None:
    """Runs of 1000 ones; the unsorted op meets them in another order."""
    segments = -(-ROWS // RUN)
    ids = (cupy.arange(ROWS, dtype=np.int32) if op.traits["ordered"] else cupy.arange(ROWS, dtype=np.int32)[::-1].copy()) // RUN
    x, out = cupy.ones((ROWS, COLUMNS), np.float32), cupy.full((segments, COLUMNS), np.nan, np.float32)
    described = nb.SegmentDescriptor(op.name, ROWS, COLUMNS, segments)
    samples.plan_of(op, variant, described).run(input=x, segment_ids=ids, output=out)
    assert bool((out[:-1] == RUN).all()) and bool((out[-1] == ROWS - RUN * (segments - 1)).all())


@pytest.mark.memory(BOTH_ORDERS)
@pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(BACKWARD) if stem(pair[0].name) in ("sum", "mean")], ids=name_of)
def test_gradients_of_more_than_2_to_the_31_elements(op: Op, variant: Variant) -> None:
    segments = -(-ROWS // RUN)
    ids = cupy.arange(ROWS, dtype=np.int32) // RUN
    counts = cupy.full(segments, RUN, np.float32)
    counts[-1] = ROWS - RUN * (segments - 1)
    column = (cupy.arange(segments) % 1024).astype(np.float32)
    upstream = cupy.ascontiguousarray(cupy.broadcast_to((column * counts if "mean" in op.name else column)[:, None], (segments, COLUMNS)))
    out = cupy.full((ROWS, COLUMNS), np.nan, np.float32)
    samples.plan_of(op, variant, nb.SegmentDescriptor(op.name, ROWS, COLUMNS, segments)).run(d_output=upstream, segment_ids=ids, d_input=out)
    wanted = column[ids]
    for k in range(COLUMNS):
        assert bool((out[:, k] == wanted).all())


# ---------------------------------------------------------------- emulator


EXACT = [
    Sample("exact 1", 700, (1,), 60, samples.runs, whole=True),
    Sample("exact 4", 300, (4,), 200, samples.outside, whole=True, index="i64"),
    Sample("exact 37", 60, (37,), 9, whole=True, element="f64"),
    Sample("exact rank 3", 60, (3, 5), 9, whole=True),
]


#: ops that take nothing but sums, products, comparisons and roots of whole numbers, and one division
EXACT_OPS = [op for op in OPS.values() if stem(op.name) in ("sum", "mean", "max", "min", "prod", "norm2")]


def _exact_cases() -> Iterator[tuple[str, Op, bool, Sample]]:
    for op in EXACT_OPS:
        for deterministic in (True, False):
            for sample in EXACT:
                yield f"{op.name} {deterministic} {sample.name}", op, deterministic, sample


def run_emulated(into: str) -> None:
    """In a process that emulates: every case on NumPy arrays, results into a file."""
    results = {}
    for name, op, deterministic, sample in _exact_cases():
        results[name] = samples.call(op, list(samples.operands(op, sample).values()), sample.segments, deterministic=deterministic)
    np.savez(into, **results)


def test_the_emulator_computes_the_same_bits(tmp_path: Path) -> None:
    """Whole numbers, on which no order of additions rounds: tiles differ between the two, so nothing else can agree."""
    code = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        import test_gpu
        test_gpu.run_emulated({str(tmp_path / "results.npz")!r})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "NUMBA_BARACUDA_EMULATE": "1"}, check=True, timeout=500)
    emulated = np.load(tmp_path / "results.npz")
    for name, op, deterministic, sample in _exact_cases():
        inputs = [cupy.asarray(array) for array in samples.operands(op, sample).values()]
        computed = cupy.asnumpy(samples.call(op, inputs, sample.segments, deterministic=deterministic))
        np.testing.assert_array_equal(computed, emulated[name], err_msg=name)
        same = computed.view(f"i{computed.itemsize}") == emulated[name].view(f"i{computed.itemsize}")
        assert same.all(), f"{name}: {np.count_nonzero(~same)} elements differ in their bits, {computed[~same][:3]} and {emulated[name][~same][:3]}"
