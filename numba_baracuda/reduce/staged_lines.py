"""Rows, or few neighbouring columns, of a gradient, whose lines a block copies to shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.axes import ceil_div, power_of_two
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .geometry import Geometry
from .policy import FoldAndBroadcastColumns, FoldAndBroadcastStagedLines
from .problem import Problem
from .tiling import ASYNC_BYTES, THREADS


@dataclass(frozen=True)
class StagedLines:
    """The constants, the arguments, the number of blocks and the bytes of shared memory of ``fold_and_broadcast_staged_lines``."""

    constants: dict[str, int]
    arguments: dict[str, int]
    blocks: int
    shared_bytes: int

    @classmethod
    def of(cls, problem: Problem, dx: Layout, x: Layout, element: str, guarded: bool, multiprocessors: int) -> StagedLines | None:
        """For a gradient of such rows or columns; None where lines are too many or too long, or where loads in place are as good.

        ``guarded``: as of the gradient, which looks at few elements twice.
        """
        policy, size, accumulator = tuned(FoldAndBroadcastStagedLines()), BY_NAME[element].itemsize, BY_NAME[BY_NAME[element].accumulator]
        vector, kept, steps, rows = ASYNC_BYTES // size, problem.kept_shape, problem.full_kept[0], problem.row_contiguous
        alike = steps == problem.full_kept[1] and problem.full_reduced[0] == problem.full_reduced[1] and (dx.address - x.address) % ASYNC_BYTES == 0
        if not alike or len(problem.shape) > 2 or problem.rows * problem.extent * size < policy.min_bytes:
            return None
        inner = 1 if rows or steps[-1] != 1 else kept[-1]
        if problem.full_reduced[0][-1] != inner or (rows and len(problem.shape) == 1):
            return None
        if rows and problem.vector == vector:
            return None
        line, lines, stride = problem.shape[-1], math.prod(problem.shape[:-1]), (0, *problem.full_reduced[0])[-2]
        unit, last = line * inner, len(kept) - (1 if rows else 2)
        woven = rows and len(problem.shape) > 1 and last >= 0 and steps[last] == line and stride == kept[last] * line
        woven = woven and lines * stride * size <= policy.shared_bytes_per_block and kept[last] * accumulator.itemsize <= policy.max_columns * 4
        if rows:
            own = Geometry.of_fused(problem, multiprocessors, element, not guarded)
            woven = woven and not (own.held and problem.extent // own.lanes > policy.max_woven_elements)
            whole = line * size <= policy.max_short_bytes or line * size >= policy.whole_line_bytes
            if not woven and (own.held or not whole):
                return None
        else:
            wide = lines > 1 and problem.extent > tuned(FoldAndBroadcastColumns()).max_held_elements
            most_bytes = policy.max_wide_bytes if wide else policy.max_column_bytes
            if guarded or size > policy.max_item_bytes or not policy.min_columns <= inner <= most_bytes // size:
                return None
        copied, unit_rows = lines, inner
        if woven:
            copied, unit, unit_rows, last = 1, lines * stride, kept[last], last - 1
        across = kept[last] if last >= 0 and steps[last] == unit else 1
        most = min(policy.shared_bytes_per_block // (copied * unit * size), policy.max_columns * 4 // (accumulator.itemsize * unit_rows))
        units = min(across, most, max(1, ceil_div(policy.min_bytes_per_block, copied * unit * size)))
        if units == 0 or stride < 0:
            return None
        units = ceil_div(across, ceil_div(across, units))
        columns, blocks, longest = units * unit_rows, problem.rows // (across * unit_rows) * ceil_div(across, units), units * unit
        pitch = stride if woven else longest + (stride - longest) % vector
        shared_bytes = ceil_div(((longest if woven else lines * pitch) + vector) * size, ASYNC_BYTES) * ASYNC_BYTES
        idle = blocks < policy.grid_blocks_per_multiprocessor * multiprocessors
        if idle or longest * size < policy.min_line_bytes or shared_bytes > policy.shared_bytes_per_block:
            return None
        places = power_of_two(columns)
        lanes = THREADS if columns <= policy.max_block_columns else max(1, min(32, THREADS // places))
        copiers = min((32, THREADS), key=lambda each: ceil_div(copied, THREADS // each) * ceil_div(ceil_div(longest, vector) + 1, each))
        constants = {"lanes": lanes, "copiers": copiers, "inner": inner, "columns": places, "kept": len(kept)}
        constants |= {"alone": columns == 1, "flat": lines == 1, "woven": woven}
        arguments = {"units": units, "across": across, "unit_rows": unit_rows, "lines": lines, "line": line, "stride": stride, "pitch": pitch}
        return cls(constants, arguments, blocks, shared_bytes)
