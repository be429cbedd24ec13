"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..axes import ceil_div, merge_axes
from ..dtypes import BY_NAME
from ..op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Target
from ..runtime.spec import KernelSpec
from .descriptor import ScanBackwardDescriptor, ScanDescriptor
from .rules import INITIAL, NOTHING, Rule, rule_of
from .tiling import (
    AHEAD,
    BUSY_ROWS,
    COLUMN_THREADS,
    HALF_ACCESS,
    HALF_BESIDE,
    LONG_BLOCKS,
    LONG_TILES,
    PEELED_BYTES,
    WEIGHTS,
    column_lanes,
    dealt_long_row,
    dealt_row,
    steps_of,
    words_of,
)  # fmt: skip

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Operands as rows along the scanned axis: the axes that are kept in as few as they are, in the order of the first operand's strides.

    ``vector`` is the number of elements of the widest access that fits all operands, along the rows or, up to ``across`` bytes, across; ``skew`` the elements by which the
    first of ``peeled`` rows lies behind a multiple of it, as far as addresses tell.
    """

    shape: Strides
    kept: list[Strides]
    gaps: Strides
    extent: int
    along: bool
    vector: int
    peeled: bool
    skew: int

    @property
    def rows(self) -> int:
        return math.prod(self.shape)

    @classmethod
    def of(cls, axis: int, operands: list[Layout], elements: list[str], across: int) -> Problem:
        first, sizes = operands[0], [BY_NAME[element].itemsize for element in elements]
        extent = first.shape[axis]
        chosen = sorted((k for k in range(len(first.shape)) if k != axis), key=lambda k: -abs(first.strides[k]))
        shape, kept = merge_axes([first.shape[k] for k in chosen], *[[each.strides[k] for k in chosen] for each in operands])
        nearest = min((abs(step) for count, step in zip(shape, kept[0], strict=True) if count > 1), default=math.inf)
        gaps = tuple(each.strides[axis] for each in operands)
        along = extent > 1 and abs(gaps[0]) <= nearest
        widest = max(1, (16 if along else across) // sizes[0])
        aligned, line = widest, (gaps if along else tuple(strides[-1] for strides in kept))
        if any(step != 1 for step in line):
            return cls(shape, kept, gaps, extent, along, 1, False, 0)
        for each, size in zip(operands, sizes, strict=True):
            while aligned > 1 and each.address % min(16, aligned * size):
                aligned //= 2
        others = [step for strides in kept for count, step in zip(shape, strides, strict=True) if count > 1 and step != 1] if not along else []
        others += list(gaps) if not along else [step for strides in kept for count, step in zip(shape, strides, strict=True) if count > 1]
        vector = math.gcd(aligned, extent if along else shape[-1], *others)
        skews = {(each.address // size) % widest for each, size in zip(operands, sizes, strict=True)}
        alike = len(skews) == 1 and all(len({step % widest for step in steps}) == 1 for steps in zip(*kept, strict=True))
        if along and vector < widest and alike and len(set(sizes)) == 1 and extent * sizes[0] > PEELED_BYTES:
            return cls(shape, kept, gaps, extent, along, widest, True, skews.pop())
        return cls(shape, kept, gaps, extent, along, vector, False, 0)


def _name(op: Op, descriptor: ScanDescriptor) -> str:
    return f"{op.name}_places" if descriptor.index else op.name


def _reversed(op: Op, descriptor: ScanDescriptor, rule: Rule) -> bool:
    """Whether the kernel walks from the axis's end: gradients that sum up what comes later go the other way."""
    return descriptor.reverse != (isinstance(descriptor, ScanBackwardDescriptor) and not rule.scatters)


