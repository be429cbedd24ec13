"""Recipes in the emulator: the steps of a plan on NumPy arrays."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.allocation import in_host
from ..arrays.views import View
from ..core.dtypes import BY_NAME, numpy_dtype
from ..core.op import NULL, Clear, Gemm, Launch, Matrix, Op, Recipe, Sort, Step
from ..core.spec import arrange
from ..runtime import jit
from . import emulator
from .conversions import UnknownConstruct
from .emulator import FAST, Mode
from .memory import Memory

_mode: contextvars.ContextVar[Mode] = contextvars.ContextVar("numba_baracuda_emulator_mode", default=FAST)


@contextlib.contextmanager
def mode(chosen: Mode) -> Iterator[None]:
    """Runs ops inside the block in this mode."""
    before = _mode.set(chosen)
    try:
        yield
    finally:
        _mode.reset(before)


class _Arranged(NamedTuple):
    """A launch with its arguments in the order of the kernel's parameters."""

    kernel: jit.Kernel
    pointers: tuple[str, ...]
    scalars: tuple[Any, ...]

    @classmethod
    def of(cls, step: Launch, elements: Mapping[str, str]) -> _Arranged:
        kernel = jit.resolve(step.spec)
        return cls(kernel, *arrange(step.spec.kernel, kernel.parameters, step.arguments, elements))


class Emulated:
    """The steps of a recipe, run one after the other. Outputs and workspace are poison until a kernel writes them; inputs can only be read."""

    def __init__(self, op: Op, recipe: Recipe, elements: Mapping[str, str]) -> None:
        self.op, self.recipe = op, recipe
        self.launches = {id(step): _Arranged.of(step, elements) for step in recipe.steps if isinstance(step, Launch)}

    def __call__(self, owners: Sequence[Any], workspace: View | None) -> None:
        memories = self.memories(owners, workspace)
        for step in self.recipe.steps:
            self.step(step, memories)
        for operand in self.op.operands:
            if operand.output:
                memories[operand.name][0].expect_written(self.op.name)

    def memories(self, owners: Sequence[Any], workspace: View | None, written: bool = False) -> dict[str, tuple[Memory, int]]:
        """Operands and slots by name, as memory and an offset in bytes; ``owners`` are the arrays of the operands.

        ``written`` says that outputs and slots have values already.
        """
        memories: dict[str, tuple[Memory, int]] = {}
        for operand, owner in zip(self.op.operands, owners, strict=True):
            read = written or not operand.output or operand.updated
            memories[operand.name] = Memory.of(operand.name, in_host(owner), written=read, readonly=not operand.output)
        # there is no workspace where every slot is empty
        whole, offset = np.empty(0, np.uint8) if workspace is None else in_host(workspace.owner).reshape(-1).view(np.uint8), 0
        for slot in self.recipe.slots:
            raw = whole[offset : offset + slot.count * numpy_dtype(slot.element).itemsize]
            memories[slot.name] = Memory.of(slot.name, raw.view(numpy_dtype(slot.element)), written=written)
            offset += slot.nbytes
        return memories

    def step(self, step: Step, memories: dict[str, tuple[Memory, int]]) -> None:
        """Runs one step."""
        if isinstance(step, Launch):
            self._launch(step, memories)
        elif isinstance(step, Clear):
            memories[step.slot][0].set_bytes(step.byte)
        elif isinstance(step, Sort):
            self._sort(step, memories)
        elif isinstance(step, Gemm):
            self._gemm(step, memories)
        else:
            step.judge(memories[step.slot][0].owner.tolist())

    def _sort(self, step: Sort, memories: dict[str, tuple[Memory, int]]) -> None:
        values, sorted_values = (memories[name][0].owner.reshape(-1).view(f"u{step.value_size}") for name in (step.values, step.sorted_values))
        keys = memories[step.keys][0].owner
        order = np.argsort((keys & (1 << step.bits) - 1) >> step.first_bit, kind="stable")
        memories[step.sorted_keys][0].write(keys[order])
        sorted_values[...] = values[order]
        memories[step.sorted_values][0].write(memories[step.sorted_values][0].owner)

    def _gemm(self, step: Gemm, memories: dict[str, tuple[Memory, int]]) -> None:
        """The product in the accumulator's type, rounded once, as cuBLAS computes it."""
        wide = numpy_dtype(BY_NAME[step.a.element].accumulator)

        def read(matrix: Matrix) -> Any:
            return memories[matrix.name][0].read_matrix(memories[matrix.name][1], matrix).astype(wide)

        alpha, beta = (each if isinstance(each, float) else float(memories[each][0].owner.reshape(-1)[0]) for each in (step.alpha, step.beta))
        a, b = (read(matrix) for matrix in (step.a, step.b))
        product = np.zeros((step.c.rows, step.c.columns), wide)
        with np.errstate(all="ignore"):
            if alpha:
                product = wide.type(alpha) * ((a.T if step.transpose_a else a) @ (b.T if step.transpose_b else b))
            if beta:
                product += wide.type(beta) * read(step.c)
            memories[step.c.name][0].write_matrix(memories[step.c.name][1], step.c, product)

    def _launch(self, step: Launch, memories: dict[str, tuple[Memory, int]]) -> None:
        blocks, threads, shared = step.config
        kernel, pointers, scalars = self.launches[id(step)]
        arguments: list[Any] = []
        for name, ty in zip(pointers, kernel.types, strict=False):
            memory, offset = memories[name] if name != NULL else Memory.of("null", np.empty(0, np.uint8))
            memory.shadow.clear()
            arguments.append(emulator.pointer_into(memory, offset, ty))
        if blocks:
            try:
                emulator.run(kernel.py_func, kernel.types, blocks, threads, [*arguments, *scalars], dynamic_shared=shared, mode=_mode.get())
            except UnknownConstruct as error:
                raise UnknownConstruct(f"{self.op.name}: {error}; wants what the emulator knows") from error
