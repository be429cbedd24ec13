"""The recipes of the loss variants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.axes import ceil_div, merge_axes
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import NULL, Gemm, Launch, Layout, Matrix, Op, Recipe, Slot, Step, Target
from ..core.policy import tuned
from ..core.vocabulary import LossReduction
from .chunking import logits_row_stride, row_elements
from .descriptor import FusedLinearCrossEntropyBackwardDescriptor, FusedLinearCrossEntropyDescriptor
from .geometry import (
    FACTORS,
    INVERSE_COUNT,
    LARGE_CAP,
    LOSS,
    TOTAL_THREADS,
    Z_LOSS,
    block_per_row,
    persistent_blocks,
)
from .launches import assign, kernel_spec, mask
from .policy import Chunks, cross_entropy_rows

GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
#: operands that have one element for each row of the input, as kernels take their strides
ROW_OPERANDS = ("target", "row_weight", "dy", "lse", "predicted")
#: slots: logits, the workspace of cuBLAS, input rows with zeros for those without a gradient, and scalars that products read from the device
_LOGITS, _GEMM, _MASKED, _ALPHA, _BETAS = "logits", "gemm", "masked_input", "alpha", ("zero", "one")


def _row_stride(op: Op, name: str, layout: Layout) -> int:
    """Elements from one row of an operand to the next. cuBLAS wants rows in ascending order, each contiguous."""
    (rows, columns), (row, column) = layout.shape, layout.strides
    if rows and ((columns > 1 and column != 1) or (rows > 1 and row < columns)):
        wants = "rows in ascending order, each contiguous"
        raise Unsupported(f"{op.name}: {name} has strides {list(layout.strides)}, wants {wants}; make a contiguous copy")
    return row if rows > 1 else columns


class Forward:
    """The problem of a forward op, and its steps."""

    input_first = False  #: whether the gradient of the input is a chunk's first product

    def __init__(self, op: Op, descriptor: FusedLinearCrossEntropyDescriptor, layouts: dict[str, Layout], target: Target) -> None:
        self.op, self.layouts, self.target, self.problem = op, layouts, target, descriptor
        self.value, self.wide, self.stride = descriptor.element, descriptor.accumulator, logits_row_stride(descriptor.v)
        self.gradients, self.classes = [name for name in GRADIENTS if name in layouts], descriptor.v
        self.gemm_scaled = self.value == "f16" and bool(self.gradients)  # a scaled gradient would underflow in float16
        self.squared = descriptor.lse_square_scale != 0 or "z_loss" in layouts
        self.argmax = "accuracy" in layouts or "predicted" in layouts
        self.entropic = bool(self.gradients) and "dy_entropy" in layouts
        self.label = layouts["target"].element or "i64"
        self.upstream = layouts["dy"].element or descriptor.accumulator if "dy" in layouts and layouts["dy"].number is None else ""
        self.accumulators = {"grad_weight": "weight_sums", "grad_bias": "bias_sums"}
        if descriptor.grad_weight_accum == self.value:
            del self.accumulators["grad_weight"]
        tail = descriptor.v % row_elements() if BY_NAME[self.value].itemsize == 2 else 0  # products of odd extents use the slowest kernels
        self.column_ranges = [(first, count) for first, count in ((0, descriptor.v - tail), (descriptor.v - tail, tail)) if count]
        self._check()
        self._check_rows_upstream()

    def _check(self) -> None:
        if "grad_bias" in self.layouts and "bias" not in self.layouts:
            raise InvalidProblem(f"{self.op.name}: grad_bias is given without bias, wants both or bias alone")
        matrices = [name for name in ("input", "weight", "grad_input", "grad_weight") if name in self.layouts]
        self.row_strides: dict[str, int] = {name: _row_stride(self.op, name, self.layouts[name]) for name in matrices}
        for name in ("bias", "class_weight", "grad_bias"):
            layout = self.layouts.get(name)
            if layout is not None and layout.shape[0] > 1 and layout.strides[0] != 1:
                raise Unsupported(f"{self.op.name}: {name} has stride {layout.strides[0]}, wants contiguous elements; make a contiguous copy")

    def _check_rows_upstream(self) -> None:
        """``factors`` are those of the loss: they serve entropies, too, where nothing but the scale of logits is in them."""
        for name in self.problem.refused:
            if name in self.layouts:
                reduction = LossReduction.parse(self.problem.reduction).name.lower()
                raise InvalidProblem(f'{self.op.name}: {name} is given with reduction="{reduction}", wants "none"')
        number = self.layouts["dy"].number if "dy" in self.layouts else None
        if "dy_entropy" in self.layouts and number not in (None, 1):
            raise InvalidProblem(f"{self.op.name}: dy is {number} beside dy_entropy, wants an array [BT] or None")

    @property
    def slots(self) -> tuple[Slot, ...]:
        bt, v, h, chunk = self.problem.bt, self.problem.v, self.problem.h, self.problem.chunk_size
        made = [Slot(_LOGITS, self.value, chunk * self.stride), Slot(_GEMM, "u8", 16 if self.target.emulated else tuned(Chunks()).workspace_bytes)]
        made += [Slot(_MASKED, self.value, chunk * h)] if "grad_weight" in self.gradients and not self._lends_grad_input else []
        made += [Slot("factors", self.wide, FACTORS), Slot("losses", self.wide, bt)]
        made += [Slot(name, self.wide, bt) for name, wanted in (("squares", self.squared), ("hits", self.argmax)) if wanted]
        made += [Slot("lse", self.wide, bt)] if "lse" not in self.layouts else []
        made += [Slot("entropy", self.wide, bt)] if self.entropic and "entropy" not in self.layouts else []
        made += [Slot("predicted", "i64", bt)] if self.argmax and "predicted" not in self.layouts else []
        made += [Slot(name, self.wide, 1) for name in (_ALPHA, *_BETAS) if self.gemm_scaled]
        made += [
            Slot(self.accumulators[name], self.wide, v * h if name == "grad_weight" else v) for name in self.gradients if name in self.accumulators
        ]
        made += [Slot("ones", self.value, chunk)] if "grad_bias" in self.gradients else []
        return tuple(made)

    def _matrix(self, name: str, first: int, rows: int) -> Matrix:
        """``rows`` rows of an operand, from row ``first`` on."""
        stride = self.row_strides[name]
        return Matrix(name, self.value, rows, self.problem.h, stride, first * stride, self.layouts[name].address)

    def _logits(self, rows: int, first: int, columns: int) -> Matrix:
        return Matrix(_LOGITS, self.value, rows, columns, self.stride, first)

    def _sum_of(self, name: str) -> Matrix:
        """The slot where a gradient that all chunks contribute to is summed in the accumulator's type."""
        rows, columns = (self.problem.v, self.problem.h) if name == "grad_weight" else (1, self.problem.v)
        return Matrix(self.accumulators[name], self.wide, rows, columns, columns)

    def _product(self, a: Matrix, b: Matrix, c: Matrix, *, transpose_a: bool = False, accumulate: bool) -> Gemm:
        """A product with gradients of logits, added to ``c`` with ``accumulate``."""
        scalars: tuple[Any, Any] = (_ALPHA, _BETAS[accumulate]) if self.gemm_scaled else (1.0, float(accumulate))
        return Gemm(a, b, c, transpose_a, False, *scalars, workspace=_GEMM)

    def begin(self) -> list[Step]:
        """The steps before all chunks."""
        chunk = self.problem.chunk_size
        return [self.totals(), *([assign(Matrix("ones", self.value, 1, chunk, chunk))] if "grad_bias" in self.gradients else [])]

    def totals(self, stage: str = "") -> Launch:
        """The launch that counts the targets and computes the factors; ``stage`` is that of :func:`~.kernels.total_targets`."""
        problem, number = self.problem, self.layouts["dy"].number if "dy" in self.layouts else None
        target, mean = self.layouts["target"], problem.reduction == LossReduction.MEAN
        upstream = "" if problem.each else self.upstream
        spec = kernel_spec(
            "total_targets", TOTAL_THREADS, value=self.value, label=self.label, upstream=upstream, mean=mean,
            weighted="class_weight" in self.layouts, smoothed=problem.label_smoothing > 0, gemm_scaled=self.gemm_scaled,
            stage=stage,
        )  # fmt: skip
        arguments = {
            "target": "target", "class_weight": self.name_or_null("class_weight"), "dy": "dy" if upstream else NULL,
            "sums": "sums" if stage else NULL, "factors": "factors",
            **{name: name if self.gemm_scaled else NULL for name in (_ALPHA, *_BETAS)}, "rows": problem.bt, "classes": self.classes,
            "target_stride": target.strides[0], "ignore": problem.ignore_index, "number": 1.0 if number is None else number,
            "scale": problem.logit_scale,
        }  # fmt: skip
        return Launch(spec, (1, TOTAL_THREADS, 0), arguments)

    def strides_of(self, *names: str) -> tuple[int, ...]:
        """Elements from one row to the next of operands that have one element for each."""
        layouts = [self.layouts.get(name) for name in names]
        return tuple(layout.strides[0] if layout and layout.strides else 1 for layout in layouts)

    def name_or_null(self, name: str) -> str:
        return name if name in self.layouts else NULL

    def rows(self, first: int, rows: int) -> Launch:
        """The launch for the losses of a chunk, and the gradients of its logits in their place."""
        problem, vector = self.problem, BY_NAME[self.value].vector
        policy = cross_entropy_rows(self.value, self.target)
        threads, resident, shared_classes, blocks = (persistent_blocks if self.gradients else block_per_row)(rows, problem.v, self.value, self.target)
        upstream, cap, entropy = self.upstream if problem.each else "", problem.softcap or 1.0, self.entropic or "entropy" in self.layouts
        spec = kernel_spec(
            "cross_entropy_rows", threads, resident, value=self.value, label=self.label, upstream=upstream,
            entropy_upstream=self.layouts["dy_entropy"].element or self.wide if self.entropic else "", vector=vector,
            steps=policy.items_per_thread, copies_in_flight=policy.prefetched_items_per_thread, threads=threads, shared_classes=shared_classes,
            gradient=bool(self.gradients), smoothed=problem.label_smoothing > 0, squared=self.squared, scaled=problem.logit_scale != 1,
            capped=problem.softcap is not None, exact_tanh=cap > LARGE_CAP, biased="bias" in self.layouts, weighted="class_weight" in self.layouts,
            row_weighted="row_weight" in self.layouts, argmax=self.argmax, entropy=entropy,
        )  # fmt: skip
        arguments = {
            "x": _LOGITS, "target": "target", **{name: self.name_or_null(name) for name in ("bias", "class_weight", "row_weight")},
            "dy": "dy" if upstream else NULL, "dy_entropy": "dy_entropy" if self.entropic else NULL, "factors": "factors", "losses": "losses",
            "squares": "squares" if self.squared else NULL, "hits": "hits" if self.argmax else NULL, "lse": "lse",
            "predicted": "predicted" if self.argmax else NULL, "entropies": "entropy" if entropy else NULL, "first_row": first, "rows": rows,
            "classes": problem.v, "row_stride": self.stride, "ignore": problem.ignore_index, "smoothing": problem.label_smoothing,
            "lse_square_scale": problem.lse_square_scale, "scale": problem.logit_scale, "cap": (cap, 1 / cap),
            "strides": self.strides_of(*ROW_OPERANDS, "entropy", "dy_entropy"),
        }  # fmt: skip
        return Launch(spec, (blocks, threads, shared_classes * BY_NAME[self.value].itemsize), arguments)

    def chunk(self, first: int, rows: int) -> list[Step]:
        """The steps for one chunk: input rows ``first`` to ``first + rows`` − 1."""
        return [*self.logits(first, rows), self.rows(first, rows), *self.gradient_products(first, rows)]

    def logits(self, first: int, rows: int) -> list[Step]:
        """The products that make the logits of a chunk."""
        x = self._matrix("input", first, rows)
        return [Gemm(x, self._matrix("weight", *part), self._logits(rows, *part), transpose_b=True, workspace=_GEMM) for part in self.column_ranges]

    @property
    def _lends_grad_input(self) -> bool:
        """Whether the gradient of the input, whose product is the last of a chunk, has its masked input until then."""
        return "grad_input" in self.gradients and not self.input_first

    def gradient_products(self, first: int, rows: int) -> list[Step]:
        """The products of the gradients of a chunk's logits."""
        return [*self.class_products(first, rows), *self.input_products(first, rows)]

    def class_products(self, first: int, rows: int) -> list[Step]:
        """Those that make gradients of the weight and the bias."""
        made: list[Step] = []
        x, chunk_logits = self._matrix("input", first, rows), [self._logits(rows, *part) for part in self.column_ranges]
        if "grad_weight" in self.gradients:
            masked = self._matrix("grad_input", first, rows) if self._lends_grad_input else Matrix(_MASKED, self.value, rows, x.columns, x.columns)
            made.append(mask(x, masked, first, self.layouts["target"], self.problem.ignore_index, self.classes))
            accumulate = first > 0 or (self.problem.accumulate_grad_weight and "grad_weight" not in self.accumulators)
            for logits, (column, count) in zip(chunk_logits, self.column_ranges, strict=True):
                destination = self._matrix("grad_weight", column, count)
                if "grad_weight" in self.accumulators:
                    destination = replace(self._sum_of("grad_weight"), rows=count, offset=column * self.problem.h)
                made.append(self._product(logits, masked, destination, transpose_a=True, accumulate=accumulate))
        if "grad_bias" in self.gradients:
            for logits, (column, count) in zip(chunk_logits, self.column_ranges, strict=True):
                destination = replace(self._sum_of("grad_bias"), columns=count, offset=column)
                made.append(self._product(Matrix("ones", self.value, 1, rows, rows), logits, destination, accumulate=first > 0))
        return made

    def input_products(self, first: int, rows: int) -> list[Step]:
        """That which makes the gradient of the input."""
        if "grad_input" not in self.gradients:
            return []
        parts, made = list(enumerate(self.column_ranges)), list[Step]()
        for k, part in reversed(parts):  # the few classes of the tail first: only their part is rounded twice
            logits, weight = self._logits(rows, *part), self._matrix("weight", *part)
            made.append(self._product(logits, weight, self.input_gradient(first, rows), accumulate=k < len(parts) - 1))
        return made

    def input_gradient(self, first: int, rows: int) -> Matrix:
        """Where the gradient of a chunk's input is stored."""
        return self._matrix("grad_input", first, rows)

    def finish(self) -> list[Step]:
        """The steps after all chunks: convert gradients to their own type, and sum over rows."""
        made: list[Step] = []
        for name in self.gradients:
            if name in self.accumulators:
                rows, columns = (self.problem.v, self.problem.h) if name == "grad_weight" else (1, self.problem.v)
                destination = Matrix(name, self.value, rows, columns, self.row_strides.get(name, columns), address=self.layouts[name].address)
                accumulate = name == "grad_weight" and self.problem.accumulate_grad_weight
                made.append(assign(destination, x=self._sum_of(name), accumulate=accumulate))
        for slot, factor, output in (("losses", LOSS, "out"), ("squares", Z_LOSS, "z_loss"), ("hits", INVERSE_COUNT, "accuracy")):
            if output in self.layouts:
                made.append(self._fold(slot, factor, output))
        return made

    def _fold(self, slot: str, factor: int, output: str) -> Launch:
        layout, each = self.layouts[output], self.problem.each
        result = layout.element or self.wide
        spec = kernel_spec("fold_losses", TOTAL_THREADS, value=self.value, result=result, each=each, factor=factor)
        blocks = ceil_div(self.problem.bt, TOTAL_THREADS) if each else 1
        arguments = {"losses": slot, "factors": "factors", "out": output, "rows": self.problem.bt, "out_stride": layout.strides[0] if each else 1}
        return Launch(spec, (blocks, TOTAL_THREADS, 0), arguments)

    def nothing(self) -> list[Step]:
        """The steps where the input has no rows: gradients and sums are 0, and accumulated gradients stay."""
        made: list[Step] = []
        for name in ("grad_weight", "grad_bias", "out", "z_loss", "accuracy"):
            if name in self.layouts and 0 not in self.layouts[name].shape and not (name == "grad_weight" and self.problem.accumulate_grad_weight):
                rows, columns = self.layouts[name].shape if name == "grad_weight" else (1, self.layouts[name].shape[0])
                element, address = self.layouts[name].element or self.value, self.layouts[name].address
                made.append(assign(Matrix(name, element, rows, columns, self.row_strides.get(name, columns), address=address), 0.0))
        return made


