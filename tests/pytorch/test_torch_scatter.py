"""The functions of torch_scatter: against loops over elements, for every reduction, form of index and dtype."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_cases import DEVICE

import numba_baracuda as nb
import numba_baracuda.torch.scatter as ts

REDUCTIONS = ("sum", "mul", "mean", "min", "max")
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
HALVES = (torch.float16, torch.bfloat16)
#: shape of src, dim, shape of the index, and the axes along which it is expanded
FORMS = [
    ((7,), -1, (7,), ()),
    ((7, 3), 0, (7,), ()),
    ((2, 7), -1, (7,), ()),
    ((2, 7, 3), 1, (7,), ()),
    ((2, 7, 3), -2, (2, 7), ()),
    ((2, 7, 3), 1, (2, 7, 1), ()),
    ((2, 7, 3), 1, (1, 7, 1), ()),
    ((2, 7, 3), 1, (1, 7, 3), ()),
    ((2, 7, 3), 0, (2, 7, 3), ()),
    ((2, 7, 3), 1, (2, 7, 3), ()),
    ((2, 7, 3), 1, (1, 7, 1), (0, 2)),
    ((2, 7, 3), 1, (1, 1, 1), (1,)),
]
SIZE = 5


def drawn(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Small numbers with many ties for integers, none for floats."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.rand(shape, dtype=torch.float64, generator=generator) * 4 - 2
    return made.to(dtype).to(DEVICE) if dtype.is_floating_point else (made * 2).abs().to(dtype).to(DEVICE)


def index_of(form: tuple[Any, ...], ordered: bool = False, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Ids of which segment 1 has none and the last is in use."""
    shape, dim, own, expanded = form
    made = torch.randint(2, SIZE - 1, own, generator=torch.Generator().manual_seed(1), dtype=dtype)
    made.view(-1)[0], made.view(-1)[-1] = 0, SIZE - 1
    made = made.sort(min(dim % len(shape), len(own) - 1)).values if ordered else made
    return made.to(DEVICE).expand([shape[d] if d in expanded else n for d, n in enumerate(own)])


def full(index: torch.Tensor, shape: tuple[int, ...], dim: int) -> torch.Tensor:
    """The index in the shape of src."""
    if index.dim() == 1:
        index = index.view(*[1] * (dim % len(shape)), -1)
    return index.reshape(*index.shape, *[1] * (len(shape) - index.dim())).expand(shape)


