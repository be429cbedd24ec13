"""Folds whose blocks look back for the rest of a run: runs over any number of blocks, ids in disorder, and statuses that are zeros for every call."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import references
import samples
import sass
from kinds import Kind
from numba.cuda import types
from samples import Sample
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda import OPS
from numba_baracuda.arrays import arrays, stream_scratch
from numba_baracuda.core.op import FRESH_BYTES, Clear, Launch, Layout, Target, contiguous
from numba_baracuda.core.trace import Trace
from numba_baracuda.emulator import emulator as emulation
from numba_baracuda.emulator import races
from numba_baracuda.plans.launches import KernelLaunch
from numba_baracuda.plans.plan import Plan
from numba_baracuda.plans.tuning import using
from numba_baracuda.runtime import cache, driver
from numba_baracuda.segment import statuses
from numba_baracuda.segment.kernels import lookback
from numba_baracuda.segment.policy import FoldLookback, FoldNarrow, FoldShortRuns, FoldStaged, FoldTiles

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

CARD = Target((9, 0), 132)
#: op, columns and element of rows that each kernel folds, and how many of them a block has
KERNELS = {
    "fold_tiles": ("segment_sum", 33, "f32", 16),
    "fold_staged": ("segment_var", 3, "f32", 8),
    "fold_narrow": ("segment_mean", 1, "f32", 512),
    "fold_short_runs": ("segment_max", 2, "f64", 256),
}
EACH = pytest.mark.parametrize("kernel", KERNELS)


@contextlib.contextmanager
def small_blocks(kernel: str) -> Iterator[None]:
    """One warp a block, and tiles of one step."""
    short = 1e9 if kernel == "fold_short_runs" else 0.0
    with (
        using(FoldTiles, threads_per_block=32, max_tile_rows=16), using(FoldNarrow, threads_per_block=32),
        using(FoldStaged, threads_per_block=32, stage_bytes=1 if kernel != "fold_staged" else 400, grid_blocks_per_multiprocessor=1),
        using(FoldShortRuns, threads_per_block=32, max_segment_rows=short),
    ):  # fmt: skip
        yield


def sample_of(kernel: str, lengths: list[int]) -> Sample:
    _, columns, element, _ = KERNELS[kernel]
    ids = np.repeat(np.arange(len(lengths)), lengths)
    return Sample(f"{kernel} looks back", sum(lengths), (columns,), len(lengths), lambda rng, rows, segments: ids, element)


def plan_for(kernel: str, sample: Sample) -> Plan:
    op = OPS[KERNELS[kernel][0]]
    return samples.plan_of(op, op.variants[0], samples.descriptor(op, sample), 1000)


def launch_of(plan: Plan) -> Launch:
    """The only launch of a fold that looks back."""
    layouts = next(iter(plan.descriptor.typical_layouts(plan.op)))
    clear, launch = plan.variant.recipe(plan.op, plan.descriptor, layouts, plan.target).steps
    assert isinstance(clear, Clear) and clear.fresh and isinstance(launch, Launch) and dict(launch.spec.constants)["looks_back"]
    return launch


def check(kind: Kind, kernel: str, lengths: list[int], seed: int | None) -> int:
    """Folds runs of these lengths, and returns the number of blocks."""
    sample = sample_of(kernel, lengths)
    with small_blocks(kernel):
        plan = plan_for(kernel, sample)
        launch, given = launch_of(plan), samples.operands(plan.op, sample)
        assert launch.spec.kernel == kernel and -(-launch.arguments["rows"] // KERNELS[kernel][3]) == launch.arguments["row_blocks"]
        got = samples.run(kind, plan, given, seed)
    assert_close(got, references.truth(plan.op.name, given, sample.segments), sample.element, plan.op.name)
    return int(launch.arguments["row_blocks"])


# ---------------------------------------------------------------- numbers of statuses


def test_statuses_before_a_block_are_those_that_blocks_publish(emulator: Kind) -> None:
    """One for each block and for each span that ends with it; all fit the room that there is."""
    statuses_before, before, published = lookback.statuses_before, np.zeros(5000, np.int32), 0

    def kernel(before: Any, blocks: Any) -> None:
        for block in range(blocks):
            before[block] = statuses_before(block)

    emulation.run(kernel, (types.CPointer(types.int32), types.int32), 1, 1, [before, len(before)])
    for block in range(len(before)):
        assert before[block] == published
        room = statuses.statuses_of(block)
        assert room >= published and statuses.most_blocks(room) >= block and statuses.statuses_of(statuses.most_blocks(room)) <= room
        published += 1 + sum((block + 1) % 4**level == 0 for level in range(1, 8))


# ---------------------------------------------------------------- runs over blocks


@EACH
@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 15, 16, 17])
def test_runs_over_blocks(emulator: Kind, kernel: str, blocks: int) -> None:
    """They end at the end of a block, or one row before it or after it; what comes before them shifts them against the spans."""
    size = KERNELS[kernel][3]
    if kernel != "fold_tiles" and blocks in (3, 15, 17):
        pytest.skip("as with other kernels")
    for shift, before in enumerate((0, 1, size, 2 * size - 1, 5 * size)):
        lengths = [before, blocks * size + shift % 3 - 1, 0, 3, blocks * size, size]
        assert check(emulator, kernel, lengths, None if size > 100 else shift) >= 2 * blocks


def test_a_run_over_64_blocks_and_one_over_all(emulator: Kind) -> None:
    for lengths in ([1, 64 * 16, 7, 0, 9], [48, 64 * 16], [0, 70 * 16], [7, 1, 81 * 16 - 9, 1, 40]):
        assert check(emulator, "fold_tiles", lengths, 3) > 64


@EACH
def test_every_schedule_gives_the_same_bits(emulator: Kind, kernel: str) -> None:
    size = KERNELS[kernel][3]
    sample = sample_of(kernel, [3, 5 * size, 0, 6 * size + 2, 1, size - 1, 2 * size])
    with small_blocks(kernel):
        plan = plan_for(kernel, sample)
        given = samples.operands(plan.op, sample)
        given["input"] *= np.exp2(np.random.default_rng(1).integers(-12, 12, given["input"].shape)).astype(given["input"].dtype)
        launch_of(plan)
        first = samples.run(emulator, plan, given)
        for seed in range(3):
            assert samples.run(emulator, plan, given, seed).tobytes() == first.tobytes()


@EACH
def test_counts_of_runs_over_blocks(emulator: Kind, kernel: str) -> None:
    """Means of ones are 1 only if each row is counted once."""
    _, columns, element, size = KERNELS[kernel]
    ids = np.repeat(np.arange(5, dtype=np.int32), [2, 17 * size, 0, 4 * size + 5, 1])
    x = np.ones((len(ids), columns), np.float64 if element == "f64" else np.float32)
    with small_blocks(kernel), emulator.schedule(None):
        means = nb.segment_mean(emulator.array(x), emulator.array(ids), 5)
        assert (means == np.array([1, 1, 0, 1, 1])[:, None]).all()


# ---------------------------------------------------------------- ids that are not in order, or out of range


@EACH
@pytest.mark.parametrize("ids", ["permuted", "descending", "alternating"])
def test_ids_in_disorder_never_wait_for_ever(emulator: Kind, monkeypatch: pytest.MonkeyPatch, kernel: str, ids: str) -> None:
    """Blocks may store one segment twice, which is no race worth reporting; they end, and stay inside the arrays."""
    found = races.check

    def check_but_races(*access: Any) -> bool:
        try:
            return found(*access)
        except races.Race:
            return True

    monkeypatch.setattr(races, "check", check_but_races)
    size = KERNELS[kernel][3]
    sample = sample_of(kernel, [7, 9 * size, 1, 0, 3 * size, 5])
    with small_blocks(kernel):
        plan = plan_for(kernel, sample)
        launch_of(plan)
        given = samples.operands(plan.op, sample)
        ordered, rng = given["segment_ids"], np.random.default_rng(5)
        for seed in range(6 if size < 100 else 2):
            # heads at the borders of blocks, of which each other row has another id
            alternating = np.where(np.arange(len(ordered)) % size == 0, 1, rng.integers(-1, 2, len(ordered))).astype(np.int32)
            given["segment_ids"] = {"permuted": rng.permutation(ordered), "descending": ordered[::-1].copy(), "alternating": alternating}[ids]
            samples.run(emulator, plan, given, seed)


@EACH
def test_ids_out_of_range_over_blocks(emulator: Kind, kernel: str) -> None:
    """Runs of them cross blocks, next to those of the first and the last segment."""
    op, columns, element, size = KERNELS[kernel]
    lengths = [2 * size + 1, 2 * size, 3, 0, size + 4, 2 * size, size]
    ids = np.repeat(np.array([-9, -1, 0, 1, 2, 3, 1 << 30]), lengths)
    sample = Sample(f"{kernel} outside", len(ids), (columns,), 3, lambda rng, rows, segments: ids, element)
    with small_blocks(kernel):
        plan = plan_for(kernel, sample)
        launch_of(plan)
        given = samples.operands(OPS[op], sample)
        got = samples.run(emulator, plan, given, 2 if size < 100 else None)
    assert_close(got, references.truth(op, given, 3), element, op)


# ---------------------------------------------------------------- memory of statuses


def status_of(launch: KernelLaunch) -> int:
    """The index of the argument for statuses."""
    return [each.name for each in launch.kernel.parameters].index("run_status")


def launches(kind: Kind, plan: Plan, sample: Sample) -> tuple[list[Any], dict[str, Any], Any]:
    """The steps of a plan, its operands, and its output."""
    given, output = samples.operands(plan.op, sample), plan.op.operands[-1]
    extent = getattr(plan.descriptor, output.axes[0])
    out = kind.poisoned((extent, sample.columns), np.float64 if sample.element == "f64" else np.float32)
    return plan.launches(**{name: kind.array(array) for name, array in given.items()}, **{output.name: out}), given, out


def test_calls_of_all_sizes_share_the_memory_of_a_stream(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call finds zeros, whatever those before it were, and publishes nothing behind what it asked for."""
    memory, renewed = np.zeros(1 << 11, np.int64), list[int]()

    def memset(address: int, nbytes: int, *rest: Any) -> None:
        assert not memory[nbytes // 8 :].any()
        memory[: nbytes // 8] = 0
        renewed.append(nbytes)

    monkeypatch.setattr(driver, "memset_async", memset)
    monkeypatch.setattr(stream_scratch, "ALL_FRESH_BYTES", memory.nbytes)
    fresh, rng = stream_scratch.Fresh(0), np.random.default_rng(2)
    for _ in range(60):
        kernel = str(rng.choice(list(KERNELS)))
        size = KERNELS[kernel][3]
        most = 60 if size < 100 else 12
        sample = sample_of(kernel, [int(each) for each in rng.integers(1, most * size // 3, 4)])
        with small_blocks(kernel):
            plan = plan_for(kernel, sample)
            (*cleared, launch), given, out = launches(emulator, plan, sample)
        if not cleared:  # one block has all rows
            continue
        assert isinstance(launch, KernelLaunch)
        arguments, at = list(launch.arguments), status_of(launch)
        first, count = fresh.take(arguments[at].nbytes, 0, 0) // 8, len(arguments[at])
        arguments[at] = memory[first : first + count]
        assert not arguments[at].any()
        dataclasses.replace(launch, arguments=tuple(arguments))()
        assert_close(out, references.truth(plan.op.name, given, sample.segments), sample.element, plan.op.name)
    assert len(renewed) > 2


@pytest.mark.gpu
def test_folds_of_all_sizes_share_the_memory_of_their_streams() -> None:
    """With scans among them, in one order of sizes on each of two streams. Ones are counted."""
    random, streams = np.random.default_rng(11), [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for _ in range(300):
        rows, columns, op = (
            int(2 ** random.uniform(8, 21)),
            int(random.choice([1, 2, 3, 8, 17, 64, 200])),
            str(random.choice(["sum", "mean", "scan"])),
        )
        columns, segments = min(columns, 1 << 25 >> rows.bit_length()), int(2 ** random.uniform(0, 12))
        ids = np.sort(random.integers(0, segments, rows, np.int32) if random.random() < 0.5 else np.minimum(random.zipf(1.3, rows) - 1, segments - 1))
        counts = np.bincount(ids, minlength=segments)
        with streams[random.integers(2)]:
            ones, given = cupy.ones((rows, columns), np.float32), cupy.array(ids.astype(np.int32))
            if op == "scan":
                assert bool((nb.cumsum(ones, 0) == cupy.arange(1, rows + 1, dtype=np.float32)[:, None]).all())
                continue
            made = cupy.asnumpy(getattr(nb, f"segment_{op}")(ones, given, segments))
        wanted = counts if op == "sum" else counts > 0
        np.testing.assert_array_equal(made, np.broadcast_to(wanted[:, None], made.shape), err_msg=f"{op} {rows} {columns} {segments}")


@pytest.mark.gpu
def test_captured_and_bound_folds_have_zeros_in_every_replay() -> None:
    rows, segments, rng = 200_000, 50, np.random.default_rng(4)
    x, ids = cupy.array(rng.random((rows, 24), np.float32)), cupy.array(np.sort(rng.integers(0, segments, rows, np.int32)))
    out, wanted = cupy.empty((segments, 24), np.float32), nb.segment_sum(x, ids, segments)
    plan = nb.select(nb.SegmentDescriptor("segment_sum", rows, 24, segments))
    call = plan.bind(input=x, segment_ids=ids, output=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        plan.run(stream=stream.ptr, input=x, segment_ids=ids, output=out)
        stream.begin_capture()
        plan.run(stream=stream.ptr, input=x, segment_ids=ids, output=out)
        graph = stream.end_capture()
    stream.synchronize()
    for again in (call, lambda: graph.launch(stream)):
        for _ in range(5):
            out[:] = -1
            cupy.cuda.Device().synchronize()
            again()
            cupy.cuda.Device().synchronize()
            assert bool((out == wanted).all())


# ---------------------------------------------------------------- which folds look back


def steps_of(rows: int, columns: int, op: str = "segment_sum", **layouts: Layout) -> tuple[Any, ...]:
    row, descriptor = OPS[op], nb.SegmentDescriptor(op, rows, columns, 1000)
    usual = next(iter(descriptor.typical_layouts(row)))
    return row.variants[0].recipe(row, descriptor, usual | layouts, CARD).steps


@pytest.mark.parametrize(("rows", "columns", "kernels"), [
    (8, 64, ["fold_tiles"]), (20_000, 64, ["Clear", "fold_tiles"]), (1 << 20, 64, ["Clear", "fold_tiles"]), (1 << 21, 1, ["Clear", "fold_narrow"]),
    (1 << 21, 512, ["fold_tiles", "fold_carries", "fold_carries"]), (1 << 26, 64, ["fold_tiles", "fold_carries", "fold_carries"]),
])  # fmt: skip
def test_folds_look_back_where_their_statuses_fit(rows: int, columns: int, kernels: list[str]) -> None:
    steps = steps_of(rows, columns)
    assert [step.spec.kernel if isinstance(step, Launch) else type(step).__name__ for step in steps] == kernels
    with using(FoldLookback, max_status_bytes=1):
        assert not any(isinstance(step, Clear) for step in steps_of(rows, columns))


@pytest.mark.compile
@pytest.mark.parametrize(("op", "columns"), [("segment_sum", 1), ("segment_sum", 7), ("segment_mean", 64), ("segment_argmax", 33)])
def test_statuses_are_read_whole(op: str, columns: int) -> None:
    """A part that is read apart from its flag may be older than that."""
    launch = steps_of(200_000, columns, op)[-1]
    loads = re.findall(r"\bLDG\.\S*STRONG\S*", sass.disassemble(cache.cubin(launch.spec.plain(), CARD.arch)))
    assert loads and all(".128." in load for load in loads)


@pytest.mark.parametrize("multiprocessors", [10, 20, 132])
def test_blocks_that_wait_for_one_that_starts_last_leave_others_room(multiprocessors: int) -> None:
    """One in which a run ends and the last of each span, of 4 blocks to as many as there are, in each chunk of columns."""
    spans = max(level for level in range(20) if 4**level <= statuses.most_blocks(FRESH_BYTES // 16))
    for chunks in (1, 2, 13, 14, 40):
        early = statuses.early_blocks(1000, chunks, multiprocessors, True)
        assert early == (125 if (spans + 1) * chunks < multiprocessors else 0)
        assert statuses.early_blocks(1000, chunks, multiprocessors, False) == 125


def test_a_status_of_32_bits_counts_no_more_rows_than_it_can() -> None:
    for op, several in (("segment_sum", 1), ("segment_mean", 2)):
        with using(FoldTiles, max_tile_rows=1 << 20):
            kernels = [step.spec.kernel for step in steps_of(1 << 30, 65, op) if isinstance(step, Launch)]
        assert kernels == ["fold_tiles", "fold_carries"][:several]


def test_other_sizes_that_look_back_too_have_the_same_program() -> None:
    """One bound on the number of blocks tells them from those that leave carries."""
    row, trace = OPS["segment_sum"], Trace()
    (rows,) = trace.sizes([20_000], low=0)
    descriptor = nb.SegmentDescriptor("segment_sum", rows, 64, 1000)
    usual = {operand.name: contiguous(tuple(getattr(descriptor, axis) for axis in operand.axes)) for operand in row.operands}
    recipe = row.variants[0].recipe(row, descriptor, usual, CARD)
    launch = recipe.steps[-1]
    assert isinstance(launch, Launch)
    replay = trace.compile((launch.config[0], launch.arguments["row_blocks"], recipe.slots[0].count))
    for other, same in ((21_000, True), (400_000, None), (1 << 28, False)):
        made = replay((other,))
        if same is not None:
            assert (made is not None) == same
        if made:
            plain = row.variants[0].recipe(row, dataclasses.replace(descriptor, num_inputs=other), {
                operand.name: contiguous(tuple(getattr(dataclasses.replace(descriptor, num_inputs=other), axis) for axis in operand.axes))
                for operand in row.operands
            }, CARD)  # fmt: skip
            assert made == (plain.steps[-1].config[0], plain.steps[-1].arguments["row_blocks"], plain.slots[0].count)
