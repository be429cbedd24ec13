"""PyTorch's memory, clocks and products, its loss, and those of libraries for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Launch

from .loss_cases import ITEM, LossCase
from .loss_contestants import PRODUCTS, YARDSTICK, Contestant, ours
from .results import OURS
from .timing import Call, Events, Timing
from .values import BF16

COPY_BYTES = 1 << 30
SIDE = 8192  #: side of the square product whose rate counts as the card's


def _liger() -> Callable[..., Any]:
    liger: Any = importlib.import_module("liger_kernel.transformers.fused_linear_cross_entropy")
    loss = liger.LigerFusedLinearCrossEntropyLoss()
    return lambda x, w, target: loss(w, x, target)


def _cce() -> Callable[..., Any]:
    cce: Any = importlib.import_module("cut_cross_entropy")
    return lambda x, w, target: cce.linear_cross_entropy(x, w, target, impl="cce")


class Torch:
    """The GPU by PyTorch: all contestants use its allocator and its default stream, which is CuPy's as well."""

    def __init__(self, compiled: bool) -> None:
        cupy: Any = importlib.import_module("cupy")
        torch: Any = importlib.import_module("torch")
        self.xp, self._torch, self._compiled, self._events = cupy, torch, compiled, Events(cupy)
        self._here, self._there = (torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
        self._square = [torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda") for _ in range(3)]

    def operands(self, case: LossCase) -> tuple[Any, Any, Any]:
        torch = self._torch
        torch.manual_seed(case.v)
        x = torch.randn(case.bt, case.h, device="cuda").bfloat16()
        w = (0.02 * torch.randn(case.v, case.h, device="cuda")).bfloat16()
        return x, w, torch.randint(case.v, (case.bt,), device="cuda")

    def contestants(self, case: LossCase, x: Any, w: Any, target: Any) -> Iterator[Contestant]:
        torch = self._torch
        a, b, c = self._square
        yield Contestant("copy", lambda: lambda: self._there.copy_(self._here), nbytes=2 * COPY_BYTES, loss=False)
        yield Contestant(f"torch, product of {SIDE}", lambda: lambda: torch.mm(a, b, out=c), 2 * SIDE**3, loss=False)
        yield Contestant(PRODUCTS, lambda: self._products(x, w), case.flops, loss=False)
        yield Contestant(YARDSTICK, lambda: self._autograd(self._eager, x, w, target), case.flops)
        yield from ours(case, x, w, target)
        yield self._rows(case, x, w, target)
        if self._compiled:
            yield Contestant("torch.compile", lambda: self._autograd(torch.compile(self._eager, dynamic=False), x, w, target), case.flops)
        yield Contestant("liger", lambda: self._autograd(_liger(), x, w, target), case.flops)
        yield Contestant("cut-cross-entropy", lambda: self._autograd(_cce(), x, w, target), case.flops)

    def _eager(self, x: Any, w: Any, target: Any) -> Any:
        functional = self._torch.nn.functional
        return functional.cross_entropy(functional.linear(x, w), target)

    def _autograd(self, function: Callable[..., Any], x: Any, w: Any, target: Any) -> Call:
        """A loss with its gradients by autograd."""
        leaves = [each.detach().requires_grad_() for each in (x, w)]

        def call() -> Any:
            loss = function(*leaves, target)
            return (loss.detach(), *self._torch.autograd.grad(loss, leaves))

        return call

    def _products(self, x: Any, w: Any) -> Call:
        """The three products and nothing else; the logits serve as their gradient."""
        torch, logits = self._torch, self._torch.empty(len(x), len(w), dtype=x.dtype, device=x.device)
        grad_input, grad_weight = torch.empty_like(x), torch.empty_like(w)

        def call() -> None:
            torch.mm(x, w.T, out=logits)
            torch.mm(logits, w, out=grad_input)
            torch.mm(logits.T, x, out=grad_weight)

        return call

    def _rows(self, case: LossCase, x: Any, w: Any, target: Any) -> Contestant:
        """The kernel between the products, on the first chunk of logits, which it overwrites; its time does not depend on the values.

        Bytes: a row's logits read once, read again but for the elements that stay in shared memory, and written.
        """
        plan = nb.select(case.descriptor("auto"))
        torch = self._torch
        results = {"out": torch.empty(1, device="cuda"), "grad_input": torch.empty_like(x), "grad_weight": torch.empty_like(w)}
        views = plan.views({"input": x, "weight": w, "target": target, **results})
        bound = plan.bound(views)
        place, step = next(
            (k, step) for k, step in enumerate(bound.recipe.steps) if isinstance(step, Launch) and "cross_entropy_rows" in step.spec.name
        )
        rows, held = plan.descriptor.chunk_size, min(step.config[2] // ITEM, case.v)

        def make() -> Call:
            workspace = torch.empty(bound.workspace, dtype=torch.uint8, device="cuda")
            *before, rows_step = bound.ready([view.ptr for view in views], arrays.read(workspace, (case.id, "workspace", "")))[: place + 1]
            for step in before:
                step(0)
            kept = [*views, workspace]  # their memory, as long as the call may be made
            return lambda: kept and rows_step(0)

        nbytes = rows * (3 * case.v - held) * ITEM
        note = f"{rows} rows, {held / case.v:.1%} of each in shared memory: {nbytes} bytes"
        return Contestant(f"{OURS} row kernel", make, nbytes=nbytes, loss=False, chunk=rows, note=note)

    def take(self, array: Any) -> Any:
        torch = self._torch
        array = array.contiguous()
        return self.xp.from_dlpack(array.view(torch.int16)).view(BF16) if array.dtype == torch.bfloat16 else self.xp.from_dlpack(array)

    def watched(self, call: Call) -> tuple[Any, int | None]:
        memory = self._torch.cuda
        memory.synchronize()
        memory.reset_peak_memory_stats()
        before = memory.memory_allocated()
        got = call()
        memory.synchronize()
        return got, memory.max_memory_allocated() - before

    def times(self, calls: Sequence[Call], rounds: int) -> list[Timing | None]:
        return [*self._events.in_turns(calls, rounds)]