def chunked(op: Op, descriptor: FusedLinearCrossEntropyDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Chunk by chunk: logits, losses, gradients of the logits, and the products that make the other gradients from them."""
    forward = Forward(op, descriptor, layouts, target)
    if not descriptor.bt:
        return Recipe(tuple(forward.nothing()))
    steps = forward.begin()
    for first in range(0, descriptor.bt, descriptor.chunk_size):
        steps += forward.chunk(first, min(descriptor.chunk_size, descriptor.bt - first))
    return Recipe((*steps, *forward.finish()), forward.slots)


def too_large(op: Op, descriptor: FusedLinearCrossEntropyDescriptor) -> str | None:
    """The reason to refuse: a chunk needs more workspace than the descriptor allows; else None."""
    most = descriptor.max_workspace_bytes
    needed = descriptor.other_scratch_bytes + descriptor.chunk_size * descriptor.row_scratch_bytes
    return f"needs a workspace of up to {needed} bytes, more than max_workspace_bytes, {most}" if most is not None and needed > most else None


def scaled(op: Op, descriptor: FusedLinearCrossEntropyBackwardDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Multiplies every gradient by a number, in place; no step if the number is 1."""
    upstream = layouts["dy_scalar"]
    if upstream.number == 1:
        return Recipe(())
    number, factor, factor_element = upstream.number, "", ""
    if number is None:
        number, factor, factor_element = 1.0, "dy_scalar", upstream.element or descriptor.accumulator
    steps = []
    for name in GRADIENTS:
        if name in layouts and 0 not in layouts[name].shape:
            (rows, columns), (row, column) = _as_matrix(layouts[name])
            matrix = Matrix(name, descriptor.element, rows, columns, row, address=layouts[name].address)
            steps.append(assign(matrix, number, matrix, factor=factor, factor_element=factor_element, column_stride=column))
    return Recipe(tuple(steps))


def _as_matrix(layout: Layout) -> tuple[tuple[int, int], tuple[int, int]]:
    """(extents, strides) of a layout as a matrix; a single row if that is possible."""
    shape, (strides,) = merge_axes(layout.shape, layout.strides)
    rows, columns = shape if len(shape) == 2 else (1, *shape)
    row, column = strides if len(shape) == 2 else (0, *strides)
    return (rows, columns), (row, column)
