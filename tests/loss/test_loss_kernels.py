"""Row kernels of the fused linear cross-entropy: the same bits under any schedule and grid, faults that are found, and what cards hold of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import Kind
from loss_cases import problem
from numba import cuda
from numba.cuda.types import CPointer, float32, int64

import numba_baracuda as nb
from numba_baracuda.core.op import Target
from numba_baracuda.emulator import emulator as _emulator
from numba_baracuda.emulator.emulated import mode
from numba_baracuda.emulator.memory import Memory, MemoryFault
from numba_baracuda.loss import geometry
from numba_baracuda.loss.policy import CrossEntropyRows
from numba_baracuda.plans.memos import forget
from numba_baracuda.plans.tuning import using
from numba_baracuda.runtime import jit


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_schedule_gives_the_same_bits(emulator: Kind, seed: int) -> None:
    """No lane reads what another may be writing: rows of several warps, targets in every part of a row, blocks with one left out among theirs."""
    rng = np.random.default_rng(seed)
    x, w, target = problem(6, 3, 1930)
    target[:] = [0, 1929, -100, rng.integers(0, 1930), 1927, 600]
    fast = nb.fused_linear_cross_entropy(x, w, target, grad_input=True, return_predicted=True, chunk=5)
    with emulator.schedule(seed):
        checked = nb.fused_linear_cross_entropy(x, w, target, grad_input=True, return_predicted=True, chunk=5)
    for a, b in zip(fast, checked, strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)


def _two_hazards(late: bool, shared_twice: bool) -> Any:
    """A row's softmax gradient as the forerunner of this op has it, with either of its races."""

    def kernel(x: Any, losses: Any, target: Any) -> None:
        held = cuda.shared.array(64, "float32")
        lane = cuda.threadIdx.x
        held[lane] = x[lane]
        cuda.syncthreads()
        top = held[0]
        for k in range(1, 64):
            top = max(top, held[k])
        aim = x[target]
        if not shared_twice:
            cuda.syncthreads()
        held[lane] = x[lane] - top  # while others may still be looking for the greatest
        cuda.syncthreads()
        total = held[0]
        for k in range(1, 64):
            total += held[k]
        x[lane] = held[lane] / total
        if lane == 0:
            losses[0] = (x[target] if late else aim) - top  # late: when its own lane has overwritten it

    return kernel


@pytest.mark.parametrize(("late", "shared_twice"), [(False, False), (True, False), (False, True)])
def test_planted_races_are_found(emulator: Kind, late: bool, shared_twice: bool) -> None:
    from numba_baracuda.emulator.races import Race

    def run(seed: int) -> None:
        x, losses = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
        kinds = CPointer(float32), CPointer(float32), int64
        places = [Memory.of(name, array) for name, array in (("x", x), ("losses", losses))]
        pointers = [_emulator.pointer_into(memory, offset, kind) for (memory, offset), kind in zip(places, kinds, strict=False)]
        _emulator.run(_two_hazards(late, shared_twice), kinds, 1, 64, [*pointers, 40], mode=_emulator.Mode(seed))

    if late or shared_twice:
        with pytest.raises(Race):
            for seed in range(5):
                run(seed)
    else:
        run(1)


def test_places_are_waited_for(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row kernel that does not wait for what it copies is found out."""
    from numba_baracuda.loss.kernels import rows

    x, w, target = problem(5, 3, 1930)
    nb.fused_linear_cross_entropy(x, w, target, grad_input=True)
    monkeypatch.setattr(rows, "await_copies", lambda pending: jit.device(lambda: None))
    rows.cross_entropy_rows.cache_clear()
    forget()
    try:
        with pytest.raises(MemoryFault, match="read before it was written"):
            nb.fused_linear_cross_entropy(x, w, target, grad_input=True)
    finally:
        rows.cross_entropy_rows.cache_clear()
        forget()


def test_any_number_of_blocks_gives_the_same_bits(emulator: Kind) -> None:
    """Blocks take one row to five, several at a time or one after the other: none waits for another."""
    x, w, target = problem(5, 3, 1030)
    target[2] = -100
    made = []
    for blocks, resident in ((1, 1), (2, 1), (3, 4), (5, 2)):
        with using(CrossEntropyRows, grid_blocks=blocks), mode(_emulator.Mode(blocks, resident)):
            result = nb.fused_linear_cross_entropy(x, w, target, reduction="none", grad_input=True, grad_weight=True)
        made.append([result.loss, result.grad_input, result.grad_weight])
    for other in made[1:]:
        for a, b in zip(made[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


#: capability: most threads, blocks and KiB of shared memory of a multiprocessor
LIMITS = {
    (8, 0): (2048, 32, 164), (8, 6): (1536, 16, 100), (8, 7): (1536, 16, 164), (8, 9): (1536, 24, 100), (9, 0): (2048, 32, 228),
    (10, 0): (2048, 32, 228), (10, 3): (2048, 32, 228), (11, 0): (1536, 24, 228), (12, 0): (1536, 24, 100), (99, 0): (1024, 16, 100),
}  # fmt: skip


@pytest.mark.parametrize("capability", LIMITS)
@pytest.mark.parametrize("value", ["f16", "bf16", "f32", "f64"])
def test_a_multiprocessor_holds_its_blocks(capability: tuple[int, int], value: str) -> None:
    """With a register file of 64 Ki words, a KiB of shared memory that each block loses, and half of one for its reduction."""
    threads_limit, blocks_limit, shared = LIMITS[capability]
    target, size = Target(capability, 10), nb.core.dtypes.BY_NAME[value]
    for classes in (2, 300, 600, 4096, 16000, 25000, 32000, 50257, 128256):
        for deal in (geometry.persistent_blocks, geometry.block_per_row):
            threads, resident, held, blocks = deal(100000, classes, value, target)
            assert 1 <= resident <= blocks_limit and resident * threads <= min(threads_limit, (1 << 16) // (128 if value == "f64" else 64))
            if deal is geometry.persistent_blocks:
                assert held >= CrossEntropyRows.min_items_per_thread // 2 * threads * size.vector and held % (threads * size.vector) == 0
                assert resident * (held * size.itemsize + 1536) <= shared << 10
                assert blocks == 10 * resident and deal(3, classes, value, target).blocks == 3
            else:
                assert (held, blocks) == (0, 100000)


@pytest.mark.parametrize(("classes", "dealt"), [(128256, (1024, 1)), (50257, (512, 2)), (32000, (256, 3)), (16000, (256, 4)), (1000, (32, 32))])
def test_large_rows_are_held_whole(classes: int, dealt: tuple[int, int]) -> None:
    """Threads of a block, and blocks of a multiprocessor; a Hopper card holds one row of 128256 halves only in part."""
    found = geometry.persistent_blocks(2048, classes, "bf16", Target((9, 0), 132))
    assert (found.threads, found.resident) == dealt and (found.shared_classes >= classes) == (classes != 128256)
