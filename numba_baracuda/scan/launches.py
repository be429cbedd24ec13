"""From a scan and its layouts to the launches of its kernels along rows, and what launches across rows share with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import FRESH_BYTES, NULL, Clear, Launch, Layout, Op, Recipe, Slot, Target
from ..core.policy import tuned
from ..core.spec import KernelSpec
from . import policy, policy_of, tiling
from .descriptor import ScanBackwardDescriptor, ScanDescriptor
from .operators import INITIAL, NOTHING, operator_of
from .problem import Problem


class Scan:
    """A scan with its layouts, as its kernels see it, and the launches of scans along rows."""

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

        Memory that a stream keeps has zeros for statuses that are not many, which then need not be cleared first.
        """
        status = Slot("tile_status", "i64", tiling.status_words(self.bits, apart * tiles))
        clear = Clear(status.name, fresh=status.nbytes <= FRESH_BYTES)
        return Recipe((clear, replace(launch, arguments=launch.arguments | {"tile_status": status.name})), (status,))

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
