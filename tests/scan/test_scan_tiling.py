"""Tile sizes of scans, the kernel that each layout gets, and rows and columns that blocks share, in any order of blocks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from scan_cases import EVERY, check, check_backward, values

import numba_baracuda as nb
from numba_baracuda import OPS, ScanBackwardDescriptor, ScanDescriptor
from numba_baracuda.arrays import arrays
from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.core.op import Clear, Launch, Layout, Target, contiguous
from numba_baracuda.plans.tuning import using
from numba_baracuda.scan.policy import ScanColumns, ScanLongColumns, ScanLongRows, ScanSlices
from numba_baracuda.scan.policy_of import EMULATED_THREADS
from numba_baracuda.scan.problem import Problem
from numba_baracuda.scan.tiling import pieces_of, status_words, steps_of

CARD = Target((9, 0), 132)
FEW = EMULATED_THREADS * steps_of(ScanLongRows.bytes_per_thread, 4, 4) * 4  #: elements of a tile of a long row in the emulator


def recipe(shape: tuple[int, ...], axis: int, name: str = "cumsum", address: int = 0, pad: int = 0, lookback: bool = False, **options: Any) -> Any:
    """The recipe for arrays whose last axis is followed by ``pad`` elements."""
    op = OPS[name]
    made = ScanBackwardDescriptor if op.traits["backward"] else ScanDescriptor
    descriptor = made(op.kind, shape, axis, **options)
    strides = contiguous((*shape[:-1], shape[-1] + pad)).strides
    layouts = {operand.name: Layout(shape, strides, address) for operand in descriptor.specialise(op).operands}
    return op.variants[0 if lookback else 1].recipe(descriptor.specialise(op), descriptor, layouts, CARD)


@pytest.mark.parametrize(
    ("shape", "axis", "options", "kernel", "constants"),
    [
        ((1 << 14, 1 << 14), 1, {}, "scan_rows", {"lanes": 256, "vector": 4, "steps": 8, "peeled": False, "reverse": False}),
        ((1 << 14, 1 << 14), 1, {"name": "cumsum_backward"}, "scan_rows", {"reverse": True}),
        ((1 << 14, 1 << 14), 1, {"name": "cumprod_backward", "reverse": True}, "scan_rows", {"reverse": False, "lanes": 128, "steps": 4}),
        ((1 << 14, 1 << 14), 1, {"name": "cummax_backward", "reverse": True}, "scan_rows", {"reverse": True, "lanes": 128}),
        ((1 << 14, 1 << 14), 1, {"address": 4}, "scan_rows", {"vector": 4, "peeled": True}),
        ((1 << 14, 4099), 1, {}, "scan_rows", {"vector": 4, "peeled": True}),
        ((1 << 14, 4099), 1, {"name": "cummax", "index": "i64"}, "scan_rows", {"vector": 4, "peeled": True, "index": "i64"}),
        ((1 << 14, 4099), 1, {"element": "i32"}, "scan_rows", {"vector": 4, "peeled": True, "steps": 4, "value": "i32", "result": "i64"}),
        ((1 << 14, 4099), 1, {"element": "i32", "result": "i32"}, "scan_rows", {"vector": 4, "peeled": True, "steps": 8, "result": "i32"}),
        ((1 << 14, 1 << 14), 1, {"element": "bool"}, "scan_rows", {"vector": 4, "value": "bool", "result": "i64"}),
        ((1 << 14, 1 << 14), 1, {"element": "bool", "result": "i32"}, "scan_rows", {"vector": 8, "value": "bool", "result": "i32"}),
        ((1 << 14, 1 << 14), 0, {"element": "i32"}, "scan_columns", {"vector": 2, "lanes": 16, "steps": 8, "result": "i64"}),
        ((1, (1 << 27) + 3), 1, {"element": "i32", "exclusive": True}, "scan_long_rows", {"vector": 4, "peeled": True, "result": "i64"}),
        ((1 << 20, 37), 1, {"pad": 1}, "scan_rows", {"vector": 1, "peeled": False, "lanes": 8, "steps": 8}),
        ((1 << 20, 37), 1, {}, "scan_rows", {"vector": 4, "peeled": True, "lanes": 32, "steps": 8, "threads": 256, "segmented": True}),
        ((1 << 20, 37), 1, {"address": 4, "name": "cummax_backward"}, "scan_rows", {"vector": 4, "lanes": 32, "steps": 4, "segmented": True}),
        ((1 << 20, 510), 1, {}, "scan_rows", {"vector": 4, "lanes": 32, "segmented": True}),
        ((1 << 20, 513), 1, {}, "scan_rows", {"vector": 4, "peeled": True, "lanes": 32, "segmented": False}),
        ((2335, 19_911), 1, {"element": "bf16"}, "scan_rows", {"vector": 8, "peeled": True, "lanes": 160, "steps": 8, "threads": 160}),
        ((1 << 20, 256), 1, {}, "scan_rows", {"lanes": 8, "steps": 8, "threads": 256}),
        ((81_157, 1095), 1, {"name": "logcumsumexp_backward", "element": "bf16"}, "scan_rows", {"lanes": 96, "steps": 2, "threads": 96}),
        ((81_157, 1295), 1, {"name": "logcumsumexp_backward", "element": "bf16"}, "scan_rows", {"lanes": 64, "steps": 4, "threads": 64}),
        ((81_157, 2100), 1, {"element": "bf16"}, "scan_rows", {"lanes": 64, "steps": 8, "threads": 64}),
        ((1 << 22, 16), 1, {}, "scan_rows", {"lanes": 4, "steps": 1}),
        ((1 << 22, 16), 1, {"name": "cummin_backward", "address": 4}, "scan_rows", {"peeled": True, "segmented": True}),
        ((1 << 22, 16), 1, {"name": "cummin_backward"}, "scan_slices", {"vector": 4, "steps": 4, "threads": 128}),
        ((1 << 22, 16), 1, {"name": "cumprod_backward"}, "scan_slices", {"vector": 4, "reverse": True}),
        ((1 << 22, 19), 1, {"name": "cumprod_backward"}, "scan_rows", {"segmented": True}),
        ((1 << 22, 19), 1, {"name": "logcumsumexp", "element": "f64"}, "scan_slices", {"vector": 2}),
        ((1 << 22, 19), 1, {"name": "logcumsumexp_backward", "element": "bf16"}, "scan_slices", {"vector": 8, "length": 0}),
        ((1 << 22, 5), 1, {"name": "cummin_backward"}, "scan_slices", {"vector": 4, "length": 5, "padded": False}),
        ((1 << 22, 127), 1, {"name": "cummin_backward"}, "scan_slices", {}),
        ((1 << 22, 129), 1, {"name": "cummin_backward"}, "scan_rows", {"segmented": True}),
        ((1 << 22, 68), 1, {"name": "cummin_backward"}, "scan_rows", {"peeled": False}),
        ((1 << 20, 24, 4), 1, {"name": "logcumsumexp_backward"}, "scan_slices", {"vector": 4, "reverse": True}),
        ((1 << 20, 24, 4), 1, {"element": "bf16"}, "scan_slices", {"vector": 8}),
        ((1 << 20, 24, 4), 1, {"pad": 4}, "scan_columns", {"vector": 4}),
        ((1 << 20, 24, 4), 1, {"name": "cummax", "index": "i64"}, "scan_columns", {"index": "i64"}),
        ((1 << 18, 200, 4), 1, {}, "scan_slabs", {"whole": True, "threads": 32, "room": 2048}),
        ((1 << 18, 90, 4), 1, {}, "scan_slices", {"vector": 4, "length": 0}),
        ((1 << 18, 128, 4), 1, {}, "scan_slices", {"padded": True}),
        ((1 << 18, 129, 4), 1, {}, "scan_slabs", {"whole": True, "threads": 32}),
        ((1 << 10, 90, 4), 1, {}, "scan_columns", {"dense": 0, "vector": 4}),
        ((683, 251, 76, 3), 2, {}, "scan_slices", {"padded": False}),
        ((1 << 21, 40, 2), 1, {"name": "cumprod_backward", "element": "bf16"}, "scan_slices", {"vector": 8}),
        ((1 << 20, 24, 32), 1, {}, "scan_columns", {}),
        ((1 << 20, 7, 25), 1, {"name": "cummax_backward", "element": "bf16"}, "scan_columns", {"whole": True}),
        ((1 << 20, 1), 1, {}, "scan_columns", {}),
        ((1 << 14, 1 << 14), 0, {}, "scan_columns", {"lanes": 16, "vector": 4, "steps": 8}),
        ((1 << 14, 1 << 14), 0, {"element": "bf16"}, "scan_columns", {"lanes": 16, "vector": 4, "steps": 16}),
        ((1 << 14, 1 << 14), 0, {"name": "logcumsumexp"}, "scan_columns", {"lanes": 8, "vector": 4, "steps": 4}),
        ((1 << 14, 1 << 14), 0, {"address": 4}, "scan_columns", {"vector": 1}),
        ((4, 43_145_613), 0, {}, "scan_columns", {"lanes": 256, "vector": 1, "steps": 4, "whole": True}),
        ((4, 46_475_412), 0, {}, "scan_columns", {"lanes": 256, "vector": 4, "steps": 4, "whole": True}),
        ((555, 7, 17_223), 1, {"element": "bf16"}, "scan_columns", {"lanes": 256, "vector": 1, "steps": 7, "whole": True}),
        ((4, 1, 42_237_562), 1, {"name": "logcumsumexp"}, "scan_columns", {"lanes": 256, "vector": 4, "steps": 1, "whole": True}),
        ((95, 819_846), 0, {"element": "bf16"}, "scan_columns", {"lanes": 256, "vector": 2, "steps": 8, "whole": False}),
        ((95, 819_845), 0, {"name": "logcumsumexp"}, "scan_columns", {"lanes": 256, "vector": 1, "steps": 16}),
        ((320, 443_468), 0, {"name": "logcumsumexp"}, "scan_columns", {"lanes": 16, "vector": 4, "steps": 4}),
        ((40, 100_000), 0, {}, "scan_columns", {"lanes": 32, "vector": 4, "steps": 8, "whole": False}),
        ((20, 100_000), 0, {}, "scan_columns", {"lanes": 64, "vector": 4, "steps": 8, "whole": False}),
        ((7251, 4794, 6), 1, {"element": "bf16"}, "scan_slabs", {"lanes": 8, "levels": 16, "room": 36_864, "threads": 128, "whole": True}),
        ((7251, 4794, 6), 1, {"name": "cummax", "index": "i64"}, "scan_columns", {"index": "i64"}),
        ((2000, 13_001, 3), 1, {"element": "bf16"}, "scan_slabs", {"room": 24_576, "threads": 128}),
        ((5256, 1417, 6), 1, {}, "scan_slabs", {"room": 12_288, "whole": True}),
        ((2764, 123, 100), 1, {"name": "logcumsumexp", "element": "bf16"}, "scan_slabs", {"pitch": 112, "whole": True}),
        ((9225, 78, 77), 1, {"name": "logcumsumexp_backward", "element": "bf16"}, "scan_columns", {"vector": 1}),
        ((10_552, 19, 200), 1, {"name": "cummin", "element": "bf16"}, "scan_columns", {"vector": 4}),
        ((45_715, 80, 16), 1, {"name": "cumsum_backward"}, "scan_columns", {"vector": 4}),
        ((800, 40_794, 21), 1, {}, "scan_slabs", {"lanes": 32, "pitch": 0, "threads": 128, "group_tiles": 8}),
        ((800, 40_794, 21), 1, {"pad": 1}, "scan_columns", {"vector": 1, "dense": 0}),
        ((800, 1_000, 21), 1, {}, "scan_slabs", {"lanes": 32, "room": 12_288, "threads": 128}),
        ((700, 40_001), 0, {}, "scan_columns", {"lanes": 256, "threads": 256, "vector": 1}),
        ((700, 40_002), 0, {}, "scan_columns", {"lanes": 32, "threads": 256, "vector": 2}),
        ((639, 153_460), 0, {"name": "cummax_backward"}, "scan_columns", {"lanes": 256, "vector": 2, "steps": 8}),
        ((639, 153_461), 0, {"name": "cummax_backward"}, "scan_columns", {"lanes": 256, "vector": 1, "steps": 16}),
        ((132, 153_460), 0, {"name": "cummax_backward"}, "scan_slabs", {"whole": True, "pitch": 32, "lanes": 32, "threads": 128}),
        ((132, 153_460), 0, {"name": "cummax_backward", "address": 4}, "scan_columns", {"lanes": 256, "steps": 16}),
        ((100, 600_002), 0, {"name": "cummax_backward"}, "scan_slabs", {"whole": True, "pitch": 68, "lanes": 64, "room": 8192}),
        ((11, 5, 4_740_234), 1, {"name": "cummax_backward"}, "scan_columns", {"whole": True, "lanes": 256, "vector": 2, "steps": 5}),
        ((11, 9, 4_740_234), 1, {"name": "cummax_backward"}, "scan_slabs", {"whole": True}),
        ((100, 600_002), 0, {"name": "cummax"}, "scan_columns", {"lanes": 256}),
        ((12_983, 21, 972), 1, {"name": "cummax_backward"}, "scan_slabs", {"whole": True, "pitch": 124, "lanes": 128, "threads": 128}),
        ((4, 153_460), 0, {"name": "cummax_backward"}, "scan_columns", {"whole": True}),
        ((129_228, 318, 2), 1, {"name": "cummin_backward", "element": "bf16"}, "scan_slabs", {"whole": True, "lanes": 2, "threads": 32}),
        ((222_873, 309, 3), 1, {"name": "cummin_backward", "element": "f64"}, "scan_slabs", {"whole": True, "threads": 64, "room": 1024}),
        ((114, 23_001, 86), 1, {"name": "cummin_backward"}, "scan_slabs", {"lanes": 32, "pitch": 36}),
        ((114, 23_001, 88), 1, {"name": "cummin_backward"}, "scan_columns", {"lanes": 16}),
        ((2726, 3495, 6), 1, {"name": "cumsum_backward", "element": "bf16"}, "scan_slabs", {"whole": True, "threads": 128}),
        ((2726, 900, 5), 1, {"name": "cumsum_backward", "element": "f64"}, "scan_slabs", {"whole": True, "threads": 128}),
        ((7251, 100, 6), 1, {}, "scan_slabs", {"whole": True, "lanes": 8, "threads": 32}),
        ((200, 100, 6), 1, {}, "scan_columns", {"lanes": 8, "vector": 1, "dense": 4, "threads": 64}),
        ((7251, 4794, 6), 1, {"address": 4}, "scan_columns", {"lanes": 8, "vector": 1, "dense": 0}),
        ((7251, 4794, 6), 1, {"pad": 1}, "scan_columns", {"vector": 1, "dense": 0}),
        ((50_000_003, 5), 0, {}, "scan_slabs", {"lanes": 8, "pitch": 0, "grain": 1, "room": 12288, "group_tiles": 64}),
        ((50_000_003, 5), 0, {"pad": 1}, "scan_long_columns", {"lanes": 8, "vector": 1, "steps": 32}),
        ((50_000_003, 5), 0, {"address": 4}, "scan_long_columns", {"lanes": 8, "vector": 1, "steps": 32}),
        ((50_000_003, 5), 0, {"name": "cumsum_backward"}, "scan_slabs", {"pitch": 0, "reverse": True}),
        ((48, 669_749, 5), 1, {"name": "cumprod_backward"}, "scan_slabs", {"pitch": 0, "room": 5972, "reverse": True}),
        ((10_686_821, 5), 0, {"name": "logcumsumexp_backward", "element": "bf16"}, "scan_slabs", {"room": 11944, "lanes": 8}),
        ((979, 132_318, 2), 1, {"name": "cummin_backward", "element": "bf16"}, "scan_slabs", {"lanes": 2, "pitch": 0, "room": 16384}),
        ((979, 132_318, 2), 1, {"name": "cummin_backward", "element": "bf16", "pad": 2}, "scan_long_columns", {"l1_cached": True}),
        ((288, 5827, 33), 1, {"name": "logcumsumexp_backward"}, "scan_slabs", {"lanes": 64, "pitch": 0}),
        ((288, 5827, 33), 1, {"name": "logcumsumexp_backward", "pad": 1}, "scan_long_columns", {"lanes": 32, "vector": 1, "batches": 2}),
        ((6000, 9000), 0, {"name": "logcumsumexp_backward"}, "scan_columns", {"vector": 4}),
        ((3_539_710, 2, 7), 0, {"name": "cummin_backward"}, "scan_slabs", {"lanes": 16, "room": 8192, "reverse": False}),
        ((72_599, 2, 2254), 0, {"name": "cummin_backward"}, "scan_slabs", {"lanes": 32, "pitch": 32}),
        ((345_678, 777), 0, {"name": "cummax_backward", "element": "bf16"}, "scan_slabs", {"lanes": 64, "pitch": 72}),
        ((5042, 4349, 5), 1, {"name": "cummax_backward", "element": "bf16"}, "scan_slabs", {"lanes": 8, "pitch": 0}),
        ((5042, 1500, 5), 1, {"name": "cummax_backward", "element": "bf16"}, "scan_slabs", {"whole": True, "threads": 128}),
        ((50, 4349, 5), 1, {"name": "cummax_backward", "element": "bf16"}, "scan_long_columns", {"lanes": 8}),
        ((6, 121, 6263, 13), 2, {"name": "cummax_backward"}, "scan_slabs", {"lanes": 16, "pitch": 0}),
        ((50_000_003, 5), 0, {"name": "cummax", "index": "i64"}, "scan_long_columns", {"index": "i64"}),
        ((345_678, 777), 0, {}, "scan_slabs", {"lanes": 64, "pitch": 64, "grain": 1, "room": 12288, "group_tiles": 8}),
        ((345_678, 777), 0, {"pad": 1}, "scan_long_columns", {"lanes": 32, "vector": 1, "steps": 32, "batches": 1, "threads": 512}),
        ((345_678, 777), 0, {"name": "cummax", "index": "i64"}, "scan_long_columns", {"lanes": 32, "steps": 16, "threads": 256}),
        ((345_678, 777), 0, {"element": "f64"}, "scan_slabs", {"pitch": 62, "grain": 1, "room": 6144}),
        ((345_678, 777), 0, {"element": "f64", "pad": 2}, "scan_long_columns", {"lanes": 16, "steps": 16, "batches": 1, "threads": 256}),
        ((345_678, 777), 0, {"element": "f64", "name": "cumprod_backward"}, "scan_long_columns", {}),
        ((345_678, 778), 0, {"element": "bf16"}, "scan_slabs", {"lanes": 64, "pitch": 72, "grain": 2}),
        ((345_678, 776), 0, {"element": "bf16"}, "scan_slabs", {"lanes": 64, "pitch": 64, "grain": 8}),
        ((345_678, 32_000), 0, {"element": "bf16"}, "scan_columns", {"vector": 4}),
        ((345_678, 778), 0, {"element": "bf16", "pad": 2}, "scan_long_columns", {"lanes": 16, "vector": 2, "steps": 16, "batches": 2}),
        ((1 << 20, 37), 0, {}, "scan_slabs", {"lanes": 64, "pitch": 0}),
        ((1 << 20, 37), 0, {"pad": 2}, "scan_long_columns", {"lanes": 16, "vector": 1}),
        ((72_599, 2, 2254), 0, {}, "scan_slabs", {"pitch": 64, "grain": 4}),
        ((1 << 20, 24), 0, {}, "scan_slabs", {"group_tiles": 64, "lanes": 32, "pitch": 0}),
        ((1 << 20, 24), 0, {"pad": 4}, "scan_long_columns", {"group_tiles": 32, "vector": 4, "lanes": 4, "steps": 8, "batches": 1}),
        ((1 << 20, 24), 0, {"lookback": True, "name": "cumsum_backward"}, "scan_slabs", {"group_tiles": 0, "reverse": True}),
        ((1 << 20, 24), 0, {"name": "cummax_backward", "element": "bf16", "pad": 4}, "scan_long_columns", {"batches": 7, "reverse": False}),
        ((1 << 20, 64), 0, {"name": "cummax_backward", "element": "bf16"}, "scan_slabs", {"lanes": 64, "pitch": 0}),
        ((1 << 22, 2), 0, {}, "scan_slabs", {"lanes": 2, "grain": 2, "group_tiles": 64}),
        ((1, 1 << 24, 64), 1, {"name": "cummax", "index": "i64"}, "scan_long_columns", {"kept": 1, "index": "i64", "batches": 4}),
        ((3, 1 << 22, 37), 1, {}, "scan_slabs", {"kept": 2, "lanes": 64}),
        ((1 << 20, 132 * 32), 0, {}, "scan_long_columns", {"group_tiles": 8, "lanes": 4, "vector": 4}),
        ((1 << 20, 132 * 32 + 4), 0, {}, "scan_slabs", {"group_tiles": 8, "lanes": 64, "grain": 4, "pitch": 64}),
        ((1 << 20, 132 * 32 + 4), 0, {"name": "cumprod_backward"}, "scan_slabs", {"lanes": 64, "room": 5972}),
        ((1 << 20, 132 * 96 + 4), 0, {}, "scan_columns", {}),
        ((1_000, 24), 0, {}, "scan_columns", {}),
        ((1, 1 << 28), 1, {}, "scan_long_rows", {"group_tiles": ScanLongRows.group_tiles, "threads": 256, "peeled": False}),
        ((1, 1 << 28), 1, {"lookback": True}, "scan_long_rows", {"group_tiles": 0}),
        ((7, (1 << 25) + 3), 1, {}, "scan_long_rows", {"peeled": True, "vector": 4, "position": "i32"}),
        ((1, 1 << 31), 1, {"name": "cummax_backward"}, "scan_long_rows", {"position": "i64"}),
    ],
)  # fmt: skip
def test_kernel_of_a_layout(shape: tuple[int, ...], axis: int, options: dict[str, Any], kernel: str, constants: dict[str, Any]) -> None:
    launch = recipe(shape, axis, **options).steps[-1]
    assert isinstance(launch, Launch)
    assert launch.spec.factory.endswith(f":{kernel}")
    assert dict(launch.spec.constants).items() >= constants.items()


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.family == "scan"])
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
def test_the_workspace_is_small(name: str, element: str) -> None:
    """Statuses are cleared first and at most a hundredth of the bytes read where blocks share rows, a fortieth for columns; others need none.

    States of runs are twice as large as others: a twenty-fifth.
    """
    made = recipe((1, 1 << 28), 1, name, element=element)
    clear, launch = made.steps
    assert isinstance(clear, Clear) and clear.byte == 0 and clear.slot in launch.pointers
    reads = len(OPS[name].operands) - 1
    size = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}[element]
    assert 0 < made.slots[0].nbytes <= 0.01 * reads * size * (1 << 28) and made.workspace == made.slots[0].nbytes
    for shape, axis in (((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0)):
        assert recipe(shape, axis, name, element=element).workspace == 0
    for shape, axis in (((1 << 22, 2), 0), ((1 << 20, 3), 0), ((100_001, 24), 0), ((1, 1 << 24, 64), 1), ((3, 1 << 20, 37), 1)):
        for lookback, pad in itertools.product((True, False), (0, 1)):
            made = recipe(shape, axis, name, element=element, lookback=lookback, pad=pad)
            assert isinstance(made.steps[-1], Launch) and made.steps[-1].spec.factory.endswith((":scan_long_columns", ":scan_slabs"))
            most = (0.04 if name in ("cummax_backward", "cummin_backward") else 0.025) * reads * size * math.prod(shape)
            assert 0 < made.slots[0].nbytes <= most and made.workspace == made.slots[0].nbytes


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp", "cummax_backward", "cumprod_backward"])
@pytest.mark.parametrize("shape", [(3, 9180, 1000), (7, 9331, 4096), (7, 101_127, 68), (2, 860, 100)])
def test_slices_that_begin_anywhere_need_no_more_workspace_than_a_plan_says(name: str, shape: tuple[int, ...]) -> None:
    op = OPS[name]
    made = ScanBackwardDescriptor if op.traits["backward"] else ScanDescriptor
    for element, gap in itertools.product(("f32", "bf16", "f64"), (1, 2, 4, 8)):
        descriptor = made(op.kind, shape, 1, element=element)
        stated = max(op.variants[1].recipe(op, descriptor, layouts, CARD).workspace for layouts in descriptor.typical_layouts(op))
        apart = Layout(shape, (shape[1] * shape[2] + gap, shape[2], 1))
        assert op.variants[1].recipe(op, descriptor, dict.fromkeys([each.name for each in op.operands], apart), CARD).workspace <= stated


@pytest.mark.parametrize(
    ("bits", "pieces"),
    [([32], [(0, 0)]), ([64], [(0, 0)]), ([32, 32], [(0, 0), (0, 32)]), ([64, 32], [(0, 0), (1, 0)]), ([32] * 4, [(0, 0), (0, 32), (1, 0), (1, 32)]),
     ([64, 32, 64, 64], [(0, 0), (1, 0), (2, 0), (3, 0)]), ([32, 64, 32, 32], [(0, 0), (1, 0), (2, 0), (2, 32)])],
)  # fmt: skip
def test_pieces_of_a_state(bits: list[int], pieces: list[tuple[int, int]]) -> None:
    assert pieces_of(bits) == pieces
    assert status_words(bits, 195) == 2 * 195 * (pieces[-1][0] + 1)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.family == "scan"])
def test_every_input_of_a_slab_begins_at_a_vector(name: str) -> None:
    shapes = [(107_834, 106, 7), (14_304, 118, 36), (4325, 750, 18), (300_000, 9, 61), (59_000, 3, 6)]
    seen = set()
    for shape, element in itertools.product([*shapes, *((9000, 50 + 31 * k, 2 + 5 * k) for k in range(15))], ("f32", "bf16", "f64")):
        spec = recipe(shape, 1, name, element=element).steps[-1].spec
        if spec.factory.endswith(":scan_slabs"):
            kept = dict(spec.constants)
            assert kept["room"] * BY_NAME[element].itemsize % 16 == 0, (shape, element, kept)
            seen.add(kept.get("whole", False))
    assert True in seen


def test_rows_that_lie_differently_are_not_peeled() -> None:
    shape, even, odd = (40, 1001), contiguous((40, 1001)).strides, contiguous((40, 1002)).strides
    alike = Problem.of(1, [Layout(shape, even), Layout(shape, even)], ["f32", "f32"], 16)
    assert (alike.peeled, alike.vector, alike.longest) == (True, 4, 1004)
    for other in (Layout(shape, even, 4), Layout(shape, odd)):
        apart = Problem.of(1, [Layout(shape, even), other], ["f32", "f32"], 16)
        assert (apart.peeled, apart.vector) == (False, 1)


LONG = [(1, 3 * FEW + 5), (2, 4 * FEW)]


@EVERY
def test_long_rows(kind: Kind, name: str) -> None:
    for deterministic, reverse in itertools.product((True, False), (True, False)):
        check(kind, name, values(name, LONG[0]), 1, reverse=reverse, deterministic=deterministic)
    check(kind, name, values(name, LONG[1]), 1, exclusive=True, initial=0.5)


@pytest.mark.parametrize("dtype", ["f64", "bf16"])
@EVERY
def test_long_rows_of_other_elements(kind: Kind, name: str, dtype: str) -> None:
    check(kind, name, values(name, (1, 6 * FEW), dtype), 1)


@EVERY
def test_long_rows_that_begin_near_the_end_of_a_line(kind: Kind, name: str) -> None:
    """Some lanes then have no element of the row, and others some."""
    for reverse in (False, True):
        check(kind, name, values(name, (3, 2 * FEW + 31)), 1, reverse=reverse)


def check_gradient(kind: Kind, name: str, shape: tuple[int, ...], axis: int, deterministic: bool) -> None:
    check_backward(kind, name, values(name, shape, spread=0.02), axis, deterministic=deterministic)


@EVERY
@pytest.mark.parametrize("deterministic", [True, False])
def test_gradients_of_long_rows(kind: Kind, name: str, deterministic: bool) -> None:
    for shape in ((1, 2 * FEW + 8), (2, 2 * FEW + 3), (3, 2 * FEW + 31)):
        check_gradient(kind, name, shape, 1, deterministic)


def test_several_groups_of_tiles(kind: Kind) -> None:
    """More tiles than a group has; vectors of one element make many tiles."""
    x = values("cumsum", (1, 2 * 70 * FEW // 4))[:, ::2]
    check(kind, "cumsum", np.ascontiguousarray(x), 1, given=kind.array(np.repeat(x, 2, 1))[:, ::2])
    winners = np.sort(x, 1)
    y, places = nb.cummax(kind.array(winners), 1, return_indices=True)
    np.testing.assert_array_equal(kind.numpy(y), winners)
    assert (np.diff(kind.numpy(places)) >= 0).all()


#: columns that blocks share in several tiles: of one batch, of several and as two strips, with an axis before
TALL = [((2100, 2), 0), ((1100, 20), 0), ((2, 1100, 5), 1)]


@EVERY
def test_long_columns(kind: Kind, name: str) -> None:
    check(kind, name, values(name, TALL[2][0]), 1, reverse=True)
    check(kind, name, values(name, TALL[2][0]), 1, deterministic=False)
    check(kind, name, values(name, TALL[1][0]), 0, exclusive=True, initial=0.5)


@pytest.mark.parametrize("dtype", ["f64", "bf16"])
@EVERY
def test_long_columns_of_other_elements(kind: Kind, name: str, dtype: str) -> None:
    check(kind, name, values(name, (2300, 6), dtype), 0)


@EVERY
@pytest.mark.parametrize("deterministic", [True, False])
def test_gradients_of_long_columns(kind: Kind, name: str, deterministic: bool) -> None:
    check_gradient(kind, name, *TALL[1 + deterministic], deterministic)


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_slices_of_short_columns_and_rows(kind: Kind, name: str, dtype: str) -> None:
    """Several blocks, the last of which ends inside a vector; rows are slices of one column."""
    with using(ScanSlices, max_row_bytes=256, whole_columns=True, peeled_rows=True):
        for shape in ((311, 7, 3), (75, 32, 4), (1301, 5), (205, 31)):
            check(kind, name, values(name, shape, dtype, spread=0.02), 1, reverse=len(shape) == 2)
            check_backward(kind, name, values(name, shape, dtype, spread=0.02), 1, exclusive=len(shape) == 2)
        check(kind, name, values(name, (311, 7, 3), dtype), 1, exclusive=True, initial=0.5)
        check_backward(kind, name, values(name, (311, 7, 3), dtype), 1, reverse=True, initial=0.5)


@EVERY
def test_columns_of_few_elements(kind: Kind, name: str) -> None:
    """Threads walk down whole columns, by vectors or one by one, with an axis before or without."""
    for shape, axis in (((3, 515), 0), ((4, 520), 0), ((3, 5, 131), 1), ((2, 1, 1030), 1)):
        check(kind, name, values(name, shape), axis, reverse=axis == 1)
        check_gradient(kind, name, shape, axis, True)
    check(kind, name, values(name, (6, 300)), 0, exclusive=True, initial=0.5)


@EVERY
def test_columns_of_their_own(kind: Kind, name: str) -> None:
    """The same of more elements than a thread has at a time; and columns that fill some levels of a block."""
    shape = (37, 1030)
    with using(ScanColumns, grid_blocks_per_multiprocessor=1):
        check(kind, name, values(name, shape), 0, reverse=True)
        check_gradient(kind, name, shape, 0, True)
    check(kind, name, values(name, shape), 0)


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_dense_columns(kind: Kind, name: str, dtype: str) -> None:
    """Lanes share the columns of a slice, which end in a part of a tile; slices begin at another part of 16 bytes each."""
    for shape, axis in (((3, 342, 6), 1), ((2, 300, 31), 1), ((1100, 3), 0), ((3, 343, 5), 1)):
        check(kind, name, values(name, shape, dtype), axis)
    check(kind, name, values(name, (2, 303, 5), dtype), 1, reverse=True, exclusive=True, initial=0.5)


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_narrow_columns(kind: Kind, name: str, dtype: str, reverse: bool) -> None:
    """Winners are few in a slice of random numbers, and many in one that rises."""
    for shape, axis in (((3, 143, 5), 1), ((1101, 2), 0)):
        x = values(name, shape, dtype, spread=0.02)
        check_backward(kind, name, x, axis, reverse=reverse)
        if name in ("cummax", "cummin"):
            check_backward(kind, name, np.sort(x, axis), axis, reverse=reverse)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_gradients_of_products_with_zeros_in_slabs(kind: Kind, dtype: str) -> None:
    """Of batches of factors, some have a zero, and others none."""
    for shape, axis in (((1101, 5), 0), ((2, 601, 21), 1)):
        x = values("cumprod", shape, dtype, spread=0.02)
        x[(0, 500, 3) if axis else (700, 3)] = x[(1, 40, 2) if axis else (41, 2)] = 0
        check_backward(kind, "cumprod", x, axis)


def test_indices_in_columns_of_few_elements(kind: Kind) -> None:
    x = np.random.default_rng(3).integers(0, 3, (5, 6, 131)).astype(np.float32)
    for reverse in (False, True):
        y, places = map(kind.numpy, nb.cummax(kind.array(x), 1, reverse=reverse, return_indices=True))
        np.testing.assert_array_equal(np.take_along_axis(x, places, 1), y)
        np.testing.assert_array_equal(y, np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1] if reverse else np.maximum.accumulate(x, 1))


def test_indices_in_long_columns(kind: Kind) -> None:
    x = np.sort(values("cummax", (1100, 6)), 0)
    x[:, 1::2] = x[:1, 1::2]
    for reverse in (False, True):
        y, places = map(kind.numpy, nb.cummax(kind.array(x), 0, reverse=reverse, return_indices=True))
        last = np.full(3, len(x) - 1)
        np.testing.assert_array_equal(y, np.broadcast_to(x[-1:], x.shape) if reverse else x)
        np.testing.assert_array_equal(places[-1 if not reverse else 0, ::2], last)
        np.testing.assert_array_equal(places[:, 1::2], len(x) - 1 if reverse else 0)


def test_several_groups_of_tiles_of_columns(kind: Kind) -> None:
    x = values("cumsum", (66 * 512 + 5, 2))
    check(kind, "cumsum", x, 0, given=kind.array(np.repeat(x, 2, 1))[:, ::2])


def test_what_a_sku_says() -> None:
    few, rows = ScanDescriptor("cumsum", (1 << 20, 24), 0), ScanDescriptor("cumsum", (1 << 20, 24), 1)
    assert nb.select(few).sku.variant == "scan:scan_slabs"
    assert nb.select(few, nb.PlanPreference(deterministic=False)).sku.variant == "scan_lookback:scan_slabs"
    assert nb.select(rows).sku.variant == "scan:scan_rows"
    assert nb.select(ScanBackwardDescriptor("cumprod", (1, 1 << 28), 1)).sku.variant == "scan_back:scan_long_rows"
    assert nb.select(ScanDescriptor("cumsum", (0, 3), 0)).sku.variant == "scan"


@pytest.mark.parametrize(("shape", "axis"), [((1, 21 * FEW + 5), 1), ((10_100, 2), 0)])
@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp"])
def test_several_groups(kind: Kind, name: str, shape: tuple[int, ...], axis: int) -> None:
    """Groups of few tiles, so that small inputs have several groups."""
    with using(ScanLongRows, group_tiles=3), using(ScanLongColumns, min_group_tiles=4, max_group_tiles=4):
        check(kind, name, values(name, shape), axis)


@pytest.mark.parametrize("name", ["cummax", "cumprod", "logcumsumexp"])
def test_gradients_of_several_groups(kind: Kind, name: str) -> None:
    """Odd rows each begin at another offset in a line."""
    with using(ScanLongRows, group_tiles=2):
        check_gradient(kind, name, (3, 4 * FEW + 31), 1, True)


@pytest.mark.skipif(not arrays.emulating(), reason="schedules are the emulator's")
@pytest.mark.parametrize("seed", range(3))
def test_a_group_that_knows_its_fold_before_its_prefix(kind: Kind, seed: int) -> None:
    """Each tile is a group, so that many are at the same time between the two, and the group after takes the prefix of the one before."""
    with using(ScanLongRows, group_tiles=1), kind.schedule(seed):
        check(kind, "cumsum", values("cumsum", (1, 14 * FEW + 5)), 1)


@pytest.mark.skipif(not arrays.emulating(), reason="schedules are the emulator's")
@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp", "cummax_backward", "cumprod_backward", "logcumsumexp_backward"])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((2, 2 * FEW + 37), 1), TALL[0], ((1100, 3), 0)])
def test_any_order_of_blocks_and_lanes(kind: Kind, name: str, deterministic: bool, shape: tuple[int, ...], axis: int) -> None:
    """With all checks, lanes preempted anywhere and blocks in random order, no lane races or hangs; the fixed order gives the same bits."""
    x = kind.array(values("cumsum", shape))
    found = []
    for seed in (1, 2):
        with kind.schedule(seed):
            given = (x,) * (len(OPS[name].operands) - 1)
            found.append(kind.numpy(getattr(nb, name)(*given, axis, deterministic=deterministic)))
    if deterministic or name.startswith("cummax"):
        np.testing.assert_array_equal(found[0].view(np.int32), found[1].view(np.int32))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)
