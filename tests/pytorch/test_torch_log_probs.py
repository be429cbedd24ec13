"""Log-probabilities and entropies of rows, against a softmax of all logits."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_cases as cases
from torch.nn import functional as F

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda.core.dtypes import element

ROWS, WIDTH, CLASSES = 5, 4, 7


def problem(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(4)
    x, w, b = (torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype) for shape in ((ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,)))
    target = torch.tensor([0, 6, -100, 3, 3])
    return tuple(each.to(cases.DEVICE) for each in (x, w, b, target))


def reference(x: Any, w: Any, target: Any, b: Any = None, temperature: float = 1.0, softcap: float | None = None) -> Any:
    z = F.linear(x.double(), w.double(), None if b is None else b.double())
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    log_p = F.log_softmax(z / temperature, -1)
    counts = target >= 0
    picked = log_p.gather(-1, target.clamp(min=0)[..., None])[..., 0]
    return torch.where(counts, picked, 0), torch.where(counts, -(log_p.exp() * log_p).sum(-1), 0)


EVERYTHING = {"temperature": 2.0, "softcap": 1.5}


@pytest.mark.parametrize(
    ("dtype", "options"), [(torch.float64, {}), *((dtype, EVERYTHING) for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16))],
    ids=str,
)  # fmt: skip
def test_results_and_gradients(options: dict[str, Any], dtype: torch.dtype) -> None:
    """For upstream gradients that differ from row to row, in chunks; the scale of what is allowed is that of the greatest number."""
    x, w, b, target = problem(dtype)
    given = [each.requires_grad_() for each in (x, w, b)]
    made, wanted = nbt.linear_log_probs(x, w, target, b, chunk=2, **options), reference(x, w, target, b, **options)
    draw = torch.Generator().manual_seed(1)
    dy = [torch.rand(ROWS, dtype=torch.float64, generator=draw).to(cases.DEVICE) - 0.3 for _ in range(2)]
    slopes = torch.autograd.grad(made, given, [each.to(one.dtype) for each, one in zip(dy, made, strict=True)])
    right = torch.autograd.grad(wanted, given, dy)
    off = 8 * element(str(dtype).removeprefix("torch.")).tolerance(CLASSES)
    for one, truth in zip([*made, *slopes], [*wanted, *right], strict=True):
        assert (one.double() - truth).abs().max() <= off * (1 + truth.abs().max())
    assert made[0].dtype == made[1].dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    assert made[0][2] == made[1][2] == 0 and not slopes[0][2].any()


def test_gradcheck() -> None:
    x, w, b, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem())
    f = lambda *given: nbt.linear_log_probs(given[0], given[1], target, given[2], temperature=0.5)  # noqa: E731
    assert torch.autograd.gradcheck(f, (x, w, b), fast_mode=True)
    with pytest.raises(nb.Unsupported, match="linear_log_probs: create_graph=True"):
        torch.autograd.grad(f(x, w, b)[0].sum(), x, create_graph=True)


@pytest.mark.parametrize("output", [0, 1])
def test_one_result_alone(output: int) -> None:
    """Of a batch of sequences; what is frozen gets no gradient."""
    x, w, _, target = problem()
    x, target = x.view(1, ROWS, WIDTH).requires_grad_(), target.view(1, ROWS)
    made, wanted = nbt.linear_log_probs(x, w, target)[output], reference(x, w, target)[output]
    assert made.shape == (1, ROWS)
    torch.testing.assert_close(torch.autograd.grad(made.sum(), x), torch.autograd.grad(wanted.sum(), x))
    assert not nbt.linear_log_probs(x.detach(), w, target)[output].requires_grad


def test_it_saves_no_logits() -> None:
    x, w, b, target = problem()
    kept: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        nbt.linear_log_probs(x.requires_grad_(), w, target, b)
    assert {tuple(each.shape) for each in kept} == {tuple(each.shape) for each in (x, w, b, target)}


def test_autocast() -> None:
    x, w, _, target = problem(torch.float32)
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        made = nbt.linear_log_probs(x, w, target)
    for one, wanted in zip(made, nbt.linear_log_probs(x.bfloat16(), w.bfloat16(), target), strict=True):
        assert torch.equal(one, wanted) and one.dtype is torch.float32


def test_compiled() -> None:
    torch.compiler.reset()
    x, w, _, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem())

    def policy_loss(x: Any, w: Any, target: Any) -> Any:
        log_probs, entropy = nbt.linear_log_probs(2 * x, w, target, temperature=0.9)
        return (log_probs.exp() - 0.1 * entropy).sum()

    step = torch.compile(policy_loss, backend="aot_eager", fullgraph=True, dynamic=True)
    found = [torch.autograd.grad(each(x, w, target), (x, w)) for each in (step, policy_loss)]
    torch.testing.assert_close(*found)


def test_opcheck() -> None:
    from numba_baracuda.torch.log_probs import _overload

    x, w, b, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem())
    options = (0.5, None, -100, "auto", None)
    assert set(torch.library.opcheck(_overload, (x, w, target, b, *options)).values()) == {"SUCCESS"}
    dy = torch.ones(ROWS, dtype=torch.float64, device=cases.DEVICE)
    given = (x.detach(), w.detach(), target, b.detach(), dy, dy, [True, False, True], *options)
    assert set(torch.library.opcheck(torch.ops.numba_baracuda.linear_log_probs_backward.default, given).values()) == {"SUCCESS"}


def test_results_are_written_to_tensors_that_are_given() -> None:
    op, (x, w, b, target) = torch.ops.numba_baracuda.linear_log_probs, problem()
    given = (x, w, target, b, 0.5, None, -100, "auto", None)
    wanted = op.default(*given)
    outs = {name: torch.full_like(each, 9) for name, each in zip(("log_probs", "entropy"), wanted, strict=True)}
    torch.testing.assert_close(op.out(*given, **outs), wanted, rtol=0, atol=0)
    torch.testing.assert_close(tuple(outs.values()), wanted, rtol=0, atol=0)
    assert set(torch.library.opcheck(op.out, given, outs).values()) == {"SUCCESS"}
    with pytest.raises(nb.InvalidProblem, match=r"linear_log_probs: entropy is torch.float64\[1\], wants"):
        op.out(*given, **outs | {"entropy": wanted[1][:1].clone()})


def test_refused() -> None:
    x, w, b, target = problem()
    refused: list[tuple[Any, Any, str]] = [
        (lambda: nbt.linear_log_probs(x, w, target, temperature=0), nb.InvalidProblem, "linear_log_probs: temperature is 0, wants a positive number"),
        (lambda: nbt.linear_log_probs(x, w, target[:2]), nb.InvalidProblem, r"linear_log_probs: target has shape \[2\], wants \[5\]"),
        (lambda: nbt.linear_log_probs(x, w, None), nb.InvalidProblem, "linear_log_probs: target is a NoneType, wants a torch tensor"),
        (lambda: nbt.linear_log_probs(x, w.to_sparse(), target), nb.Unsupported, "linear_log_probs: weight is torch.sparse_coo, wants a strided"),
        (lambda: nbt.linear_log_probs(x, w, b.requires_grad_()[:5]), nb.InvalidProblem, "linear_log_probs: target requires grad"),
        (lambda: torch.func.grad(lambda x: nbt.linear_log_probs(x, w, target)[0].sum())(x), nb.Unsupported, "linear_log_probs: input is under"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()
