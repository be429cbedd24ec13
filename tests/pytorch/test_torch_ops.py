"""Every op as PyTorch's own: in the dispatcher, under autograd and under torch.func."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_cases as cases

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda.torch import OPERATORS
from numba_baracuda.torch.second import RULES

INDICES = [torch.int64, pytest.param(torch.int32, marks=pytest.mark.full)]
#: ops that opcheck looks at without --full
REPRESENTATIVE = ("unsorted_segment_mean", "segment_max_backward", "segment_softmax", "reduce_var", "reduce_sum_backward", "reduce_argmax", "cummax")
CHECKED = [name if name in REPRESENTATIVE else pytest.param(name, marks=pytest.mark.full) for name in cases.NAMES]


def values(name: str, given: dict[str, Any]) -> list[Any]:
    return OPERATORS[name].schema.values((), given)


@pytest.mark.parametrize("name", CHECKED)
def test_opcheck(name: str) -> None:
    operator, given = OPERATORS[name], cases.arguments(name)
    for flagged, out in operator.overloads:
        made = values(name, given | ({operator.schema.flag: True} if flagged else {}))
        if flagged and operator.schema.flag == "check_ids":
            made[operator.schema.names.index("segment_ids")].clamp_(0, cases.SEGMENTS - 1)
        outs: dict[str, Any] = {}
        if out:
            results = operator.traced(made)
            outs = dict(zip(("out", "out_indices"), map(torch.zeros_like, results if isinstance(results, tuple) else (results,)), strict=False))
        elif not operator.backward or operator.stem in RULES:
            made = [each.clone().requires_grad_() if getattr(each, "is_floating_point", bool)() else each for each in made]
        encoded = tuple(operator.schema.encode(made))
        found = torch.library.opcheck(operator.overloads[flagged, out], encoded, outs)
        assert len(found) == 4 and set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", cases.NAMES)
def test_the_dispatcher_calls_the_op(name: str) -> None:
    """With a gradient or without, the results are the op's, contiguous, of the dtype and shape that the fake says."""
    given = cases.arguments(name)
    wanted = getattr(nb, name)(**given)
    wide = {each: value.clone().requires_grad_() if each in cases.inputs(name, given) else value for each, value in given.items()}
    for made in (OPERATORS[name].traced(values(name, given)), getattr(nbt, name)(**given), getattr(nbt, name)(**wide)):
        assert torch.equal(made, wanted) and made.dtype == wanted.dtype and made.is_contiguous()
        assert made.requires_grad == (made is not wanted and OPERATORS[name].differentiable and made.grad_fn is not None)
    assert getattr(nbt, name)(**wide).requires_grad == OPERATORS[name].differentiable
    meta = {each: value.to("meta") if isinstance(value, torch.Tensor) else value for each, value in given.items()}
    fake = getattr(nbt, name)(**meta)
    assert (fake.shape, fake.dtype, fake.stride(), fake.is_meta) == (wanted.shape, wanted.dtype, wanted.stride(), True)
    out = torch.full_like(wanted, 7)
    assert getattr(nbt, name)(**given, out=out) is out and torch.equal(out, wanted)


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("name", cases.DIFFERENTIABLE)
def test_gradients(name: str, index: torch.dtype) -> None:
    given = cases.arguments(name, index)
    names = cases.inputs(name, given)
    assert torch.autograd.gradcheck(cases.function(name, given, names), [given[each].requires_grad_() for each in names], fast_mode=True)


@pytest.mark.parametrize("name", cases.TWICE)
def test_gradients_of_gradients(name: str) -> None:
    """By the op itself, and by each input of its gradient."""
    given = cases.arguments(name)
    names = cases.inputs(name, given)
    assert torch.autograd.gradgradcheck(cases.function(name, given, names), [given[each].requires_grad_() for each in names], fast_mode=True)
    back = nb.OPS[name].backward
    given = cases.arguments(back)
    names = [each for each in cases.inputs(back, given) if OPERATORS[back].role(each) in cases.reads(back)]
    if OPERATORS[name].stem == "var" and "y" in names:
        names.remove("y")
    f = cases.function(back, given, names)
    assert torch.autograd.gradcheck(f, [given[each].detach().requires_grad_() for each in names], fast_mode=True)


@pytest.mark.parametrize("name", ["unsorted_segment_prod", "reduce_max", "cumprod", "logcumsumexp"])
def test_other_gradients_have_none(name: str) -> None:
    given = cases.arguments(name)
    (first,) = cases.inputs(name, given)
    x = given[first].requires_grad_()
    (slope,) = torch.autograd.grad(getattr(nbt, name)(**given).sum(), x, create_graph=True)
    with pytest.raises(nb.Unsupported, match=rf"^{name}_backward has no gradient: .* differentiable once; sum, mean, cumsum"):
        slope.sum().backward()


