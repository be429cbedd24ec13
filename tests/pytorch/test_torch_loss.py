"""The loss of linear logits under autograd, against torch's own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_cases as cases
from torch.nn import functional as F

import numba_baracuda as nb
import numba_baracuda.torch as nbt

ROWS, WIDTH, CLASSES = 5, 4, 7


def problem(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(3)
    x, w, b = (torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype) for shape in ((ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,)))
    target = torch.tensor([0, 6, -100, 3, 3])
    return tuple(each.to(cases.DEVICE) for each in (x, w, b, target))


def reference(x: Any, w: Any, target: Any, linear_bias: Any = None, **options: Any) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, w, linear_bias), target, **options)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "weight": True}], ids=["plain", "weighted"])
def test_loss_and_gradients_are_those_of_torch(reduction: str, options: dict[str, Any]) -> None:
    """Also for upstream gradients that are not 1, and differ from row to row."""
    x, w, b, target = problem()
    if "weight" in options:
        options = options | {"weight": torch.linspace(0.5, 2, CLASSES, dtype=torch.float64, device=cases.DEVICE)}
    given = [each.requires_grad_() for each in (x, w, b)]
    losses = [f(x, w, target, linear_bias=b, reduction=reduction, **options) for f in (nbt.linear_cross_entropy, reference)]
    assert torch.allclose(*losses, rtol=1e-12)
    dy = torch.rand_like(losses[0]) + 0.5
    for mine, wanted in zip(*(torch.autograd.grad(loss, given, dy) for loss in losses), strict=True):
        assert torch.allclose(mine, wanted, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradcheck(reduction: str) -> None:
    x, w, b, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem())
    options: dict[str, Any] = {"reduction": reduction, "softcap": 5.0, "lse_square_scale": 0.1, "logit_scale": 0.5}
    f = lambda x, w, b: nbt.linear_cross_entropy(x, w, target, linear_bias=b, **options)  # noqa: E731
    assert torch.autograd.gradcheck(f, (x, w, b), fast_mode=True)


def test_a_second_backward_computes_again() -> None:
    x, w, _, target = problem()
    x.requires_grad_()
    loss = nbt.linear_cross_entropy(x, w, target)
    first, second = (
        torch.autograd.grad(loss, x, torch.tensor(factor, dtype=x.dtype, device=x.device), retain_graph=True)[0] for factor in (2.0, 3.0)
    )
    assert torch.allclose(first * 1.5, second, rtol=1e-12) and first.data_ptr() != second.data_ptr()
    with pytest.raises(nb.Unsupported, match="linear_cross_entropy: create_graph=True"):
        torch.autograd.grad(nbt.linear_cross_entropy(x, w, target), x, create_graph=True)


@pytest.mark.parametrize("frozen", ["input", "weight", "both"])
def test_what_is_frozen_costs_no_product(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba_baracuda.torch import linear

    asked: list[list[bool]] = []
    monkeypatch.setattr(linear, "_compute", lambda *values, run=linear._compute: (asked.append([*values[7]]), run(*values))[1])
    x, w, _, target = problem()
    x.requires_grad_(frozen == "weight")
    w.requires_grad_(frozen == "input")
    made = nbt.linear_cross_entropy(x, w, target)
    assert asked == [[frozen == "weight", frozen == "input", False]] and made.requires_grad == (frozen != "both")
    if frozen != "both":
        made.backward()
        assert (x.grad is None) == (frozen == "input") and (w.grad is None) == (frozen == "weight")


def test_the_module() -> None:
    x, _, _, target = problem(torch.float32)
    module = nbt.FusedLinearCrossEntropyLoss(WIDTH, CLASSES, bias=True, softcap=30.0, chunk="lean", device=cases.DEVICE)
    assert {name for name, _ in module.named_parameters()} == {"linear.weight", "linear.bias"}
    module(x.view(1, ROWS, WIDTH), target.view(1, ROWS)).backward()
    logits = 30 * torch.tanh(F.linear(x, module.linear.weight, module.linear.bias) / 30)
    wanted = torch.autograd.grad(F.cross_entropy(logits, target), module.linear.weight)[0]
    assert torch.allclose(module.linear.weight.grad, wanted, rtol=1e-4, atol=1e-6)


def test_the_module_looks_at_its_arguments() -> None:
    """When it is made, not when it is called."""
    make = nbt.FusedLinearCrossEntropyLoss
    assert "softcap=3.0, reduction='sum'" in repr(make(WIDTH, CLASSES, softcap=3.0, reduction="sum"))
    for options, message in (
        ({"soft_cap": 3.0}, "got an argument soft_cap, wants in_features, .*, softcap"),
        ({"linear_bias": True}, "got an argument linear_bias"),
        ({"weight": torch.ones(WIDTH)}, rf"weight has shape \[{WIDTH}\], wants a tensor \[{CLASSES}\]"),
        ({"weight": [1.0] * CLASSES}, "weight is a list, wants a tensor"),
    ):
        with pytest.raises(nb.InvalidProblem, match=f"^FusedLinearCrossEntropyLoss: {message}"):
            make(WIDTH, CLASSES, **options)


def test_gradients_are_added_up_as_torch_adds_them() -> None:
    """Over steps of which some have a frozen weight, and other reductions."""
    x, w, _, target = problem()
    mine, right = (w.clone().requires_grad_() for _ in range(2))
    for reduction, scale in (("mean", 0.5), ("sum", 2.0), ("none", 1.0)):
        (nbt.linear_cross_entropy(x, mine, target, reduction=reduction) * scale).sum().backward()
        nbt.linear_cross_entropy(x.clone().requires_grad_(), mine.detach(), target).backward()
        (reference(x, right, target, reduction=reduction) * scale).sum().backward()
    assert torch.allclose(mine.grad, right.grad, rtol=1e-10)


def test_autocast() -> None:
    x, w, _, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem(torch.float32))
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        made = nbt.linear_cross_entropy(x, w, target)
    made.backward()
    wanted = nbt.linear_cross_entropy(x.detach().bfloat16(), w.detach().bfloat16(), target)
    assert torch.equal(made, wanted) and made.dtype == x.grad.dtype == w.grad.dtype == torch.float32
    x, w, _, target = problem()
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        assert F.linear(x, w).dtype == nbt.linear_cross_entropy(x, w, target).dtype == torch.float64


def test_compiled() -> None:
    for reduction in ("mean", "none"):
        torch.compiler.reset()
        x, w, _, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem())
        f = lambda x, w, t: nbt.linear_cross_entropy(2 * x, w, t, reduction=reduction).square().sum()  # noqa: B023, E731
        step = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
        for mine, wanted in zip(*(torch.autograd.grad(each(x, w, target), (x, w)) for each in (step, f)), strict=True):
            assert torch.allclose(mine, wanted, rtol=1e-12)


def test_meta_tensors() -> None:
    x, w, _, target = (each.to("meta") for each in problem())
    x.requires_grad_()
    made = nbt.linear_cross_entropy(x, w, target)
    made.backward()
    assert made.is_meta and made.shape == () and x.grad.shape == x.shape


def test_opcheck() -> None:
    from numba_baracuda.torch.linear import _overload

    x, w, b, target = (each.requires_grad_() if each.is_floating_point() else each for each in problem())
    for reduction in ("mean", "none"):
        options = [[True, True, True], reduction, -100, 0.0, 0.0, None, 1.0, "auto", None, None]
        found = torch.library.opcheck(_overload, (x, w, target, b, None, None, None, *options))
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_results_are_written_to_tensors_that_are_given(reduction: str) -> None:
    """By the overload ``out``, which has no gradient; of gradients that are not wanted, to none."""
    op, (x, w, b, target) = torch.ops.numba_baracuda.fused_linear_cross_entropy, problem()
    options = [[True, True, False], reduction, -100, 0.0, 0.0, None, 1.0, "auto", None, None]
    given = (x, w, target, b, None, None, None, *options)
    wanted = op.default(*given)
    outs = dict(zip(("loss", "grad_input", "grad_weight", "grad_bias"), (torch.full_like(each, 9) for each in wanted), strict=True))
    found = op.out(*given, **outs)
    assert all(each is out for each, out in zip(found, outs.values(), strict=True))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert set(torch.library.opcheck(op.out, given, outs).values()) == {"SUCCESS"}
    with pytest.raises(nb.InvalidProblem, match="fused_linear_cross_entropy: out= has no gradient, but an argument requires grad"):
        op.out(x.clone().requires_grad_(), *given[1:], **outs)
    with pytest.raises(nb.InvalidProblem, match="grad_weight has shape"):
        op.out(*given, **outs | {"grad_weight": w[1:].clone()})


def test_refused() -> None:
    x, w, _, target = problem()
    refused: list[tuple[Any, Any, str]] = [
        (lambda: nbt.linear_cross_entropy(x, w, target[:2]), nb.InvalidProblem, r"linear_cross_entropy: target has shape \[2\], wants \[5\]"),
        (
            lambda: nbt.linear_cross_entropy(x.to_sparse(), w, target),
            nb.Unsupported,
            "linear_cross_entropy: input is torch.sparse_coo, wants a strided",
        ),
        (lambda: nbt.linear_cross_entropy(x, w, target.tolist()), nb.InvalidProblem, "linear_cross_entropy: target is a list, wants a torch tensor"),
        (
            lambda: torch.func.vmap(lambda x: nbt.linear_cross_entropy(x, w, target))(torch.stack([x, x])),
            nb.Unsupported,
            "linear_cross_entropy: input is under a transform",
        ),
        (
            lambda: nbt.linear_cross_entropy(x, w.float(), target),
            nb.InvalidProblem,
            "linear_cross_entropy: linear_weight is torch.float32, wants torch.f",
        ),
        (
            lambda: nbt.linear_cross_entropy(x, w[:, 1:], target),
            nb.InvalidProblem,
            r"linear_cross_entropy: linear_weight has shape \[7, 3\], wants \[V, 4",
        ),
        (lambda: nbt.linear_cross_entropy(x, w.to("meta"), target), nb.InvalidProblem, "linear_cross_entropy: linear_weight is on meta, wants"),
        (lambda: nbt.linear_cross_entropy(x, w, target, linear_bias=w[0]), nb.InvalidProblem, r"linear_cross_entropy: linear_bias has shape \[4\]"),
        (lambda: nbt.linear_cross_entropy(x, w, target.double()), nb.InvalidProblem, "linear_cross_entropy: target is torch.float64, wants int64"),
        (
            lambda: nbt.linear_cross_entropy(x, w, target, weight=w[0]),
            nb.InvalidProblem,
            r"linear_cross_entropy: weight has shape \[4\], wants \[7\]",
        ),
        (lambda: nbt.linear_cross_entropy(x, w, target, row_weight=[1.0] * 5), nb.InvalidProblem, "linear_cross_entropy: row_weight is a list"),
        (
            lambda: nbt.linear_cross_entropy(x, w, target, weight=torch.ones(CLASSES, requires_grad=True)),
            nb.InvalidProblem,
            "weight requires grad",
        ),
        (lambda: torch.func.grad(lambda x: nbt.linear_cross_entropy(x, w, target))(x), nb.Unsupported, "linear_cross_entropy: input is under"),
        (
            lambda: nb.fused_linear_cross_entropy(x.clone().requires_grad_(), w, target),
            nb.Unsupported,
            r"input is a torch tensor that requires grad, wants x\.detach\(\), or a call of numba_baracuda\.torch\.linear_cross_entropy",
        ),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()
