"""An operation as data: its operands, its variants, and the recipe of steps that a variant makes of a problem."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .axes import c_strides, ceil_div
from .dtypes import BY_NAME
from .spec import KernelSpec
from .vocabulary import Named, OpCategory

#: a pointer parameter that the kernel does not use
NULL = ""
LINE_BYTES = 128  #: of the caches
#: the most bytes of a slot that is fresh
FRESH_BYTES = 16 << 20
#: most axes an operand may have
MAX_RANK = 8


@dataclass(frozen=True)
class Operand:
    """An argument of an op.

    ``axes`` names the fields of the descriptor that are its extents. The last may be the product of several axes' extents; a single field may be a
    whole shape.
    """

    name: str
    axes: tuple[str, ...]
    index: bool = False  #: holds ids or positions, not values
    output: bool = False
    #: short name of its dtype, where that is neither the values' nor the ids'; several, separated by blanks, where it may be any of them
    element: str = ""
    part_of: str = ""  #: the bundle that brings it
    optional: bool = False  #: may be left out
    updated: bool = False  #: an output that is read as well
    number: bool = False  #: may be given as a Python number


@dataclass(frozen=True)
class Slot:
    """A piece of the workspace, with so many elements as ``extent`` says. A function is asked once, when the number is needed."""

    name: str
    element: str
    extent: int | Callable[[], int]

    @functools.cached_property
    def count(self) -> int:
        """The number of elements."""
        return self.extent() if callable(self.extent) else self.extent

    @property
    def nbytes(self) -> int:
        """Bytes, rounded up so that the next slot begins with a line of the caches: rows of 32 bytes are then in one sector each."""
        return ceil_div(self.count * BY_NAME[self.element].itemsize, LINE_BYTES) * LINE_BYTES


@dataclass(frozen=True)
class Launch:
    """One kernel. ``config`` is (blocks, threads, shared bytes).

    ``arguments`` has one entry for each parameter that the kernel declares: for a pointer the name of an operand or a slot, or ``NULL``, else a
    number or several.
    """

    spec: KernelSpec
    config: tuple[int, int, int]
    arguments: dict[str, Any]

    @property
    def pointers(self) -> tuple[str, ...]:
        """What the kernel is given addresses of."""
        return tuple(given for given in self.arguments.values() if isinstance(given, str))


@dataclass(frozen=True)
class Matrix:
    """Rows of an operand or a slot: the first begins ``offset`` elements behind its start, the others ``stride`` elements apart.

    ``address`` is that of the start, modulo 16; slots begin at multiples of 16.
    """

    name: str
    element: str
    rows: int
    columns: int
    stride: int
    offset: int = 0
    address: int = 0


@dataclass(frozen=True)
class Gemm:
    """``c = alpha · a' b' + beta · c`` by cuBLAS, where a' is a, or its transpose; b' likewise.

    The matrices hold floats, a and b of one dtype; sums are kept in the accumulator's type of that. ``alpha`` and ``beta`` are numbers, or both name
    slots whose first element is the number. ``workspace`` names the slot that cuBLAS may use.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float | str = 1.0
    beta: float | str = 0.0
    workspace: str = ""


@dataclass(frozen=True)
class Clear:
    """Sets every byte of a slot.

    ``restored``: the launches behind it leave zeros there again. Slots that are restored come before all others.
    ``fresh``: memory that outlives a call may give it zeros that no call has had. Such slots, each of at most ``FRESH_BYTES``, come before all
    others, in the order of their steps; a recipe that has some restores none.
    """

    slot: str
    byte: int = 0
    restored: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class Sort:
    """Sorts ``count`` pairs of key and value by bits ``first_bit`` to ``bits`` − 1 of the keys, stably.

    ``keys`` and ``values`` name slots, ``values`` perhaps an operand whose rows are contiguous; ``key_size`` and ``value_size`` are their bytes.
    ``scratch`` names the slot that the sort works in.
    """

    keys: str
    sorted_keys: str
    values: str
    sorted_values: str
    key_size: int
    value_size: int
    count: int
    bits: int
    first_bit: int = 0
    scratch: str = "sort_scratch"


@dataclass(frozen=True)
class Verify:
    """Copies a slot of int64 to the host, which waits for the stream, and calls ``judge`` with its numbers; that may raise."""

    slot: str
    judge: Callable[[Sequence[int]], None]
    sizeless: bool = False  #: ``judge`` knows nothing of the problem, so that it serves other sizes, too


Step = Launch | Gemm | Clear | Sort | Verify


