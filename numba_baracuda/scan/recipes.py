"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Target, contiguous
from ..core.spec import KernelSpec
from . import tiling
from .descriptor import ScanBackwardDescriptor, ScanDescriptor
from .problem import Problem
from .rules import INITIAL, NOTHING, rule_of


class _Scan:
    """A scan with its layouts, as its kernels see it."""

    def __init__(self, op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> None:
        name, value, index, result = op.traits.get("monoid", op.name), descriptor.element, descriptor.index, descriptor.result
        output = next(operand.name for operand in op.operands if operand.output and not operand.index)
        name += "_places" if index else ""
        rule = rule_of(name, descriptor.exclusive)
        unit, wide = BY_NAME[value].itemsize, BY_NAME[result].itemsize
        #: bytes of an element, and of the wider of an element and a result
        self.rule, self.target, self.unit, self.size = rule, target, unit, max(unit, wide)
        usual = ("foreign_" if rule.monoid.foreign else "") + ("several" if len(rule.kinds) > 1 else "single")
        self.weight = tiling.WEIGHTS["runs" if rule.scatters else "affine" if rule.items > 1 else usual]
        names = [*rule.reads, *[rule.reads[0]] * (3 - len(rule.reads)), output, "indices" if index else output]
        across = unit * ((tiling.HALF_ACCESS if self.size == 2 else self.weight.access_bytes) // self.size)
        along = unit * min(tiling.ACCESS // unit, tiling.RESULT_ACCESS // wide)
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
        return tiling.steps_of(min(nbytes, tiling.LANE_BYTES * self.size // self.held), self.problem.vector, self.size)

    def columns(self) -> Recipe:
        problem, weight = self.problem, self.weight
        beside, steps = weight.half_beside if self.size == 2 else weight.beside_bytes, tiling.steps_of(weight.column_bytes, problem.vector, self.size)
        lanes = tiling.column_lanes(ceil_div(problem.shape[-1], problem.vector), problem.vector * self.size, beside)
        blocks, resident = ceil_div(problem.rows, lanes * problem.vector), {2: weight.half_blocks, 4: weight.column_blocks}.get(self.size, 0)
        return Recipe((self.launch("scan", blocks, {}, resident, lanes=lanes, steps=steps, threads=tiling.COLUMN_THREADS),))

    def long_columns(self, group: int) -> Recipe | None:
        """Columns shared out to blocks tile by tile, if they are long and few."""
        problem, weight = self.problem, self.weight
        nbytes, accesses = problem.vector * self.size, ceil_div(problem.shape[-1], problem.vector)
        lanes, steps = tiling.column_lanes(accesses, nbytes, weight.strip_bytes), tiling.steps_of(weight.column_bytes, problem.vector, self.size)
        threads = tiling.FEW_THREADS if self.target.emulated else tiling.COLUMN_THREADS
        times, high = tiling.tall_tile(self.bits, threads // lanes * steps, len(self.rule.reads) * self.size)
        strips, tiles = ceil_div(problem.rows, lanes * problem.vector), ceil_div(problem.extent, high)
        if problem.rows * self.size > tiling.FEW_BYTES * self.target.multiprocessors or problem.extent <= tiling.LONG_TILES * high:
            return None
        dealt: dict[str, Any] = {
            "lanes": lanes, "steps": steps, "threads": threads, "times": times, "group": group and tiling.group_of(strips),
            "again": weight.strip_again,
        }  # fmt: skip
        words = Slot("words", "i64", tiling.words_of(self.bits, problem.rows * (tiles - 1)))
        resident = {4: weight.strip_blocks, 8: tiling.DOUBLE_STRIPS}.get(self.size, 0)
        launch = self.launch("scan_long", strips * tiles, {"words": words.name, "tiles": tiles, "strips": strips}, resident, **dealt)
        return Recipe((Clear(words.name), launch), (words,))

    def rows(self) -> Recipe:
        problem, weight = self.problem, self.weight
        most = self.steps(weight.row_bytes)
        lanes, steps, threads = tiling.dealt_row(ceil_div(problem.longest, problem.vector), most, weight.row_threads)
        dealt: dict[str, Any] = {"lanes": lanes, "steps": steps, "threads": threads, "peeled": problem.peeled}
        resident = weight.row_blocks if self.size == 4 and problem.vector > 1 else 0
        return Recipe((self.launch("scan", ceil_div(problem.rows, threads // lanes), {"skew": problem.skew}, resident, **dealt),))

    def long_rows(self, group: int) -> Recipe | None:
        """Rows shared out to blocks, if they are long and few."""
        problem, weight = self.problem, self.weight
        steps = self.steps(weight.long_bytes)
        threads = tiling.FEW_THREADS if self.target.emulated else weight.long_threads
        resident = min(weight.long_blocks, weight.long_blocks if group else tiling.EARLY_BLOCKS, tiling.DOUBLE_BLOCKS if self.size == 8 else 32)
        tile = threads * steps * problem.vector
        resident = min(resident, tiling.SHARED_BYTES // (tile * self.held), resident if problem.vector > 1 else tiling.SINGLE_BLOCKS)
        resident = max(1, resident - (self.target.capability >= (10, 0)))  # for which compilers take more registers
        longest = problem.extent + (tiling.LINE_BYTES // self.unit - 1 if problem.peeled else 0)
        if problem.rows >= tiling.BUSY_ROWS * self.target.multiprocessors or longest <= tiling.LONG_TILES * tile:
            return None
        tiles = ceil_div(longest, tile)
        dealt: dict[str, Any] = {"steps": steps, "threads": threads, "peeled": problem.peeled, "group": group}
        words = Slot("words", "i64", tiling.words_of(self.bits, problem.rows * tiles))
        more = {"words": words.name, "skew": problem.skew, "tiles": tiles, "ahead": tiling.AHEAD * self.target.multiprocessors}
        return Recipe((Clear(words.name), self.launch("scan_long", problem.rows * tiles, more, resident, **dealt)), (words,))


def _recipe(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target, group: int) -> Recipe:
    if 0 in descriptor.input_shape:
        return Recipe(())
    made = _Scan(op, descriptor, layouts, target)
    return made.long_rows(group) or made.rows() if made.problem.along else made.long_columns(group) or made.columns()


def named(recipe: Callable[..., Recipe], variant: str) -> Callable[[Op, ScanDescriptor, Target], str]:
    """What a SKU says: the variant, and the kernel that operands in C order get."""

    def name(op: Op, descriptor: ScanDescriptor, target: Target) -> str:
        steps = recipe(op, descriptor, {operand.name: contiguous(descriptor.input_shape) for operand in op.operands}, target).steps
        return ":".join([variant, *[step.spec.factory.partition(":")[2] for step in steps if isinstance(step, Launch)]])

    return name


def scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """One launch, and before it the clearing of a workspace where rows or columns are shared out to blocks."""
    return _recipe(op, descriptor, layouts, target, tiling.GROUP)


def scan_early(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan``, but that the tiles of long rows and columns are joined in the order in which they are done."""
    return _recipe(op, descriptor, layouts, target, 0)