def test_twice_promised() -> None:
    assert {"sum", "mean", "cumsum", "softmax", "logsumexp", "norm2", "var"} <= {OPERATORS[name].stem for name in cases.TWICE}


def test_zeros_have_finite_second_gradients() -> None:
    x = torch.zeros(4, 2, dtype=torch.float64, device=cases.DEVICE, requires_grad=True)
    for f in (nbt.reduce_norm2, nbt.reduce_std):
        (slope,) = torch.autograd.grad(f(x, 0).sum(), x, create_graph=True)
        (curve,) = torch.autograd.grad((slope * slope + slope).sum(), x)
        assert torch.equal(slope, torch.zeros_like(x)) and torch.equal(curve, torch.zeros_like(x))


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_ties_of_reductions_are_those_of_amax(name: str) -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]], device=cases.DEVICE, requires_grad=True)
    getattr(nbt, name)(x, 1, keepdims=False).sum().backward()
    mine, x.grad = x.grad, None
    getattr(x, {"reduce_max": "amax", "reduce_min": "amin"}[name])(1).sum().backward()
    assert torch.equal(mine, x.grad)


def test_segments_give_ties_to_the_first() -> None:
    x = torch.tensor([1.0, 1.0, 2.0], device=cases.DEVICE, requires_grad=True)
    nbt.segment_max(x, torch.tensor([0, 0, 1], device=cases.DEVICE), 2).sum().backward()
    assert x.grad.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "saved"),
    [("reduce_sum", 0), ("cumsum", 0), ("segment_sum", 1), ("segment_max", 2), ("segment_softmax", 2), ("reduce_norm2", 2), ("cummax", 1)],
)
def test_what_is_saved(name: str, saved: int) -> None:
    """Tensors that the gradient reads, and nothing where no input has a gradient."""
    given, kept = cases.arguments(name), []
    (first,) = cases.inputs(name, given)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        getattr(nbt, name)(**given)
        assert not kept
        getattr(nbt, name)(**(given | {first: given[first].requires_grad_()}))
    assert len(kept) == saved


@pytest.mark.parametrize("axis", [0, -1, (0, 1), None])
@pytest.mark.parametrize("keepdims", [True, False])
def test_axes(axis: Any, keepdims: bool) -> None:
    x = cases.rows().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: nbt.reduce_logsumexp(x.T, axis, keepdims), (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x: nbt.reduce_logsumexp(x.T, axis, keepdims), (x,), fast_mode=True)