def reference(src: torch.Tensor, index: torch.Tensor, dim: int, reduce: str, out: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and places of extremes, element by element in float64 or int64."""
    dim, wide = dim % src.dim(), src.double() if src.is_floating_point() else src.long()
    index = full(index, tuple(src.shape), dim)
    shape = [SIZE if d == dim else n for d, n in enumerate(src.shape)]
    value, place = torch.zeros(shape, dtype=wide.dtype), torch.full(shape, src.shape[dim])
    for at in itertools.product(*map(range, shape)):
        lines = tuple(slice(None) if d == dim else k for d, k in enumerate(at))
        rows = (index[lines] == at[dim]).nonzero().view(-1).tolist()
        found = [wide[lines][k].item() for k in rows]
        before = [] if out is None else [out[at].item()]
        best = {"min": min, "max": max}.get(reduce)
        if best:
            value[at] = best(before + found, default=0)
            if found and best(before + found) == best(found):
                place[at] = rows[found.index(best(found))]
        elif reduce == "mul":
            value[at] = torch.tensor(before + found, dtype=wide.dtype).prod()
        else:
            total, count = sum(before + found), max(len(found), 1) if reduce == "mean" else 1
            value[at] = total / count if src.is_floating_point() else total // count
    return value.to(DEVICE), place.to(DEVICE)


def close(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == dtype and got.is_contiguous() and got.shape == wanted.shape
    if dtype.is_floating_point:
        torch.testing.assert_close(got.double(), wanted, rtol=4 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)
    else:
        assert torch.equal(got, wanted.to(dtype))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_of_index(form: Any) -> None:
    src, index, dim = drawn(form[0]), index_of(form), form[1]
    for reduce in REDUCTIONS:
        value, place = reference(src, index, dim, reduce)
        close(ts.scatter(src, index, dim, dim_size=SIZE, reduce=reduce), value, src.dtype)
        made = getattr(ts, f"scatter_{reduce}")(src, index.int(), dim, None, SIZE)
        close(made[0] if isinstance(made, tuple) else made, value, src.dtype)
        if isinstance(made, tuple):
            assert made[1].dtype == torch.int32 and torch.equal(made[1].long(), place)
    assert torch.equal(ts.scatter(src, index, dim, reduce="add"), ts.scatter_add(src, index, dim, dim_size=int(index.max()) + 1))


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, *INTEGERS], ids=str)
@pytest.mark.parametrize("form", [FORMS[1], FORMS[6]], ids=str)
def test_every_dtype(form: Any, dtype: torch.dtype) -> None:
    src, index = drawn(form[0], dtype), index_of(form)
    for reduce in REDUCTIONS:
        value, place = reference(src, index, form[1], reduce)
        close(ts.scatter(src, index, form[1], dim_size=SIZE, reduce=reduce), value, dtype)
        if reduce in ("min", "max"):
            assert torch.equal(getattr(ts, f"scatter_{reduce}")(src, index, form[1])[1], place)


def test_the_mean_of_negative_integers() -> None:
    """Rounded down by ids, and to 0 by offsets."""
    src, index = torch.tensor([-1, -2, 3, 4], device=DEVICE), torch.tensor([0, 0, 1, 1], device=DEVICE)
    assert ts.scatter_mean(src, index).tolist() == ts.segment_mean_coo(src, index).tolist() == [-2, 3]
    assert ts.segment_mean_csr(src, torch.tensor([0, 2, 4], device=DEVICE)).tolist() == [-1, 3]


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3], FORMS[9]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float16], ids=str)
def test_out_takes_part(form: Any, dtype: torch.dtype) -> None:
    src, index, dim = drawn(form[0], dtype), index_of(form), form[1]
    shape = [SIZE if d == dim % src.dim() else n for d, n in enumerate(src.shape)]
    for reduce in REDUCTIONS:
        out = drawn(tuple(shape), dtype, seed=3)
        value, place = reference(src, index, dim, reduce, out.clone())
        made = getattr(ts, f"scatter_{reduce}")(src, index, dim, out)
        assert (made[0] if isinstance(made, tuple) else made) is out
        close(out, value, dtype)
        if isinstance(made, tuple):
            assert torch.equal(made[1], place)


@pytest.mark.parametrize("form", [FORMS[0], FORMS[1], FORMS[4], FORMS[6]], ids=str)
def test_ids_in_order_and_offsets(form: Any) -> None:
    shape, dim, _, _ = form
    index = index_of(form, ordered=True)
    index = index.view(1, -1) if index.dim() == 3 else index
    src, dim = drawn(shape), index.dim() - 1
    below = torch.arange(SIZE + 1, device=DEVICE).expand(*index.shape[:-1], SIZE + 1).contiguous()
    indptr = torch.searchsorted(index.contiguous(), below)
    for reduce in [each for each in REDUCTIONS if each != "mul"]:
        value, place = reference(src, index if index.dim() > 1 or dim == 0 else index.view(1, -1), dim, reduce)
        close(ts.segment_coo(src, index, dim_size=SIZE, reduce=reduce), value, src.dtype)
        close(ts.segment_csr(src, indptr.int(), reduce=reduce), value, src.dtype)
        out = torch.full_like(value, 7)
        coo, csr = getattr(ts, f"segment_{reduce}_coo")(src, index), getattr(ts, f"segment_{reduce}_csr")(src, indptr, out)
        if reduce in ("min", "max"):
            assert torch.equal(coo[1], place) and torch.equal(csr[1], place) and csr[0] is out
        else:
            assert csr is out and torch.equal(coo, out)
        close(out, value, src.dtype)
    value = reference(src, index, dim, "sum")[0]
    for each in (value, value.half(), (value * 8).to(torch.int16)):
        wanted = each.gather(dim, full(index, shape, dim).contiguous())
        assert torch.equal(ts.gather_coo(each, index), wanted) and torch.equal(ts.gather_csr(each, indptr), wanted)
        out = torch.zeros_like(wanted)
        assert ts.gather_csr(each, indptr, out) is out and torch.equal(out, wanted)
        assert ts.gather_coo(each, index, out=out.zero_()) is out and torch.equal(out, wanted)


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3], FORMS[4], FORMS[9]], ids=str)
def test_softmax_logsumexp_and_std(form: Any) -> None:
    src, index, dim = drawn(form[0]), index_of(form), form[1]
    total = reference(src.exp(), index, dim, "sum")[0]
    wide, one = full(index, form[0], dim), {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(ts.scatter_softmax(src, index, dim), src.exp() / total.gather(dim, wide), **one)
    torch.testing.assert_close(ts.scatter_log_softmax(src, index, dim, dim_size=SIZE), src - total.log().gather(dim, wide), **one)
    torch.testing.assert_close(ts.scatter_logsumexp(src, index, dim, dim_size=SIZE), torch.where(total > 0, total.log(), 0), **one)
    out = drawn(tuple(total.shape), seed=3)
    wanted = torch.logaddexp(out, total.log())
    assert ts.scatter_logsumexp(src, index, dim, out=out) is out
    torch.testing.assert_close(out, wanted, **one)
    mean, count = reference(src, index, dim, "mean")[0], reference(torch.ones_like(src), index, dim, "sum")[0]
    squares = reference((src - mean.gather(dim, wide)) ** 2, index, dim, "sum")[0]
    for unbiased in (True, False):
        below = (count - int(unbiased)).clamp(min=1)
        torch.testing.assert_close(ts.scatter_std(src, index, dim, dim_size=SIZE, unbiased=unbiased), (squares / below).sqrt(), **one)
        out = torch.ones_like(squares)
        torch.testing.assert_close(ts.scatter_std(src, index, dim, out, unbiased=unbiased), ((1 + squares) / below).sqrt(), **one)
        torch.testing.assert_close(out, 1 + squares, **one)


@pytest.mark.parametrize("form", [FORMS[3], FORMS[9]], ids=str)
def test_gradients(form: Any) -> None:
    src, index, dim = drawn(form[0]).requires_grad_(), index_of(form), form[1]
    out = torch.rand([SIZE if d == dim % src.dim() else n for d, n in enumerate(form[0])], dtype=src.dtype, device=DEVICE)
    others = ("softmax", "log_softmax", "logsumexp", "std")
    calls: list[Any] = [lambda x, f=f: getattr(ts, f"scatter_{f}")(x, index, dim, dim_size=SIZE) for f in others]
    calls += [lambda x, r=r: ts.scatter(x, index, dim, dim_size=SIZE, reduce=r) for r in REDUCTIONS]
    calls += [lambda x, r=r: ts.scatter(x, index, dim, out.clone(), reduce=r) for r in REDUCTIONS]
    calls += [lambda x: ts.scatter_logsumexp(x, index, dim, out.clone()), lambda x: ts.scatter_std(x, index, dim, out.clone())]
    for call in calls:
        assert torch.autograd.gradcheck(call, (src,), fast_mode=True)
    assert torch.autograd.gradgradcheck(calls[4], (src,), fast_mode=True)
    assert not ts.scatter_max(src, index, dim)[1].requires_grad


def test_gradients_by_order_and_offsets() -> None:
    src, index = drawn((2, 7, 3)).requires_grad_(), index_of(FORMS[4], ordered=True)
    indptr = torch.searchsorted(index, torch.arange(SIZE + 1, device=DEVICE).expand(2, -1).contiguous())
    for reduce in ("sum", "mean", "min", "max"):
        assert torch.autograd.gradcheck(lambda x, r=reduce: ts.segment_coo(x, index, dim_size=SIZE, reduce=r), (src,), fast_mode=True)
        assert torch.autograd.gradcheck(lambda x, r=reduce: ts.segment_csr(x, indptr, reduce=r), (src,), fast_mode=True)
    few = drawn((2, SIZE, 3)).requires_grad_()
    for call in (lambda x: ts.gather_coo(x, index), lambda x: ts.gather_csr(x, indptr)):
        assert torch.autograd.gradcheck(call, (few,), fast_mode=True) and torch.autograd.gradgradcheck(call, (few,), fast_mode=True)


def test_without_elements() -> None:
    """No rows, no columns, no segments."""
    none = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    for shape, index, size, wanted in (
        ((0, 3), none, 2, (2, 3)), ((0, 3), none, None, (0, 3)), ((4, 0), none.new_zeros(4), 2, (2, 0)), ((4, 0), none.new_zeros(4, 0), 2, (2, 0)),
        ((0, 3), none.new_zeros(0, 3), 2, (2, 3)),
    ):  # fmt: skip
        src = torch.zeros(shape, device=DEVICE, requires_grad=True)
        for reduce in REDUCTIONS:
            made = ts.scatter(src, index, 0, dim_size=size, reduce=reduce)
            assert made.shape == wanted and bool((made == int(reduce == "mul")).all())
            made.sum().backward()
            assert src.grad is not None and src.grad.shape == shape
        assert ts.scatter_max(src, index, 0, dim_size=size)[1].tolist() == torch.full(wanted, shape[0]).tolist()
        assert ts.scatter_softmax(src, index, 0, dim_size=size).shape == shape
    offsets = torch.tensor([0, 0, 0], device=DEVICE)
    assert ts.segment_csr(torch.zeros(0, 3, device=DEVICE), offsets, reduce="max").tolist() == [[0] * 3] * 2
    assert ts.gather_csr(torch.ones(2, 3, device=DEVICE), offsets).shape == (0, 3)
    assert ts.gather_coo(torch.ones(2, 3, device=DEVICE, dtype=torch.int32), none).shape == (0, 3)


def test_ids_out_of_range_reach_no_other_position() -> None:
    src = torch.ones(2, 3, device=DEVICE)
    index = torch.tensor([[-1, 0, 2], [0, 1, -2]], device=DEVICE)
    assert ts.scatter(src, index, dim_size=2).tolist() == [[1, 0], [1, 1]]
    assert ts.gather_coo(torch.tensor([5, 6], device=DEVICE), torch.tensor([-1, 0, 1, 2], device=DEVICE)).tolist() == [0, 5, 6, 0]
    rows = torch.tensor([1.0, 2.0, 4.0, 8.0], device=DEVICE)
    assert ts.segment_csr(rows, torch.tensor([1, 2, 3], device=DEVICE)).tolist() == [2, 4]


def test_extremes_that_are_values() -> None:
    src = torch.tensor([-torch.inf, -torch.inf, torch.nan, 1.0], device=DEVICE)
    value, place = ts.scatter_max(src, torch.tensor([0, 0, 2, 2], device=DEVICE))
    assert value[:2].tolist() == [-torch.inf, 0] and bool(value[2].isnan()) and place.tolist() == [0, 4, 2]
    out = torch.tensor([-torch.inf, -torch.inf, 3.0], device=DEVICE)
    value, place = ts.scatter_max(src, torch.tensor([0, 0, 2, 2], device=DEVICE), out=out)
    assert value[:2].tolist() == [-torch.inf] * 2 and bool(value[2].isnan()) and place.tolist() == [0, 4, 2]


def test_compiled() -> None:
    """With sizes that differ between calls, and no graph break where dim_size is given."""

    def layer(src: Any, index: Any, indptr: Any) -> Any:
        share = ts.scatter_softmax(src, index, 0, dim_size=SIZE)
        return ts.scatter(src * share, index, 0, dim_size=SIZE, reduce="max") + ts.segment_csr(src, indptr, reduce="mean")

    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (7, 9):
        src, index = drawn((rows, 3)), index_of(((rows, 3), 0, (rows,), ()), ordered=True)
        indptr = torch.searchsorted(index, torch.arange(SIZE + 1, device=DEVICE))
        assert torch.equal(compiled(src, index, indptr), layer(src, index, indptr))


def test_bad_arguments_are_named() -> None:
    src, index = drawn((4, 3)), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    for call, error, message in (
        (lambda: ts.scatter(src, index, 0, reduce="median"), nb.InvalidProblem, "scatter: reduce is 'median', wants one of sum"),
        (lambda: ts.segment_csr(src, index, reduce="mul"), nb.InvalidProblem, "segment_csr: reduce is 'mul'"),
        (lambda: ts.scatter_sum(src, index, 2), nb.InvalidProblem, "scatter_sum: dim is 2, wants one of the 2 axes"),
        (lambda: ts.scatter_sum(src.to_sparse(), index, 0), nb.Unsupported, "scatter_sum: src is of layout torch.sparse_coo, wants a strided"),
        (lambda: ts.scatter(src.to("meta"), index.to("meta"), 0), nb.InvalidProblem, "scatter: dim_size is None for an index without values"),
        (lambda: ts.scatter_sum(src.tolist(), index), nb.InvalidProblem, "scatter_sum: src is a list"),
        (lambda: ts.scatter_sum(src, [0]), nb.InvalidProblem, "scatter_sum: index is a list"),
        (lambda: ts.scatter_max(src, index.float(), 0), nb.InvalidProblem, "scatter_max: index is torch.float32"),
        (lambda: ts.scatter_mean(src, index[:3], 0), nb.InvalidProblem, r"scatter_mean: index has shape \[3\], wants 4 or 1 along axis 0"),
        (lambda: ts.scatter_mean(src[0], index.view(2, 2), 0), nb.InvalidProblem, "scatter_mean: index has 2 axes, wants 1 to 1"),
        (lambda: ts.scatter_sum(src.to(torch.complex64), index, 0), nb.Unsupported, "scatter_sum: src is torch.complex64"),
        (lambda: ts.scatter_softmax(src.int(), index, 0), nb.Unsupported, "scatter_softmax: src is torch.int32, wants a floating dtype"),
        (lambda: ts.scatter_sum(src, index, 0, dim_size=-1), nb.InvalidProblem, "scatter_sum: dim_size is -1"),
        (lambda: ts.scatter_sum(src, index, 0, dim_size=2.0), nb.InvalidProblem, "scatter_sum: dim_size is 2.0"),
        (lambda: ts.scatter_sum(src, index, 0, [0.0]), nb.InvalidProblem, "scatter_sum: out is a list"),
        (lambda: ts.scatter_sum(src, index, 0, src.float()), nb.InvalidProblem, r"scatter_sum: out is torch.float32 \[4, 3\]"),
        (lambda: ts.segment_sum_csr(src, index, src), nb.InvalidProblem, r"segment_sum_csr: out is .* wants torch.float64 \[3, 3\]"),
        (lambda: ts.gather_csr(src, index), nb.InvalidProblem, "gather_csr: indptr has 4 offsets, wants 5"),
        (lambda: ts.gather_coo(src, index.short()), nb.InvalidProblem, "gather_coo: index is torch.int16"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_the_names_are_there() -> None:
    made = [f"segment_{reduce}_{form}" for reduce in ("sum", "add", "mean", "min", "max") for form in ("coo", "csr")]
    assert set(made) < set(ts.__all__) and {getattr(ts, name).__name__ for name in made} == set(made)
    assert all(getattr(ts, name).__doc__ for name in ts.__all__) and "STEMS" not in ts.__all__