@dataclass(frozen=True)
class Recipe:
    """All that a variant does for one problem."""

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...] = ()

    @property
    def workspace(self) -> int:
        return sum(slot.nbytes for slot in self.slots)


def fresh_first(steps: Sequence[Step], slots: Sequence[Slot]) -> Recipe:
    """The recipe of these steps and slots; fresh slots, and the steps that clear them, come before all others."""
    first, named = [step for step in steps if isinstance(step, Clear) and step.fresh], {slot.name: slot for slot in slots}
    apart = [named[step.slot] for step in first]
    return Recipe((*first, *[step for step in steps if step not in first]), (*apart, *[slot for slot in slots if slot not in apart]))


@dataclass(frozen=True)
class Layout:
    """An operand's shape, strides in elements, address modulo 16, dtype where there is a choice, and value if it was given as a Python number."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int = 0
    element: str = ""
    number: float | None = None


def contiguous(shape: tuple[int, ...], address: int = 0) -> Layout:
    """The layout in C order."""
    return Layout(shape, c_strides(shape), address)


def transposed(shape: tuple[int, ...], gap: int = 1) -> Layout:
    """The layout with all axes in reverse, its elements ``gap`` apart."""
    return Layout(shape, tuple(gap * stride for stride in c_strides(shape[::-1])[::-1]))


def typical_layouts(shapes: dict[str, tuple[int, ...]]) -> Iterator[dict[str, Layout]]:
    """Operands of these shapes at every alignment, transposed ones, and both with gaps."""
    for address in (0, 8, 4, 2):
        yield {name: contiguous(shape, address) for name, shape in shapes.items()}
    for gap in (1, 2):
        yield {name: transposed(shape, gap) for name, shape in shapes.items()}
    yield {name: Layout(shape, tuple(2 * stride for stride in c_strides(shape))) for name, shape in shapes.items()}


@dataclass(frozen=True)
class Target:
    """The facts about a device that recipes may use. ``ordinal`` is its CUDA ordinal, −1 in the emulator and where nothing runs."""

    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int = 50 << 20
    emulated: bool = False
    ordinal: int = -1

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


#: the device that recipes see in the emulator: its few multiprocessors and small cache make small problems take several blocks and tiles
EMULATED = Target((9, 0), 1, 1 << 12, emulated=True)


@dataclass(frozen=True)
class Variant:
    """One way to run an op.

    ``recipe(op, descriptor, layouts, target)`` is a pure function. ``refuses(op, descriptor)`` is the reason why the variant cannot serve a
    descriptor, or None. ``time(op, descriptor)`` says in microseconds about how long the variant takes, where it serves the descriptor: the fastest
    is tried first, of those that take as long the one that the op lists first.
    """

    name: str
    deterministic: bool
    recipe: Callable[[Op, Any, dict[str, Layout], Target], Recipe]
    refuses: Callable[[Op, Any], str | None] = lambda op, descriptor: None
    time: Callable[[Op, Any], float] = lambda op, descriptor: 0.0
    #: ``named(op, descriptor, target)`` for SKUs, where the descriptor decides on more than the variant's name says
    named: Callable[[Op, Any, Target], str] | None = None


@dataclass(frozen=True)
class GridAxis:
    """The extents of one axis of a problem at which plans may choose other kernels.

    ``coarse`` ones are combined with all others. ``dense`` ones, far more, are looked at while the other axes stand at their ``anchors``; of those
    for which plans choose alike one is combined with all others, too.
    """

    coarse: tuple[int, ...]
    dense: tuple[int, ...] = ()
    anchors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Op:
    """A row of a family's table."""

    name: str
    kind: Named
    category: OpCategory
    family: str
    formula: str
    operands: tuple[Operand, ...]
    variants: tuple[Variant, ...]
    elements: tuple[str, ...]
    indices: tuple[str, ...] = ()
    backward: str | None = None
    traits: dict[str, Any] = field(default_factory=dict, hash=False)  #: what the family's code reads of the row
    samples: Callable[[Op], Iterable[tuple[Any, dict[str, Layout]]]] = lambda op: ()  #: problems that together use every kernel of the op
    #: ``poses(op, element, index, *extents)`` is the descriptor with usual options for extents along ``grid``, where the family has one
    poses: Callable[..., Any] | None = None
    grid: tuple[GridAxis, ...] = ()
    checked_first: tuple[str, ...] = ()  #: operands whose shapes are checked before those of the others

    def looked_at(self) -> list[Operand]:
        """The operands in the order in which their shapes are checked."""
        first = {name: k for k, name in enumerate(self.checked_first)}
        return sorted(self.operands, key=lambda operand: first.get(operand.name, len(first)))