@pytest.mark.parametrize("options", [{"reverse": True}, {"exclusive": True, "initial": 2.0}, {"deterministic": False}], ids=str)
def test_options_reach_the_gradient(options: dict[str, Any]) -> None:
    x = cases.rows().requires_grad_()
    for f in (nbt.cumsum, nbt.cumprod):
        assert torch.autograd.gradcheck(lambda x, f=f: f(x, 0, **options), (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x: nbt.cumsum(x, 0, **options), (x,), fast_mode=True)


def test_an_index_stands_for_ids() -> None:
    given = cases.ids("unsorted_segment_sum")
    index, x = nb.SegmentIndex(given, cases.SEGMENTS), cases.rows().requires_grad_()
    for f in (nbt.unsorted_segment_sum, nbt.unsorted_segment_mean, nbt.unsorted_segment_softmax):
        assert torch.equal(f(x, index), f(x, given, cases.SEGMENTS))
        assert torch.autograd.gradcheck(lambda x, f=f: f(x, index), (x,), fast_mode=True)
        assert torch.equal(torch.autograd.grad(f(x, index).square().sum(), x)[0], torch.autograd.grad(f(x, given, 4).square().sum(), x)[0])


def test_indices_have_no_gradient() -> None:
    x = cases.rows().requires_grad_()
    y, indices = nbt.cummax(x, 0, return_indices=True, index_dtype=torch.int32)
    assert y.requires_grad and not indices.requires_grad and indices.dtype == torch.int32
    y.sum().backward()
    wanted = torch.autograd.grad(x.cummax(0).values.sum(), x)[0]
    assert torch.equal(x.grad, wanted) and torch.equal(indices.long(), x.cummax(0).indices)
    assert not nbt.reduce_argmax(x, 0, dtype=torch.int32).requires_grad


@pytest.mark.skipif(cases.DEVICE != "cpu", reason="backward runs in a thread of its own")
@pytest.mark.parametrize("name", ["unsorted_segment_max", "segment_sum", "cumsum"])
def test_few_frames_between_a_call_and_the_op(name: str) -> None:
    """A call takes microseconds, and each Python frame a tenth of one."""
    given = list(cases.arguments(name).values())
    run, room = getattr(nbt, name), str(Path(nbt.__file__).parent)

    def frames(call: Callable[[], Any]) -> tuple[int, Any]:
        seen: list[str] = []
        sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" and room in frame.f_code.co_filename else None)
        try:
            made = call()
        finally:
            sys.setprofile(None)
        return len(seen), made

    def step() -> int:
        count, y = frames(lambda: run(*given))
        if not y.requires_grad:
            return count
        return count + frames(lambda: torch.autograd.grad(y.sum(), given[0]))[0]

    step()
    plain = step()
    given[0].requires_grad_()
    step()
    recorded = step()
    assert plain <= 2 and recorded <= 14


# torch.func


@pytest.mark.parametrize(
    "name", ["segment_sum", "unsorted_segment_max", "segment_softmax", "reduce_norm2", "reduce_sum", "reduce_argmax", "cumsum", "cumprod"]
)
@pytest.mark.parametrize("dim", [0, 1])
def test_vmap(name: str, dim: int) -> None:
    given = cases.arguments(name)
    (first,) = cases.inputs(name, given)
    several = torch.stack([cases.rows(seed) for seed in range(3)], dim)
    f = cases.function(name, given, [first])
    wanted = [f(each) for each in several.unbind(dim)]
    assert torch.equal(torch.func.vmap(f, dim)(several), torch.stack(wanted))
    if OPERATORS[name].differentiable:
        slopes = torch.func.vmap(torch.func.grad(lambda x: f(x).square().sum()), dim)(several)
        for slope, each in zip(slopes, several.unbind(dim), strict=True):
            assert torch.allclose(slope, torch.func.grad(lambda x: f(x).square().sum())(each), rtol=1e-12)


@pytest.mark.parametrize("name", ["segment_logsumexp", "reduce_var", "cumsum"])
def test_hessians(name: str) -> None:
    """grad of grad, and jacrev of grad, which maps the gradient's gradient over an axis."""
    given = cases.arguments(name)
    (first,) = cases.inputs(name, given)
    f = cases.function(name, given, [first])
    x = given[first]
    twice = torch.func.jacrev(torch.func.grad(lambda x: f(x).pow(3).sum()))(x)
    wanted = torch.autograd.functional.hessian(lambda x: f(x).pow(3).sum(), x)
    assert twice.shape == wanted.shape and torch.allclose(twice, wanted, rtol=1e-10)


@pytest.mark.parametrize("name", ["segment_sum", "unsorted_segment_mean", "reduce_mean", "cumsum", "segment_sum_backward", "reduce_sum_backward"])
def test_forward_mode(name: str) -> None:
    given = cases.arguments(name)
    first = cases.inputs(name, given)[0]
    f = cases.function(name, given, [first])
    tangent = torch.rand_like(given[first])
    value, slope = torch.func.jvp(f, (given[first],), (tangent,))
    assert torch.equal(value, f(given[first])) and torch.equal(slope, f(tangent))
    with torch.autograd.forward_ad.dual_level():
        dual = f(torch.autograd.forward_ad.make_dual(given[first], tangent))
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(dual).tangent, slope)
    if name == "cumsum":
        with (
            torch.autograd.forward_ad.dual_level(),
            pytest.raises(nb.Unsupported, match=r"^cumprod has no gradient in forward mode, which sum, mean, cumsum"),
        ):
            nbt.cumprod(torch.autograd.forward_ad.make_dual(given[first], tangent), 0)
        _, slope = torch.func.jvp(lambda x: nbt.cumsum(x, 0, initial=3.0), (given[first],), (tangent,))
        assert torch.equal(slope, f(tangent))


# what is refused


