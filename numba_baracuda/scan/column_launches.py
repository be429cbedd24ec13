"""From a scan and its layouts to the launches of its kernels across rows."""

from __future__ import annotations

from typing import Any

from ..core.axes import ceil_div, fitting, power_of_two
from ..core.op import NULL, Launch, Recipe
from ..core.policy import tuned
from ..core.spec import KernelSpec
from . import policy, policy_of, tiling
from .launches import Scan


class ColumnScan(Scan):
    """A scan, and also the launches of scans across rows."""

    def dense(self, steps: int) -> int:
        """Elements of a vector where the lanes of a level load and store dense columns together, 0 where each lane has its own."""
        problem, operator = self.problem, self.operator
        served = len(operator.inputs) == 1 and not operator.scatters and not self._constants["index"] and problem.shape[-1] <= tiling.WARP
        dense = min(problem.dense, steps) if served else 0
        scattered = problem.shape[-1] * self.size <= tuned(policy.Elements()).dense_row_bytes
        return dense if dense > (1 if scattered else problem.vector) else 0

    def alone_steps(self, plan: policy.ScanColumns) -> int:
        """Rows at a time of threads that walk down whole columns; 0 where threads do not."""
        problem, vector, size = self.problem, self.problem.vector, self.size
        if not tiling.walks_alone(plan, problem.rows, problem.shape[-1], vector, size, problem.extent, self.target.multiprocessors):
            return 0
        items = plan.narrow_items_per_thread if tiling.is_narrow(vector, size) else plan.alone_items_per_thread
        return tiling.steps_of(min(items * vector, plan.max_alone_elements) * size, vector, size)

    def columns(self) -> Recipe:
        problem, plan, multiprocessors = self.problem, policy_of.scan_columns(self.states, self.size), self.target.multiprocessors
        vector, width, slices = problem.vector, problem.shape[-1], problem.rows // problem.shape[-1]
        steps, each = tiling.steps_of(plan.bytes_per_thread, vector, self.size), tiling.element_steps(plan.bytes_per_thread, self.size)
        dense = self.dense(each)
        threads = tiling.dense_threads(plan, slices, width, each, problem.extent, multiprocessors) if dense else 0
        if threads:
            lanes, steps, vector, blocks = power_of_two(width), each, 1, slices
        else:
            aligned = problem.are_multiples(tiling.SECTOR_BYTES // self.size)
            contiguous = plan.contiguous_bytes if aligned else max(plan.contiguous_bytes, plan.astride_bytes)
            adjacent = tiling.column_lanes(ceil_div(width, vector), vector * self.size, contiguous)
            lanes, steps, threads = tiling.column_config(plan, adjacent, vector, steps, problem.extent, self.alone_steps(plan))
            dense, blocks = 0, ceil_div(problem.rows, lanes * vector)
        config: dict[str, Any] = {
            "lanes": lanes, "steps": steps, "threads": threads, "vector": vector, "whole": problem.extent == steps, "dense": dense,
        }  # fmt: skip
        resident = policy_of.dense_blocks(self.states, self.size, threads) if dense else plan.min_blocks_per_multiprocessor
        return Recipe((self.launch("scan", blocks, {}, resident, **config),))

    def slabs(self, ordered: bool) -> Recipe | None:
        """The launch that brings slabs of rows to shared memory; None unless columns are long, few, and lie densely in all operands.

        Operators that tell indices are not served. Those that scatter take most instructions otherwise, or read their inputs twice.
        """
        problem, operator, size, constants = self.problem, self.operator, self.size, self._constants
        width, vector, target = problem.shape[-1], tiling.MAX_VECTOR_BYTES // size, self.target
        alike = all(step >= 0 and (step - other) % vector == 0 for each in problem.kept for step, other in zip(each, problem.kept[0], strict=True))
        if constants["index"] or problem.dense < vector or not alike:
            return None
        grain = fitting(vector, [width])
        # the statuses of slices that begin inside a grain would need more memory than a plan says
        if fitting(grain, problem.kept[0][:-1]) < grain:
            return None
        plan, slices = policy_of.scan_slabs(self.states, size, target), problem.rows // width
        shape = len(operator.inputs), size, width, grain, slices, problem.extent, target.multiprocessors
        columns = policy_of.scan_columns(self.states, size)
        held = tiling.steps_of(columns.bytes_per_thread, problem.vector, size)
        alone = self.alone_steps(columns)
        narrow = tiling.is_narrow(problem.vector, size)
        whole = tiling.whole_slab_of(plan, *shape) if problem.extent > max(held, alone) else None
        if whole is not None:
            if operator.scatters:  # threads that walk alone write a column's last winners once, others twice
                pays = not (alone and problem.extent >= columns.min_alone_elements)
            elif whole.pitch == 0:  # small blocks are no faster than scan_columns unless that loads single elements
                pays = whole.threads > tiling.WARP or narrow or self.dense(tiling.element_steps(columns.bytes_per_thread, size)) > 0
            else:  # neither are strips, odd rows that are padded, and short columns of padded rows
                long = problem.extent * size >= plan.min_padded_bytes
                pays = long and grain * size >= plan.min_grain_bytes and whole.strip_width >= width
            if pays:
                return self.slab(plan, whole, grain, 0)
        slab = tiling.slab_of(plan, self.bits, *shape)
        shared = policy_of.scan_long_columns(self.states, size, 0, False, target)
        wide = problem.rows * size > shared.max_row_bytes_per_multiprocessor * target.multiprocessors
        # the vectors of scan_columns are enough for whole lines, and for many columns
        if operator.scatters:
            enough = wide and problem.vector * size > 4 and width * size >= tiling.LINE_BYTES and width * size % tiling.SECTOR_BYTES == 0
        else:
            enough = width * size % tiling.LINE_BYTES == 0 or (slab is not None and slab.pitch > 0 and wide and not narrow)
        if slab is None or alone or enough:
            return None
        group_tiles = min(tiling.group_of(shared, slices * ceil_div(width, slab.strip_width)), plan.max_group_tiles)
        return self.slab(plan, slab, grain, group_tiles if ordered else 0)

    def slab(self, plan: policy.ScanSlabs, slab: tiling.Slab, grain: int, group_tiles: int) -> Recipe:
        """The launch of ``scan_slabs`` with such slabs."""
        problem, operator, size, threads = self.problem, self.operator, self.size, slab.threads
        width, whole = problem.shape[-1], slab.height == problem.extent
        strips, tiles = problem.rows // width * ceil_div(width, slab.strip_width), ceil_div(problem.extent, slab.height)
        kept: dict[str, Any] = {name: each for name, each in self._constants.items() if name not in ("result", "index", "vector")}
        kept |= {name: getattr(slab, name) for name in ("lanes", "levels", "room", "pitch", "threads")}
        kept |= {"grain": grain, "group_tiles": group_tiles} | ({"whole": True} if whole else {})
        shared = (len(operator.inputs) * slab.room + (threads if operator.scatters else 0)) * size
        resident = plan.min_blocks_per_multiprocessor
        if whole and resident:
            resident = min(resident * (plan.threads_per_block // threads), plan.shared_bytes_per_multiprocessor // shared)
        spec = KernelSpec("numba_baracuda.scan.kernels:scan_slabs", tuple(sorted(kept.items())), threads, resident)
        strides = {f"{name}_strides": each for name, each in zip(("a", "b", "c", "output"), problem.kept, strict=False)}
        given = {name: each for name, each in self._arguments.items() if name not in ("indices", "axis_strides")}
        more: dict[str, Any] = {
            "columns": problem.rows, "tile_status": NULL, "tiles": tiles, "strips": strips, "width": width,
            "strip_width": slab.strip_width, "height": slab.height, "level_rows": slab.level_rows,
        }  # fmt: skip
        launch = Launch(spec, (strips * tiles, threads, shared), {**given, **strides, **more})
        return Recipe((launch,)) if whole else self.with_statuses(launch, problem.rows, tiles - 1)

    def long_columns(self, ordered: bool) -> Recipe | None:
        """The launch that shares out columns to blocks, tile by tile; None unless columns are long and few."""
        problem, narrow = self.problem, tiling.is_narrow(self.problem.vector, self.size)
        plan, vector = policy_of.scan_long_columns(self.states, self.size, self.index_size, narrow, self.target), problem.vector
        nbytes, vectors = vector * self.size, ceil_div(problem.shape[-1], vector)
        lanes, steps = tiling.column_lanes(vectors, nbytes, plan.contiguous_bytes), tiling.steps_of(plan.bytes_per_thread, vector, self.size)
        if narrow:
            lanes = tiling.narrow_lanes(plan, vectors, nbytes, self.size)
            steps = max(1, tiling.element_steps(plan.bytes_per_thread, self.size, plan.max_narrow_items) // vector)
        threads, columns, read_bytes = plan.threads_per_block, min(problem.shape[-1], lanes * vector), len(self.operator.inputs) * self.size
        strips, least = ceil_div(problem.rows, lanes * vector), 0
        if narrow:
            least = tiling.narrow_tile_bytes(plan, strips, problem.rows * problem.extent * read_bytes, self.target.multiprocessors)
        batches, high = tiling.tall_tile(plan, self.bits, threads // lanes * steps, read_bytes, columns, least)
        tiles = ceil_div(problem.extent, high)
        wide = problem.rows * self.size > plan.max_row_bytes_per_multiprocessor * self.target.multiprocessors
        if wide or problem.extent <= plan.min_tiles * high:
            return None
        config: dict[str, Any] = {
            "lanes": lanes, "steps": steps, "threads": threads, "vector": vector, "batches": batches,
            "group_tiles": tiling.group_of(plan, strips) if ordered else 0, "l1_cached": plan.cached,
        }  # fmt: skip
        launch = self.launch("scan_long", strips * tiles, {"tiles": tiles, "strips": strips}, plan.min_blocks_per_multiprocessor, **config)
        return self.with_statuses(launch, problem.rows, tiles - 1)