def _scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target, stable: bool) -> Recipe:
    if 0 in descriptor.input_shape:
        return Recipe(())
    name, value = _name(op, descriptor), descriptor.element
    rule, size = rule_of(name, descriptor.exclusive), BY_NAME[value].itemsize
    output = op.operands[-2 if descriptor.index else -1].name
    names = [*rule.reads, *[rule.reads[0]] * (3 - len(rule.reads)), output, "indices" if descriptor.index else output]
    weight = WEIGHTS["runs" if rule.scatters else "affine" if rule.items > 1 else "several" if len(rule.kinds) > 1 else "single"]
    across, beside = (HALF_ACCESS, HALF_BESIDE) if size == 2 else (weight.access_bytes, weight.beside_bytes)
    problem = Problem.of(descriptor.scan_axis, [layouts[each] for each in names], [value] * 4 + [descriptor.index or value], across)
    access = problem.vector * size
    dims, place = len(problem.shape), "i32" if problem.extent < 1 << 30 else "i64"
    constants: dict[str, Any] = {
        "rule": name, "value": value, "result": descriptor.index, "vector": problem.vector, "reverse": _reversed(op, descriptor, rule),
        "exclusive": descriptor.exclusive, "place": place, "kept": dims,
    }  # fmt: skip
    pointers = tuple(each if k < len(rule.reads) or k == 3 or (k == 4 and descriptor.index) else NULL for k, each in enumerate(names))
    origin, state = NOTHING if descriptor.initial is None else INITIAL, BY_NAME[value].accumulator
    types = [*[f"*{value}"] * 4, f"*{descriptor.index or value}"]
    scalars, kinds = (problem.rows, problem.extent, descriptor.beginning, origin), ["i64", "i64", state, "i64"]
    strides, tuples = (problem.shape, *problem.kept, problem.gaps), [f"{dims}xi64"] * 6 + ["5xi64"]

    def launch(kernel: str, types: list[str], pointers: tuple[str, ...], blocks: int, scalars: tuple[Any, ...], **dealt: Any) -> Launch:
        threads, signature = dealt["threads"], " ".join(types + kinds + ["i64"] * (len(scalars) - len(kinds)) + tuples)
        resident = dealt.pop("resident", 0)
        spec = KernelSpec(f"numba_baracuda.scan.kernels:{kernel}", tuple(sorted((constants | dealt).items())), signature, threads, resident)
        return Launch(spec, (blocks, threads, 0), pointers, (*scalars, *strides))

    if not problem.along:
        lanes = column_lanes(ceil_div(problem.shape[-1], problem.vector), access, beside)
        dealt = {"lanes": lanes, "steps": steps_of(weight.column_bytes, access), "threads": COLUMN_THREADS, "resident": weight.column_blocks}
        return Recipe((launch("scan_columns", types, pointers, ceil_div(problem.rows, lanes * problem.vector), scalars, **dealt),))
    steps, longest = steps_of(weight.long_bytes, access), problem.extent + (problem.vector - 1 if problem.peeled else 0)
    lane_elements, index_size = steps * problem.vector, BY_NAME[descriptor.index].itemsize if descriptor.index else 0
    threads, group = dealt_long_row(lane_elements * (len(rule.reads) * size + index_size), lane_elements, target.emulated)
    scalars, tile = (*scalars, problem.skew), threads * lane_elements
    if problem.rows < BUSY_ROWS * target.multiprocessors and longest > LONG_TILES * tile:
        tiles, slot, group = ceil_div(longest, tile), "words", group if stable else 0
        bits = [8 * BY_NAME[place if letter == "p" else state].itemsize for letter in rule.kinds]
        dealt = {"steps": steps, "threads": threads, "peeled": problem.peeled, "group": group, "resident": LONG_BLOCKS}
        scan = launch("scan_long_rows", [*types, "*i64"], (*pointers, slot), problem.rows * tiles, (*scalars, tiles, AHEAD * target.multiprocessors), **dealt)
        return Recipe((Clear(slot), scan), (Slot(slot, "i64", words_of(bits, problem.rows, tiles, group)),))
    lanes, steps, threads = dealt_row(ceil_div(longest, problem.vector), steps_of(weight.row_bytes, access), weight.row_threads)
    dealt = {"lanes": lanes, "steps": steps, "threads": threads, "peeled": problem.peeled}
    return Recipe((launch("scan_rows", types, pointers, ceil_div(problem.rows, threads // lanes), scalars, **dealt),))


def scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """One launch, and before it the clearing of a workspace where rows are shared out to blocks."""
    return _scan(op, descriptor, layouts, target, True)


def scan_early(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan``, but that the tiles of long rows are joined in the order in which they are done."""
    return _scan(op, descriptor, layouts, target, False)