def test_bad_calls_name_op_and_argument() -> None:
    x, given = cases.rows().requires_grad_(), cases.ids("segment_sum")
    refused: list[tuple[Any, Any, str]] = [
        (
            lambda: nb.segment_sum(x, given, 4),
            nb.Unsupported,
            r"segment_sum: input is .* numba_baracuda\.torch\.segment_sum, which is differentiable",
        ),
        (lambda: nb.cumsum_backward(x, 0), nb.Unsupported, r"cumsum_backward: dy is .* numba_baracuda\.torch\.cumsum_backward"),
        (lambda: nbt.segment_sum(x, x[:, 0], 4), nb.InvalidProblem, "segment_sum: segment_ids requires grad, wants int32 or int64"),
        (lambda: nbt.segment_sum(x, given.short(), 4), nb.InvalidProblem, "segment_sum: segment_ids is int16"),
        (lambda: nbt.segment_sum(x, given), nb.InvalidProblem, "segment_sum: num_segments is None"),
        (lambda: nbt.reduce_sum(x, 5), nb.InvalidProblem, "reduce_sum: axis is 5"),
        (lambda: nbt.reduce_sum(x), nb.InvalidProblem, "reduce_sum: axis is missing"),
        (lambda: nbt.reduce_sum(x, 0, True, 1), nb.InvalidProblem, "reduce_sum: got 4 arguments without a name"),
        (lambda: nbt.reduce_sum(x, 0, stream=1), nb.InvalidProblem, "reduce_sum: got an argument stream"),
        (lambda: nbt.reduce_sum(x.detach(), 0, stream=1), nb.InvalidProblem, "reduce_sum: got an argument stream"),
        (lambda: nbt.reduce_sum(x, 0, out=torch.zeros(1, 2, dtype=x.dtype)), nb.InvalidProblem, "reduce_sum: out= has no gradient"),
        (
            lambda: nbt.reduce_sum(x.to_sparse(), 0),
            nb.Unsupported,
            r"reduce_sum: x is a torch tensor of layout torch.sparse_coo, wants .* x\.to_dense",
        ),
        (
            lambda: nb.segment_sum(x.detach(), given.to_sparse(), 4),
            nb.Unsupported,
            "segment_sum: segment_ids is a torch tensor of layout torch.sparse",
        ),
        (
            lambda: nbt.reduce_sum(torch.nested.nested_tensor([x[0], x[1]]), 0),
            nb.Unsupported,
            "reduce_sum: x is a nested torch tensor, wants a strided",
        ),
        (
            lambda: nb.reduce_sum(torch.nested.nested_tensor([x[0].detach(), x[1].detach()], layout=torch.jagged), 0),
            nb.Unsupported,
            "reduce_sum: x is a nested torch tensor",
        ),
        (
            lambda: torch.func.vmap(lambda x: nb.reduce_sum(x, 0))(x.detach()),
            nb.Unsupported,
            r"reduce_sum: x is .* without memory, .* wants a call of numba_baracuda\.torch\.reduce_sum",
        ),
        (lambda: nbt.segment_sum(x.detach(), given.to("meta"), 4), nb.Unsupported, "segment_sum: segment_ids is a torch tensor on meta"),
        (lambda: nbt.segment_sum(x.detach(), x[:, 0], 4), nb.InvalidProblem, "segment_sum: segment_ids requires grad"),
        (
            lambda: nbt.reduce_sum(torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged), 0),
            nb.Unsupported,
            "reduce_sum: x is a nested tensor",
        ),
        (lambda: nbt.reduce_sum(x.to(torch.complex128), 0), nb.InvalidProblem, "reduce_sum: x is complex128"),
        (
            lambda: torch.func.vmap(lambda i: nbt.segment_sum(x, i, 4))(torch.stack([given, given])),
            nb.Unsupported,
            "segment_sum: segment_ids differ along an axis of vmap",
        ),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()


def test_a_functional_call_without_a_graph() -> None:
    x = cases.rows().requires_grad_()
    with torch.no_grad():
        assert torch.equal(nb.reduce_sum(x, 0), nb.reduce_sum(x.detach(), 0))
    assert torch.equal(nb.reduce_argmax(x, 0), x.argmax(0, keepdim=True))


@pytest.mark.skipif(cases.DEVICE != "cpu", reason="shares host memory")
def test_tensors_share_their_memory_with_the_emulator() -> None:
    """Strided, misaligned and bfloat16 tensors; results go to the caller's memory."""
    base = torch.arange(40, dtype=torch.bfloat16)
    out = torch.zeros(4, 6, dtype=torch.bfloat16)
    address = out.data_ptr()
    assert nb.cumsum(base[3:27].view(6, 4).T, 1, out=out[:, :]).data_ptr() == address
    wanted = base[3:27].view(6, 4).T.float().cumsum(1).to(torch.bfloat16)
    assert torch.equal(out, wanted)
    assert torch.equal(nb.reduce_sum(torch.ones(2, 1).expand(2, 5), 1), torch.full((2, 1), 5.0))
    assert base.untyped_storage().resizable()  # torch may still free it, as FSDP does
    numbers = np.arange(6.0)
    assert nb.reduce_sum(torch.from_numpy(numbers), 0).item() == 15
