"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core.axes import ceil_div, fitting, power_of_two
from ..core.dtypes import BY_NAME
from ..core.op import NULL, TWIN_BYTES, Clear, Launch, Layout, Op, Recipe, Slot, Target, contiguous
from ..core.policy import tuned
from ..core.spec import KernelSpec
from . import policy, policy_of, tiling
from .descriptor import ScanBackwardDescriptor, ScanDescriptor
from .operators import INITIAL, NOTHING, operator_of
from .problem import Problem


class _Scan:
    """A scan with its layouts, as its kernels see it."""

    def __init__(self, op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target, initials: str = NULL) -> None:
        name, value, index, result = op.traits.get("monoid", op.name), descriptor.element, descriptor.index, descriptor.result
        output = next(operand.name for operand in op.operands if operand.output and not operand.index)
        name += "_indices" if index else ""
        operator = operator_of(name, descriptor.exclusive)
        unit, wide = BY_NAME[value].itemsize, BY_NAME[result].itemsize
        #: bytes of an input's element, and of the wider of that and a result
        self.operator, self.target, self.unit, self.size = operator, target, unit, max(unit, wide)
        usual = ("foreign_" if operator.monoid.foreign else "") + ("several" if len(operator.kinds) > 1 else "single")
        self.states = "runs" if operator.scatters else operator.monoid.name if operator.distinct > 1 else usual
        names = [*operator.inputs, *[operator.inputs[0]] * (3 - len(operator.inputs)), output, "indices" if index else output]
        common = tuned(policy.Elements())
        across = unit * (policy_of.scan_columns(self.states, self.size).vector_bytes // self.size)
        along = unit * min(common.vector_bytes // unit, common.result_vector_bytes // wide)
        elements = [*[value] * 3, result, index or result]
        self.problem = Problem.of(descriptor.scan_axis, [layouts[each] for each in names], elements, across, along, not initials)
        #: bytes of shared memory for one element: of all inputs, and of results and indices with memory of their own
        self.index_size = BY_NAME[index].itemsize if index else 0
        self.staged_bytes = len(operator.inputs) * unit + (wide if result != value else 0) + self.index_size
        self._state = descriptor.accumulator
        self._position = "i32" if self.problem.extent < 1 << 30 else "i64"
        # a gradient that sums over later elements runs the other way
        backwards = descriptor.reverse != (isinstance(descriptor, ScanBackwardDescriptor) and not operator.scatters)
        self._constants: dict[str, Any] = {
            "operator": name, "value": value, "result": result, "index": index, "vector": self.problem.vector, "reverse": backwards,
            "exclusive": descriptor.exclusive, "position": self._position, "kept": len(self.problem.shape),
        }  # fmt: skip
        if initials:
            self._constants["carried"] = True
        a, b, c = (*operator.inputs, NULL, NULL)[:3]
        self._arguments: dict[str, Any] = {
            "a": a, "b": b, "c": c, "output": output, "indices": "indices" if index else NULL, "initials": initials,
            "extent": self.problem.extent, "initial": descriptor.beginning, "initial_position": NOTHING if descriptor.initial is None else INITIAL,
            "kept_shape": self.problem.shape, "axis_strides": self.problem.axis_strides,
        }  # fmt: skip

    @property
    def bits(self) -> list[int]:
        """Bits of each scalar of a state."""
        return [8 * BY_NAME[self._position if letter == "p" else self._state].itemsize for letter in self.operator.kinds]

    def with_statuses(self, launch: Launch, apart: int, tiles: int) -> Recipe:
        """A launch whose blocks look back, with the statuses of ``tiles`` tiles, which are ``apart`` statuses from each other.

        Statuses that are not many take turns in memory that a stream keeps, so that they need not be cleared first.
        """
        status = Slot("tile_status", "i64", tiling.status_words(self.bits, apart * tiles))
        if status.nbytes > TWIN_BYTES:
            given = {"tile_status": status.name, "stale_status": NULL, "stale_tiles": 0}
            return Recipe((Clear(status.name), replace(launch, arguments=launch.arguments | given)), (status,))
        stale = Slot("stale_status", status.element, status.count)
        given = {"tile_status": status.name, "stale_status": stale.name, "stale_tiles": tiles}
        return Recipe((Clear(status.name, twin=stale.name), replace(launch, arguments=launch.arguments | given)), (status, stale))

    def launch(self, kernel: str, blocks: int, more: dict[str, Any], resident: int = 0, **config: Any) -> Launch:
        """A launch with the scan's constants and ``config``, its arguments and ``more``, and at least ``resident`` blocks a multiprocessor."""
        form, threads = "rows" if self.problem.along else "columns", config["threads"]
        spec = KernelSpec(f"numba_baracuda.scan.kernels:{kernel}_{form}", tuple(sorted((self._constants | config).items())), threads, resident)
        shared = threads * config["steps"] * self.problem.vector * self.staged_bytes if self.problem.along else 0
        if config.get("dense"):
            shared = threads // config["lanes"] * tiling.dense_pitch(config["lanes"], config["steps"], self.size) * self.size
        strides = {f"{name}_strides": each for name, each in zip(("a", "b", "c", "output", "indices"), self.problem.kept, strict=True)}
        return Launch(spec, (blocks, threads, shared), {**self._arguments, form: self.problem.rows, **strides, **more})

    def steps(self, nbytes: int) -> int:
        """Vectors of a lane that has ``nbytes`` of each operand, fewer where shared memory holds less."""
        most = tuned(policy.Elements()).shared_bytes_per_thread * self.size // self.staged_bytes
        return tiling.steps_of(min(nbytes, most), self.problem.vector, self.size)

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

    def slices(self) -> Recipe | None:
        """The launch of blocks that hold whole slices of short columns; None unless these are narrow, and follow one another without a gap.

        Rows are slices of one column.
        """
        problem, plan, size, constants = self.problem, policy_of.scan_slices(self.states, self.size), self.size, self._constants
        width, vector = 1 if problem.along else problem.shape[-1], tiling.MAX_VECTOR_BYTES // size
        elements, most = problem.extent * width, plan.max_extent
        if problem.along and problem.peeled:
            served, most = plan.peeled_rows and plan.max_row_bytes >= vector * size, plan.max_peeled_extent
        elif problem.along:
            served = elements * size <= plan.max_row_bytes
        else:
            held = tiling.steps_of(policy_of.scan_columns(self.states, size).bytes_per_thread, problem.vector, size)
            gapless = len(problem.shape) == 1 or all(strides == (elements, 1) for strides in problem.kept)
            narrow = tiling.is_narrow(problem.vector, size) or width * size < tiling.LINE_BYTES
            served = gapless and narrow and (plan.whole_columns or problem.extent > held)
        long = problem.extent > most
        if problem.along or elements > plan.max_long_elements:
            served = served and not long
        if not served or problem.dense < vector or constants["index"] or "carried" in constants:
            return None
        steps = tiling.steps_of(plan.bytes_per_thread, vector, size)
        tile = plan.threads_per_block * steps * vector
        block_slices, slices = tiling.slices_of(plan, elements, vector, tile), problem.rows // width
        if not block_slices or (long and slices < plan.long_per_multiprocessor * self.target.multiprocessors * block_slices):
            return None
        kept = {name: constants[name] for name in ("operator", "value", "reverse", "exclusive", "position")}
        padded, length = tiling.slices_padded(width, elements, size), problem.extent if problem.extent <= plan.max_whole_extent else 0
        kept |= {"vector": vector, "steps": steps, "threads": plan.threads_per_block, "padded": padded, "length": length}
        spec = KernelSpec("numba_baracuda.scan.kernels:scan_slices", tuple(sorted(kept.items())), plan.threads_per_block)
        own = plan.threads_per_block if self.operator.scatters else 0
        parts = len(self.operator.inputs) - (1 if self.operator.remade and length else 0)
        config = ceil_div(slices, block_slices), plan.threads_per_block, tiling.slices_bytes(parts, tile, size, padded, own)
        given = {name: self._arguments[name] for name in ("a", "b", "c", "output", "extent", "initial", "initial_position")}
        given |= {"slices": slices, "width": width, "width_inverse": ((1 << 32) - 1) // width, "block_slices": block_slices}
        return Recipe((Launch(spec, config, given),))

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
        if operator.scatters:  # threads that walk alone write a column's last winners once, others twice
            fits = not (alone and problem.extent >= columns.min_alone_elements)
        elif whole is not None and whole.pitch == 0:  # small blocks are no faster than scan_columns unless that loads single elements
            fits = whole.threads > tiling.WARP or narrow or self.dense(tiling.element_steps(columns.bytes_per_thread, size)) > 0
        else:  # neither are strips, odd rows that are padded, and short columns of padded rows
            fits = grain * size >= plan.min_grain_bytes and problem.extent * size >= plan.min_padded_bytes
            fits = fits and whole is not None and whole.strip_width >= width
        if whole is not None and fits:
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
            "columns": problem.rows, "tile_status": NULL, "stale_status": NULL, "stale_tiles": 0, "tiles": tiles, "strips": strips, "width": width,
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

    def rows(self) -> Recipe:
        problem, plan = self.problem, policy_of.scan_rows(self.states, self.size, self.problem.vector)
        most = self.steps(plan.bytes_per_thread)
        lanes, steps, threads = tiling.row_config(plan, ceil_div(problem.longest, problem.vector), most)
        group_rows = tiling.segments_of(problem.extent, problem.vector, most) if problem.peeled and problem.gapless else 1
        segmented = group_rows > 1
        if segmented:
            lanes, steps, threads = tiling.WARP, most, plan.threads_per_block
        config: dict[str, Any] = {"lanes": lanes, "steps": steps, "threads": threads, "peeled": problem.peeled, "segmented": segmented}
        resident = policy_of.peeled_blocks(self.states, self.size, threads) if problem.peeled else plan.min_blocks_per_multiprocessor
        more = {"misalignment": problem.misalignment, "group_rows": group_rows}
        return Recipe((self.launch("scan", ceil_div(problem.rows, threads // lanes * group_rows), more, resident, **config),))

    def long_rows(self, ordered: bool) -> Recipe | None:
        """The launch that shares out rows to blocks, tile by tile; None unless rows are long and few."""
        problem, plan = self.problem, policy_of.scan_long_rows(self.states, self.size, self.problem.vector, ordered, self.problem.peeled, self.target)
        steps, threads = self.steps(plan.bytes_per_thread), plan.threads_per_block
        tile = threads * steps * problem.vector
        longest = problem.extent + (tiling.LINE_BYTES // self.unit - 1 if problem.peeled else 0)
        if problem.rows >= plan.busy_rows_per_multiprocessor * self.target.multiprocessors or longest <= plan.min_tiles * tile:
            return None
        tiles, resident = ceil_div(longest, tile), tiling.resident_blocks(plan, tile * self.staged_bytes)
        distance, group_tiles = plan.prefetched_tiles_per_multiprocessor * self.target.multiprocessors, plan.group_tiles if ordered else 0
        config: dict[str, Any] = {
            "steps": steps, "threads": threads, "peeled": problem.peeled, "group_tiles": group_tiles, "prefetches": distance > 0,
        }  # fmt: skip
        more = {"misalignment": problem.misalignment, "tiles": tiles, "prefetch_distance": distance}
        launch = self.launch("scan_long", problem.rows * tiles, more, resident, **config)
        return self.with_statuses(launch, tiling.STATUS_SPREAD, problem.rows * tiles)


def _recipe(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target, ordered: bool, initials: str = NULL) -> Recipe:
    if 0 in descriptor.input_shape:
        return Recipe(())
    made = _Scan(op, descriptor, layouts, target, initials)
    if made.problem.along:
        return made.slices() or made.long_rows(ordered) or made.rows()
    return made.slices() or made.slabs(ordered) or made.long_columns(ordered) or made.columns()


def named(recipe: Callable[..., Recipe], variant: str) -> Callable[[Op, ScanDescriptor, Target], str]:
    """The variant's part of a SKU: its name, and the kernel that contiguous operands get."""

    def name(op: Op, descriptor: ScanDescriptor, target: Target) -> str:
        steps = recipe(op, descriptor, {operand.name: contiguous(descriptor.input_shape) for operand in op.operands}, target).steps
        return ":".join([variant, *[step.spec.factory.partition(":")[2] for step in steps if isinstance(step, Launch)]])

    return name


def scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """One launch; where blocks share rows or columns, the statuses of tiles are cleared first. The order of every fold is fixed."""
    return _recipe(op, descriptor, layouts, target, ordered=True)


def scan_carried(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan`` whose rows begin with the numbers of the operand ``initials`` [rows], in the order of contiguous operands."""
    return _recipe(op, descriptor, layouts, target, ordered=True, initials="initials")


def scan_lookback(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan``, but blocks that share rows or columns combine tiles in the order in which these are done."""
    return _recipe(op, descriptor, layouts, target, ordered=False)
