"""Element kinds: storage, accumulator, rounding. The only place where float16 and bfloat16 are special.

Kernels, descriptors and cache keys name an element by its short name (``"f32"``); NumPy and ml_dtypes are asked only when an array is at hand.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import InvalidProblem, Unsupported
from .vocabulary import MathPrecision, Named


class ElementKind(Named):
    """Dtype tag of an operand."""

    F16, BF16, F32, F32_STRICT, F64, S8, U8, I32, I64, BOOL, FP8_E4M3, FP8_E5M2, S4, U4, BIN, COMPLEX32, COMPLEX64 = range(17)


_BF16_MAX = (2 - 2.0**-7) * 2.0**127


@dataclass(frozen=True)
class Element:
    """What the package knows of one element type."""

    kind: ElementKind
    name: str  #: short name, used in signatures, SKUs and messages
    numpy_name: str  #: name NumPy (with ml_dtypes for bfloat16) knows it by
    itemsize: int  #: bytes
    accumulator: str  #: short name of the type that sums are kept in
    math: MathPrecision
    eps: float  #: distance from 1 to the next number; 0 for integers

    @property
    def whole(self) -> bool:
        """Whether its values are integers."""
        return not self.eps

    @functools.cached_property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest finite value."""
        if self.name == "bf16":
            return -_BF16_MAX, _BF16_MAX
        if self.whole:
            info = np.iinfo(self.numpy_name)
            return int(info.min), int(info.max)
        return float(np.finfo(self.numpy_name).min), float(np.finfo(self.numpy_name).max)

    @property
    def tiny(self) -> float:
        """The least positive normal number."""
        return 2.0**-126 if self.name == "bf16" else float(np.finfo(self.numpy_name).tiny)

    @property
    def vector(self) -> int:
        """Elements in 16 bytes, the widest vectorized load or store."""
        return 16 // self.itemsize

    @property
    def distinct_positions(self) -> int:
        """How many positions can be told apart as numbers of the accumulator's type: as integers, or as the bits of finite floats."""
        return {"f32": 0x7F800000, "f64": 0x7FF0000000000000, "i32": 0x7FFFFFFF, "i64": 0x7FFFFFFFFFFFFFFF}[self.accumulator]

    def tolerance(self, terms: Any) -> Any:
        """What a fold of ``terms`` elements may be off by, as a share of Σ |terms|: 4·eps(accumulator)·√terms + eps. A number or an array."""
        return 4 * BY_NAME[self.accumulator].eps * terms**0.5 + self.eps


_TABLE = (
    Element(ElementKind.F16, "f16", "float16", 2, "f32", MathPrecision.F32, 2.0**-10),
    Element(ElementKind.BF16, "bf16", "bfloat16", 2, "f32", MathPrecision.F32, 2.0**-7),
    Element(ElementKind.F32, "f32", "float32", 4, "f32", MathPrecision.F32, 2.0**-23),
    Element(ElementKind.F64, "f64", "float64", 8, "f64", MathPrecision.F64, 2.0**-52),
    Element(ElementKind.I32, "i32", "int32", 4, "i32", MathPrecision.INT8, 0.0),
    Element(ElementKind.I64, "i64", "int64", 8, "i64", MathPrecision.INT8, 0.0),
    Element(ElementKind.U8, "u8", "uint8", 1, "i32", MathPrecision.INT8, 0.0),
    Element(ElementKind.BOOL, "bool", "bool", 1, "i32", MathPrecision.BINARY, 0.0),
)
#: short names of the elements that ops take
FLOATS, NUMBERS = ("f16", "bf16", "f32", "f64"), ("f16", "bf16", "f32", "f64", "i32", "i64")
BY_KIND = {element.kind: element for element in _TABLE}
BY_NAME = {element.name: element for element in _TABLE}
BY_NUMPY_NAME = {element.numpy_name: element for element in _TABLE}


def element(which: Any, where: str = "", name: str = "element") -> Element:
    """The :class:`Element` for a kind, a short name, a dtype of NumPy or torch, or its name; :class:`Unsupported` for kinds without kernels.

    ``where`` and ``name`` are op and argument, for messages.
    """
    if isinstance(which, Element):
        return which
    wants, at = f"wants one of {', '.join(BY_NAME)}", f"{where}: {name}" if where else name
    found = None
    if isinstance(which, str):
        found = BY_NAME.get(which.lower()) or BY_NUMPY_NAME.get(which)
        with contextlib.suppress(InvalidProblem):
            which = which if found else ElementKind.parse(which)
    elif which is not None and not isinstance(which, ElementKind):
        with contextlib.suppress(TypeError, ValueError):
            found = BY_NUMPY_NAME.get(np.dtype(which).name)
        found = found or BY_NUMPY_NAME.get(str(which).removeprefix("torch."))
    if isinstance(which, ElementKind):
        found = BY_KIND.get(which)
        if found is None:
            raise Unsupported(f"{at}: no kernel holds {which.name}, {wants}")
    if found is None:
        raise InvalidProblem(f"{at}: got {which!r}, {wants}")
    return found


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a short name; bfloat16 comes from ml_dtypes, imported here and nowhere else."""
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return np.dtype(BY_NAME[name].numpy_name)
