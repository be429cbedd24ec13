"""Kernels that are not ops, as a user of ``numba.cuda.jit`` and the device library would write and launch them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numba_baracuda.arrays import arrays

from .case import Arrays, Bind, Spec
from .checks import Truth, row_sum
from .values import empty, uniform


@dataclass(frozen=True)
class RowSumCase:
    """The kernel of ``benchmarks/rowsum.py``."""

    rows: int
    columns: int
    op: str = "row_sum"
    element: str = "f32"
    segments: int = 0
    indexed: bool = False

    @property
    def id(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def specs(self) -> dict[str, Spec]:
        return {"x": Spec((self.rows, self.columns), self.element), "y": Spec((self.rows,), self.element, output=True)}

    @property
    def moved(self) -> dict[str, Spec]:
        return self.specs

    def tiny(self) -> RowSumCase:
        return replace(self, rows=2, columns=300)

    def make(self, xp: Any) -> Arrays:
        x = uniform(xp, xp.random.default_rng(7), self.specs["x"].shape, self.element)
        return {"x": x, "y": empty(xp, self.specs["y"].shape, self.element)}

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        return row_sum(xp, operands)

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        from numba import cuda

        from . import rowsum

        if arrays.emulating():
            from numba_baracuda.device.emulate import emulate

            kernel: Any = emulate(rowsum.row_sum)
        else:
            kernel = rowsum.row_sum
        launched = kernel[rowsum.launch(self.rows, self.columns)]

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            x, y = operands["x"].reshape(-1), operands["y"]
            if not arrays.emulating():  # given CuPy arrays, every launch would wait for their stream
                x, y = cuda.as_cuda_array(x), cuda.as_cuda_array(y)
            return lambda: launched(x, y, self.columns)

        return f"row_sum {self.element}", bind
