"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Target, contiguous
from ..core.policy import tuned
from ..core.spec import KernelSpec
from . import policy, tiling
from .descriptor import ScanBackwardDescriptor, ScanDescriptor
from .problem import Problem
from .rules import INITIAL, NOTHING, rule_of


class _Scan:
    """A scan with its layouts, as its kernels see it."""

    def __init__(self, op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> None:
        name, value, index, result = op.name, descriptor.element, descriptor.index, descriptor.result
        output = next(operand.name for operand in op.operands if operand.output and not operand.index)
        name += "_places" if index else ""
        rule = rule_of(name, descriptor.exclusive)
        unit, wide = BY_NAME[value].itemsize, BY_NAME[result].itemsize
        #: bytes of an element, and of the wider of an element and a result
        self.rule, self.target, self.unit, self.size = rule, target, unit, max(unit, wide)
        self.states = "runs" if rule.scatters else "affine" if rule.items > 1 else "several" if len(rule.kinds) > 1 else "single"
        names = [*rule.reads, *[rule.reads[0]] * (3 - len(rule.reads)), output, "indices" if index else output]
        common = tuned(policy.Elements())
        across = unit * (policy.scan_columns(self.states, self.size).vector_bytes // self.size)
        along = unit * min(common.vector_bytes // unit, common.result_vector_bytes // wide)
        elements = [*[value] * 3, result, index or result]
        self.problem = Problem.of(descriptor.scan_axis, [layouts[each] for each in names], elements, across, along)
        #: bytes of an element in shared memory
        self.held = len(rule.reads) * unit + (wide if result != value else 0) + (BY_NAME[index].itemsize if index else 0)
        self._state = descriptor.accumulator
        self._place = "i32" if self.problem.extent < 1 << 30 else "i64"
        # gradients that sum up what comes later go the other way
        backwards = descriptor.reverse != (isinstance(descriptor, ScanBackwardDescriptor) and not rule.scatters)
        self._constants: dict[str, Any] = {
            "rule": name, "value": value, "result": result, "index": index, "vector": self.problem.vector, "reverse": backwards,
            "exclusive": descriptor.exclusive, "place": self._place, "kept": len(self.problem.shape),
        }  # fmt: skip
        a, b, c = (*rule.reads, NULL, NULL)[:3]
        self._arguments: dict[str, Any] = {
            "a": a, "b": b, "c": c, "y": output, "z": "indices" if index else NULL,
            "extent": self.problem.extent, "initial": descriptor.beginning, "origin": NOTHING if descriptor.initial is None else INITIAL,
            "kept_shape": self.problem.shape, "gaps": self.problem.gaps,
        }  # fmt: skip

    @property
    def bits(self) -> list[int]:
        """Of each scalar of a state."""
        return [8 * BY_NAME[self._place if letter == "p" else self._state].itemsize for letter in self.rule.kinds]

    def launch(self, kernel: str, blocks: int, more: dict[str, Any], resident: int = 0, **dealt: Any) -> Launch:
        """A kernel whose parameters are the scan's, and ``more``."""
        form, threads = "rows" if self.problem.along else "columns", dealt["threads"]
        spec = KernelSpec(f"numba_baracuda.scan.kernels:{kernel}_{form}", tuple(sorted((self._constants | dealt).items())), threads, resident)
        shared = threads * dealt["steps"] * self.problem.vector * self.held if self.problem.along else 0
        strides = {f"{name}_{form}": each for name, each in zip("abcyz", self.problem.kept, strict=True)}
        return Launch(spec, (blocks, threads, shared), {**self._arguments, form: self.problem.rows, **strides, **more})

    def steps(self, nbytes: int) -> int:
        """Accesses of a lane that holds so many bytes of every operand, fewer where that is too much for all of them."""
        most = tuned(policy.Elements()).shared_bytes_per_thread * self.size // self.held
        return tiling.steps_of(min(nbytes, most), self.problem.vector, self.size)

    def columns(self) -> Recipe:
        problem, plan = self.problem, policy.scan_columns(self.states, self.size)
        steps = tiling.steps_of(plan.bytes_per_thread, problem.vector, self.size)
        lanes = tiling.column_lanes(ceil_div(problem.shape[-1], problem.vector), problem.vector * self.size, plan.contiguous_bytes)
        dealt: dict[str, Any] = {"lanes": lanes, "steps": steps, "threads": plan.threads_per_block}
        blocks = ceil_div(problem.rows, lanes * problem.vector)
        return Recipe((self.launch("scan", blocks, {}, plan.min_blocks_per_multiprocessor, **dealt),))

    def long_columns(self, ordered: bool) -> Recipe | None:
        """Columns shared out to blocks tile by tile, if they are long and few."""
        problem, plan = self.problem, policy.scan_long_columns(self.states, self.size, self.target)
        nbytes, accesses = problem.vector * self.size, ceil_div(problem.shape[-1], problem.vector)
        lanes = tiling.column_lanes(accesses, nbytes, plan.contiguous_bytes)
        steps, threads = tiling.steps_of(plan.bytes_per_thread, problem.vector, self.size), plan.threads_per_block
        times, high = tiling.tall_tile(plan, self.bits, threads // lanes * steps, len(self.rule.reads) * self.size)
        strips, tiles = ceil_div(problem.rows, lanes * problem.vector), ceil_div(problem.extent, high)
        wide = problem.rows * self.size > plan.max_row_bytes_per_multiprocessor * self.target.multiprocessors
        if wide or problem.extent <= plan.min_tiles * high:
            return None
        dealt: dict[str, Any] = {
            "lanes": lanes, "steps": steps, "threads": threads, "times": times, "group": tiling.group_of(plan, strips) if ordered else 0,
            "again": plan.cached,
        }  # fmt: skip
        words = Slot("words", "i64", tiling.words_of(self.bits, problem.rows * (tiles - 1)))
        more = {"words": words.name, "tiles": tiles, "strips": strips}
        launch = self.launch("scan_long", strips * tiles, more, plan.min_blocks_per_multiprocessor, **dealt)
        return Recipe((Clear(words.name), launch), (words,))

    def rows(self) -> Recipe:
        problem, plan = self.problem, policy.scan_rows(self.states, self.size, self.problem.vector)
        lanes, steps, threads = tiling.dealt_row(plan, ceil_div(problem.longest, problem.vector), self.steps(plan.bytes_per_thread))
        dealt: dict[str, Any] = {"lanes": lanes, "steps": steps, "threads": threads, "peeled": problem.peeled}
        blocks = ceil_div(problem.rows, threads // lanes)
        return Recipe((self.launch("scan", blocks, {"skew": problem.skew}, plan.min_blocks_per_multiprocessor, **dealt),))

    def long_rows(self, ordered: bool) -> Recipe | None:
        """Rows shared out to blocks, if they are long and few."""
        problem, plan = self.problem, policy.scan_long_rows(self.states, self.size, self.problem.vector, ordered, self.target)
        steps, threads = self.steps(plan.bytes_per_thread), plan.threads_per_block
        tile = threads * steps * problem.vector
        longest = problem.extent + (tiling.LINE_BYTES // self.unit - 1 if problem.peeled else 0)
        if problem.rows >= plan.busy_rows_per_multiprocessor * self.target.multiprocessors or longest <= plan.min_tiles * tile:
            return None
        tiles, resident = ceil_div(longest, tile), tiling.resident_blocks(plan, tile * self.held)
        dealt: dict[str, Any] = {"steps": steps, "threads": threads, "peeled": problem.peeled, "group": plan.group_tiles if ordered else 0}
        words = Slot("words", "i64", tiling.words_of(self.bits, problem.rows * tiles))
        ahead = plan.prefetched_tiles_per_multiprocessor * self.target.multiprocessors
        more = {"words": words.name, "skew": problem.skew, "tiles": tiles, "ahead": ahead}
        return Recipe((Clear(words.name), self.launch("scan_long", problem.rows * tiles, more, resident, **dealt)), (words,))


def _recipe(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target, ordered: bool) -> Recipe:
    if 0 in descriptor.input_shape:
        return Recipe(())
    made = _Scan(op, descriptor, layouts, target)
    return made.long_rows(ordered) or made.rows() if made.problem.along else made.long_columns(ordered) or made.columns()


def named(recipe: Callable[..., Recipe], variant: str) -> Callable[[Op, ScanDescriptor, Target], str]:
    """What a SKU says: the variant, and the kernel that operands in C order get."""

    def name(op: Op, descriptor: ScanDescriptor, target: Target) -> str:
        steps = recipe(op, descriptor, {operand.name: contiguous(descriptor.input_shape) for operand in op.operands}, target).steps
        return ":".join([variant, *[step.spec.factory.partition(":")[2] for step in steps if isinstance(step, Launch)]])

    return name


def scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """One launch, and before it the clearing of a workspace where rows or columns are shared out to blocks."""
    return _recipe(op, descriptor, layouts, target, ordered=True)


def scan_early(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan``, but that the tiles of long rows and columns are joined in the order in which they are done."""
    return _recipe(op, descriptor, layouts, target, ordered=False)
