"""The descriptors of the loss family: problems without their arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..core.dtypes import BY_NAME, element
from ..core.errors import InvalidProblem
from ..core.op import Layout, Op, contiguous
from ..core.options import Described, check_element, flag, number, refusal, representable, whole
from ..core.policy import tuned
from ..core.vocabulary import LossKind, LossReduction
from .chunking import logits_row_stride, pick_chunk_size, rows_of_chunk
from .policy import Chunks

#: a target that is left out of the loss
FLCE_DEFAULT_IGNORE_INDEX = -100

_NAME = "fused_linear_cross_entropy"
_CHUNKS = ("auto", "lean", "liger")


@dataclass(frozen=True, eq=False)
class _Layer(Described):
    """A linear layer: ``bt`` rows of ``h`` numbers, ``v`` classes."""

    bt: int
    h: int
    v: int
    element: str = "f32"
    kind = LossKind.FUSED_LINEAR_CROSS_ENTROPY
    op_name = _NAME
    family = "loss"
    indexed = ""
    index_name = ""

    def __post_init__(self) -> None:
        for name in ("bt", "h", "v"):
            object.__setattr__(self, name, whole(self.op_name, name, getattr(self, name)))
        object.__setattr__(self, "element", element(self.element, self.op_name).name)

    @property
    def element_name(self) -> str:
        """Short name of the dtype of the values."""
        return self.element

    @property
    def accumulator(self) -> str:
        """Short name of the dtype of sums and losses."""
        return BY_NAME[self.element].accumulator

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the input and its gradient."""
        return self.bt, self.h

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weight and its gradient."""
        return self.v, self.h

    @property
    def refused(self) -> tuple[str, ...]:
        """Operands that the options do not admit."""
        return ()

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of operands with one element for each row."""
        return (self.bt,)

    @property
    def class_shape(self) -> tuple[int, ...]:
        """The shape of operands with one element for each class."""
        return (self.v,)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of a mean or sum, and of its gradient."""
        return (1,)

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        check_element(op, self.element)
        for name, least in (("bt", 0), ("h", 1), ("v", 1)):
            extent = getattr(self, name)
            if not least <= extent < 1 << 31:
                raise InvalidProblem(f"{op.name}: {name} is {extent}, wants {least} or more, and less than 2^31")

    def specialise(self, op: Op) -> Op:
        """The op with the dtypes that its operands have for this element."""
        kinds = {"accumulator": self.accumulator, "either": " ".join(dict.fromkeys((self.element, self.accumulator)))}
        return replace(op, operands=tuple(replace(operand, element=kinds.get(operand.element, operand.element)) for operand in op.operands))

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """The layouts with the largest workspace: without the operands that replace scratch."""
        everything = {operand.name: contiguous(getattr(self, operand.axes[0])) for operand in op.operands if operand.name not in self.refused}
        yield {name: layout for name, layout in everything.items() if name not in ("lse", "predicted", "entropy", "grad_input")}


@dataclass(frozen=True, eq=False)
class FusedLinearCrossEntropyDescriptor(_Layer):
    """The cross entropy of a linear layer: ``bt`` rows of ``h`` numbers, ``v`` classes.

    ``reduction`` is a :class:`LossReduction`, its name or number. ``chunk`` is the number of rows of logits that exist at a time: ``"auto"``, the
    fastest known number whose logits and other scratch fit ``max_workspace_bytes``, or whose logits fit 512 MiB where that is None; ``"lean"`` halves
    this limit; ``"liger"``, :func:`~numba_baracuda.loss.pick_chunk_size`; or a number. The other fields are keywords of
    :func:`~numba_baracuda.fused_linear_cross_entropy`.
    """

    reduction: LossReduction | str | int = LossReduction.MEAN
    ignore_index: int = FLCE_DEFAULT_IGNORE_INDEX
    label_smoothing: float = 0.0
    lse_square_scale: float = 0.0
    softcap: float | None = None
    logit_scale: float = 1.0
    chunk: str | int = "auto"
    max_workspace_bytes: int | None = None
    accumulate_grad_weight: bool = False
    grad_weight_accum: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle = object.__setattr__
        settle(self, "ignore_index", whole(_NAME, "ignore_index", self.ignore_index))
        for name in ("label_smoothing", "lse_square_scale", "logit_scale"):
            settle(self, name, number(_NAME, name, getattr(self, name)))
        settle(self, "softcap", None if self.softcap is None else number(_NAME, "softcap", self.softcap, "a finite number or None"))
        try:
            settle(self, "reduction", LossReduction.parse(self.reduction))
        except InvalidProblem as error:
            raise InvalidProblem(f"{_NAME}: reduction: {error}") from None
        if not (isinstance(self.chunk, str) and self.chunk in _CHUNKS):
            wants = f"a whole number or one of {', '.join(_CHUNKS)}"
            settle(self, "chunk", whole(_NAME, "chunk", self.chunk, wants=wants))
        if self.max_workspace_bytes is not None:
            settle(self, "max_workspace_bytes", whole(_NAME, "max_workspace_bytes", self.max_workspace_bytes, 0))
        settle(self, "accumulate_grad_weight", flag(_NAME, "accumulate_grad_weight", self.accumulate_grad_weight))
        accum = self.element if self.grad_weight_accum is None else self.grad_weight_accum
        settle(self, "grad_weight_accum", element(accum, _NAME, "grad_weight_accum").name)

    def with_reduction(self, reduction: LossReduction | str | int) -> FusedLinearCrossEntropyDescriptor:
        """The same problem with another reduction."""
        return replace(self, reduction=reduction)

    def with_ignore_index(self, ignore_index: int) -> FusedLinearCrossEntropyDescriptor:
        """The same problem with another target value that is ignored."""
        return replace(self, ignore_index=ignore_index)

    def within(self, nbytes: int) -> FusedLinearCrossEntropyDescriptor:
        """The same problem with ``max_workspace_bytes`` of so many bytes, unless it has a number."""
        return self if self.max_workspace_bytes is not None else replace(self, max_workspace_bytes=nbytes)

    @property
    def each(self) -> bool:
        """Whether every row has a loss of its own."""
        return self.reduction == LossReduction.NONE

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the loss."""
        return (self.bt,) if self.each else (1,)

    @property
    def refused(self) -> tuple[str, ...]:
        """Operands that the options do not admit."""
        return () if self.each else ("dy_entropy",)

    @functools.cached_property
    def chunk_size(self) -> int:
        """Rows of logits that exist at a time."""
        if isinstance(self.chunk, int):
            return max(1, min(self.chunk, self.bt))
        if self.chunk == "liger":
            return min(pick_chunk_size(self.bt, self.h, self.v), max(self.bt, 1))
        if self.max_workspace_bytes is None:
            budget, row = tuned(Chunks()).logits_bytes, logits_row_stride(self.v) * BY_NAME[self.element].itemsize
        else:
            budget, row = self.max_workspace_bytes - self.other_scratch_bytes, self.row_scratch_bytes
        return rows_of_chunk(self.bt, self.h, self.v, (budget // 2 if self.chunk == "lean" else budget) // row)

    @property
    def conceptual_scratch_bytes(self) -> int:
        """Bytes of a chunk's logits without padding, of a float32 loss for each row, and of a count."""
        return self.chunk_size * self.v * BY_NAME[self.element].itemsize + 4 * self.bt + 8

    @property
    def row_scratch_bytes(self) -> int:
        """The most bytes for each row of a chunk: its logits, and a copy of its input."""
        return (logits_row_stride(self.v) + self.h) * BY_NAME[self.element].itemsize

    @property
    def other_scratch_bytes(self) -> int:
        """The most bytes of other scratch: cuBLAS's, six numbers and a class for each row, and separate sums of gradients."""
        size, classes = BY_NAME[self.accumulator].itemsize, self.v * (1 + self.h * (self.grad_weight_accum != self.element))
        return tuned(Chunks()).workspace_bytes + (6 * size + 8) * self.bt + size * classes + 512

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        super().check(op)
        if isinstance(self.chunk, int) and self.chunk < 1:
            raise InvalidProblem(f"{op.name}: chunk is {self.chunk}, wants 1 or more rows")
        if not 0 <= self.label_smoothing <= 1:
            raise InvalidProblem(f"{op.name}: label_smoothing is {self.label_smoothing}, wants a number from 0 to 1")
        if self.lse_square_scale < 0:
            raise refusal(op.name, "lse_square_scale", self.lse_square_scale, "a number of 0 or more")
        for name in ("lse_square_scale", "logit_scale"):
            representable(op.name, name, getattr(self, name), self.accumulator, "a number")
        most = BY_NAME[self.accumulator].limits[1]
        if self.softcap is not None and not 1 / most <= self.softcap <= most:
            wants = f"a number above 0 that {self.accumulator} holds and whose inverse it holds: {1 / most:.2g} to {most:.2g}"
            raise refusal(op.name, "softcap", self.softcap, wants)
        if self.grad_weight_accum not in (self.element, self.accumulator):
            wants = " or ".join(dict.fromkeys((self.element, self.accumulator)))
            raise InvalidProblem(f"{op.name}: grad_weight_accum is {self.grad_weight_accum}, wants {wants}")

    def specialise(self, op: Op) -> Op:
        """The op with the dtypes that its operands have for this element; an accumulated gradient is read as well."""
        op = super().specialise(op)
        updated = {"grad_weight"} if self.accumulate_grad_weight else set()
        return replace(op, operands=tuple(replace(operand, updated=operand.updated or operand.name in updated) for operand in op.operands))


@dataclass(frozen=True, eq=False)
class FusedLinearCrossEntropyBackwardDescriptor(_Layer):
    """The product of gradients with the upstream gradient of a loss: of ``bt`` rows of ``h`` numbers, and ``v`` classes."""

    op_name = f"{_NAME}_backward"
