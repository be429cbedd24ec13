"""The loss where each rank has a part of the classes: its problem, and the steps between exchanges of statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Launch, Layout, Matrix, Op, Slot, Step, Target
from ..core.registry import OPS
from .descriptor import FusedLinearCrossEntropyDescriptor
from .geometry import LARGE_CAP, MERGE_THREADS, ROW_TERMS, block_per_row, statistics_width
from .launches import assign, kernel_spec
from .policy import cross_entropy_rows
from .recipes import ROW_OPERANDS, Forward


@dataclass(frozen=True, eq=False)
class ShardDescriptor(FusedLinearCrossEntropyDescriptor):
    """The problem of one of ``ranks`` ranks: ``v`` classes, maybe none, from ``first_class`` on, of ``total_classes``."""

    ranks: int = 1
    first_class: int = 0
    total_classes: int = 0
    wide_grad_input: bool = False

    @property
    def total_shape(self) -> tuple[int, ...]:
        """The shape of operands with one element for each class of all ranks."""
        return (self.total_classes,)

    def specialise(self, op: Op) -> Op:
        """The op whose class weights are those of all classes."""
        op = super().specialise(op)
        return replace(op, operands=tuple(replace(each, axes=("total_shape",)) if each.name == "class_weight" else each for each in op.operands))


def op_of_shards(name: str) -> Op:
    """The op under the name of the call that ranks share, for messages."""
    return replace(OPS["fused_linear_cross_entropy"], name=name)


class ShardForward(Forward):
    """The steps of one rank. What outlives an exchange lies in arrays of its own, ``held``."""

    input_first = True

    def __init__(self, op: Op, descriptor: ShardDescriptor, layouts: dict[str, Layout], target: Target) -> None:
        super().__init__(op, descriptor, layouts, target)
        self.problem: ShardDescriptor = descriptor
        self.classes = descriptor.total_classes
        self.entropy = self.entropic or "entropy" in layouts
        self.width = statistics_width(self.argmax, descriptor.label_smoothing > 0, self.entropy)

    @property
    def held(self) -> dict[str, Slot]:
        """The slots of the single-GPU loss but the scratch of products, and what gradients need of rows."""
        found = {slot.name: slot for slot in self.slots if slot.name != "gemm"}
        if self.gradients:
            found["row_terms"] = Slot("row_terms", self.wide, self.problem.chunk_size * ROW_TERMS)
        if self.problem.wide_grad_input and "grad_input" in self.gradients:
            rows = ceil_div(self.problem.bt, self.problem.ranks) * self.problem.ranks
            found["input_sums"] = Slot("input_sums", self.wide, rows * self.problem.h)
        return found

    @property
    def product_scratch(self) -> tuple[Slot, ...]:
        """The slot that products use."""
        return tuple(slot for slot in self.slots if slot.name == "gemm")

    def _constants(self) -> dict[str, Any]:
        problem = self.problem
        return {"value": self.value, "label": self.label, "smoothed": problem.label_smoothing > 0, "weighted": "class_weight" in self.layouts}

    def _on_logits(self, kernel: str, first: int, rows: int, more: dict[str, Any], arguments: dict[str, Any]) -> Launch:
        """A launch with a block for each row of logits."""
        problem, cap = self.problem, self.problem.softcap or 1.0
        threads, resident, _, blocks = block_per_row(rows, max(problem.v, 1), self.value, self.target)
        given = self._constants() | {
            "vector": BY_NAME[self.value].vector, "threads": threads, "scaled": problem.logit_scale != 1, "capped": problem.softcap is not None,
            "exact_tanh": cap > LARGE_CAP, "biased": "bias" in self.layouts, **more,
        }  # fmt: skip
        return Launch(kernel_spec(kernel, threads, resident, **given), (blocks, threads, 0), {
            "x": "logits", "target": "target", "bias": self.name_or_null("bias"), "shard_weight": self.name_or_null("shard_weight"),
            "first_row": first, "classes": problem.v, "first_class": problem.first_class, "total_classes": problem.total_classes,
            "row_stride": self.stride, "target_stride": self.layouts["target"].strides[0], "ignore": problem.ignore_index,
            "scale": problem.logit_scale, "cap": (cap, 1 / cap), **arguments,
        })  # fmt: skip

    def begin(self) -> list[Step]:
        """The steps before all chunks; without classes, the gradient of the input is 0."""
        idle = "grad_input" in self.gradients and not self.problem.v
        return [*super().begin(), *([assign(self.input_gradient(0, self.problem.bt), 0.0)] if idle else [])]

    def before(self, first: int, rows: int) -> list[Step]:
        """The steps of a chunk before its exchange: logits and their statistics."""
        steps = cross_entropy_rows(self.value, self.target).items_per_thread
        more = {"steps": steps, "argmax": self.argmax, "entropy": self.entropy}
        return [*self.logits(first, rows), self._on_logits("row_statistics", first, rows, more, {"statistics": "statistics"})]

    def after(self, first: int, rows: int) -> list[Step]:
        """The steps of a chunk after its exchange: losses, gradients of logits, and of the input."""
        made: list[Step] = [self._merge(first, rows)]
        if not self.gradients or not self.problem.v:
            return made
        return [
            *made,
            self._on_logits("row_gradients", first, rows, {"entropic": self.entropic}, {"row_terms": "row_terms"}),
            *self.input_products(first, rows),
        ]

    def last(self, first: int, rows: int) -> list[Step]:
        """The steps of a chunk that the sum of the gradient of its input is beside."""
        return self.class_products(first, rows) if self.problem.v else []

    def _merge(self, first: int, rows: int) -> Launch:
        problem, cap, upstream = self.problem, self.problem.softcap or 1.0, self.upstream if self.problem.each else ""
        given = self._constants() | {
            "upstream": upstream, "gradient": bool(self.gradients), "squared": self.squared, "capped": problem.softcap is not None,
            "row_weighted": "row_weight" in self.layouts, "argmax": self.argmax, "entropy": self.entropy,
            "entropy_upstream": self.layouts["dy_entropy"].element or self.wide if self.entropic else "",
        }  # fmt: skip
        arguments = {
            "statistics": "gathered", "target": "target", **{name: self.name_or_null(name) for name in ("class_weight", "row_weight")},
            "dy": "dy" if upstream else NULL, "dy_entropy": "dy_entropy" if self.entropic else NULL, "entropies": "entropy" if self.entropy else NULL,
            "factors": "factors", "losses": "losses", "squares": "squares" if self.squared else NULL,
            "hits": "hits" if self.argmax else NULL, "lse": "lse", "predicted": "predicted" if self.argmax else NULL,
            "row_terms": "row_terms" if self.gradients else NULL, "ranks": problem.ranks, "first_row": first, "rows": rows,
            "total_classes": problem.total_classes, "ignore": problem.ignore_index, "smoothing": problem.label_smoothing,
            "lse_square_scale": problem.lse_square_scale, "cap": (cap, 1 / cap), "strides": self.strides_of(*ROW_OPERANDS, "entropy", "dy_entropy"),
        }  # fmt: skip
        return Launch(kernel_spec("merge_statistics", MERGE_THREADS, **given), (ceil_div(rows, MERGE_THREADS), MERGE_THREADS, 0), arguments)

    def input_gradient(self, first: int, rows: int) -> Matrix:
        """Where this rank's part of the gradient of a chunk's input is stored."""
        if not self.problem.wide_grad_input:
            return super().input_gradient(first, rows)
        return Matrix("input_sums", self.wide, rows, self.problem.h, self.problem.h, first * self.problem.h)

    def narrowed(self) -> Launch:
        """The launch that rounds the gradient of the input to its own type."""
        bt, h = self.problem.input_shape
        destination = Matrix("grad_input", self.value, bt, h, self.row_strides["grad_input"], address=self.layouts["grad_input"].address)
        return assign(destination, x=Matrix("input_sums", self.wide, bt, h, h))
