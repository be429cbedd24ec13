"""The ops under torch.compile, torch.export and fake tensors."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_cases as cases
from torch._dynamo.testing import CompileCounterWithBackend

import numba_baracuda as nb
import numba_baracuda.torch as nbt

REPRESENTATIVE = ("segment_max", "unsorted_segment_mean", "segment_softmax", "reduce_max", "reduce_std", "cumsum", "reduce_argmax", "cummin_backward")
COMPILED = [name if name in REPRESENTATIVE else pytest.param(name, marks=pytest.mark.full) for name in cases.NAMES]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="aot_eager", fullgraph=True, **options)


@pytest.mark.parametrize("name", COMPILED)
def test_each_op_compiles(name: str) -> None:
    """One graph, with the results and gradients of eager mode."""
    given = cases.arguments(name)
    names = cases.inputs(name, given) if nb.OPS[name].backward else []
    f = cases.function(name, given, names)
    inputs = [given[each].requires_grad_() for each in names]
    wanted, made = f(*inputs), compiled(f)(*inputs)
    assert torch.equal(made, wanted) and made.dtype == wanted.dtype
    if names:
        assert torch.equal(torch.autograd.grad(made.sum(), inputs)[0], torch.autograd.grad(wanted.sum(), inputs)[0])


def attention(x: torch.Tensor, weight: torch.Tensor, source: torch.Tensor, target: Any, nodes: int) -> torch.Tensor:
    """A layer of a graph attention network of one head."""
    h = x @ weight
    logits = torch.nn.functional.leaky_relu((h[source] * h.roll(1, 0)[source]).sum(1))
    share = nbt.unsorted_segment_softmax(logits, target, nodes)
    return nbt.unsorted_segment_sum(h[source] * share[:, None], target, nodes)


def graph(nodes: int, edges: int, width: int = 3) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(nodes)
    x, weight = (torch.rand(shape, dtype=torch.float64, generator=draw) for shape in ((nodes, width), (width, width)))
    source, target = (torch.randint(0, nodes, (edges,), generator=draw) for _ in range(2))
    return tuple(each.to(cases.DEVICE) for each in (x, weight, source, target))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.full)])
def test_two_layers_with_dynamic_shapes(backend: str) -> None:
    """A graph attention network compiles once for graphs of any size, equal to eager, forward and backward."""
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("there is no g++, by which Inductor builds its launchers")

    def network(x: torch.Tensor, weight: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h = attention(x, weight, source, target, x.shape[0]).relu()
        return attention(h, weight, source, target, x.shape[0]).square().sum()

    counter = CompileCounterWithBackend(backend)
    step = torch.compile(network, backend=counter, fullgraph=True, dynamic=True)
    for nodes, edges in ((5, 9), (7, 16), (6, 11)):
        x, weight, source, target = graph(nodes, edges)
        weight.requires_grad_()
        made, wanted = step(x, weight, source, target), network(x, weight, source, target)
        assert torch.allclose(made, wanted, rtol=1e-12)
        slopes = [torch.autograd.grad(each, weight)[0] for each in (made, wanted)]
        assert torch.allclose(*slopes, rtol=1e-12)
    assert counter.frame_count == 1


def test_an_index_is_a_group_of_tensors() -> None:
    """An index that comes from outside is an input of the graph, and another index of the same form needs no new one."""
    counter = CompileCounterWithBackend("aot_eager")
    step = torch.compile(lambda *given: attention(*given, None), backend=counter, fullgraph=True, dynamic=True)
    for nodes, edges in ((5, 9), (7, 16), (6, 11)):
        x, weight, source, target = graph(nodes, edges)
        index = nb.SegmentIndex(target, nodes, is_sorted=False)
        weight.requires_grad_()
        made, wanted = step(x, weight, source, index), attention(x, weight, source, target, nodes)
        assert torch.allclose(made, wanted, rtol=1e-12)
        slopes = [torch.autograd.grad(each.sum(), weight)[0] for each in (made, wanted)]
        assert torch.allclose(*slopes, rtol=1e-12)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("is_sorted", [None, False, True])
def test_an_index_that_is_made_inside(is_sorted: Any) -> None:
    """It serves several ops of one graph, for graphs of any size, and is whole outside of it."""

    def network(x: torch.Tensor, weight: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> Any:
        index = nb.SegmentIndex(target, x.shape[0], is_sorted)
        return attention(attention(x, weight, source, index, None), weight, source, index, None), index

    counter = CompileCounterWithBackend("aot_eager")
    step = torch.compile(network, backend=counter, fullgraph=True, dynamic=True)
    for nodes, edges in ((5, 9), (7, 16), (6, 11)):
        x, weight, source, target = graph(nodes, edges)
        target = target.sort().values if is_sorted else target
        weight.requires_grad_()
        (made, index), wanted = step(x, weight, source, target), network(x, weight, source, target)[0]
        torch.testing.assert_close(made, wanted)
        torch.testing.assert_close(*[torch.autograd.grad(each.sum(), weight)[0] for each in (made, wanted)])
        right = nb.SegmentIndex(target, nodes, bool(is_sorted))
        assert torch.equal(index.offsets, right.offsets) and index.is_sorted == right.is_sorted
        assert torch.equal(nbt.unsorted_segment_sum(made[source], index), nbt.unsorted_segment_sum(made[source], right))
    assert counter.frame_count <= 2


def test_an_index_of_offsets_that_is_made_inside() -> None:
    x, offsets = cases.rows(), torch.tensor([0, 2, 2, 6], device=cases.DEVICE)
    step = compiled(lambda x, offsets: nbt.unsorted_segment_mean(x, nb.SegmentIndex.from_offsets(offsets, x.shape[0])))
    assert torch.equal(step(x, offsets), nbt.unsorted_segment_mean(x, nb.SegmentIndex.from_offsets(offsets)))
    for given in ((offsets, 7, True), (offsets.flip(0), 7, False), (offsets, 6, None)):
        assert set(torch.library.opcheck(torch.ops.numba_baracuda.segment_index.default, given).values()) == {"SUCCESS"}
    for call, message in (
        (lambda x, offsets: nb.SegmentIndex(x, 3).counts, "SegmentIndex: segment_ids is torch.float64 of 2 axes, wants"),
        (lambda x, offsets: nb.SegmentIndex.from_offsets(offsets).counts, "SegmentIndex.from_offsets: num_inputs is None in a compiled function"),
    ):
        with pytest.raises(Exception, match=message):
            compiled(call)(x, offsets)


def test_options_compile() -> None:
    x, given = cases.rows(), cases.ids("unsorted_segment_max")

    def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        empties = nbt.unsorted_segment_max(x, given, 4, empty="identity"), nbt.unsorted_segment_min(x, given, 4, empty=2)
        values, indices = nbt.cummax(x, 0, return_indices=True, index_dtype="int32")
        counted = nbt.unsorted_segment_argmax(x, given, 4, dtype=torch.int32), nbt.reduce_var(x, (0, 1), False, correction=0)
        return *empties, values, indices, *counted, nbt.cumsum(x, 1, initial=1.5, reverse=True), nbt.cumsum(x > 1, 0)

    for made, wanted in zip(compiled(several)(x), several(x), strict=True):
        assert torch.equal(made, wanted) and made.dtype == wanted.dtype
    inside = given.clamp(0, 3)
    assert torch.equal(compiled(lambda x: nbt.unsorted_segment_sum(x, inside, 4, check_ids=True))(x), nbt.unsorted_segment_sum(x, inside, 4))
    with pytest.raises(nb.InvalidProblem, match=r"unsorted_segment_sum: segment_ids\[0\]"):
        compiled(lambda x: nbt.unsorted_segment_sum(x, given, 4, check_ids=True))(x)


def test_out_compiles() -> None:
    x, out = cases.rows(), torch.zeros(1, 2, dtype=torch.float64, device=cases.DEVICE)
    assert torch.equal(compiled(lambda x, out: nbt.reduce_sum(x, 0, out=out) * 2)(x, out), 2 * nbt.reduce_sum(x, 0))
    assert torch.equal(out, nbt.reduce_sum(x, 0))


def test_inductor_keeps_to_the_overload_that_is_called() -> None:
    """It would lay out the results of another one, and fails where extents are symbolic."""
    variants = pytest.importorskip("torch._library._out_variant")
    assert {variants.to_out_variant(overload) for op in nbt.OPERATORS.values() for (_, out), overload in op.overloads.items() if not out} == {None}


def test_what_waits_is_kept_out_of_graphs() -> None:
    tag = getattr(torch.Tag, "cudagraph_unsafe", None)
    if tag is None:
        pytest.skip("this torch has no such tag")
    tagged = {str(each) for operator in nbt.OPERATORS.values() for each in operator.overloads.values() if tag in each.tags}
    assert "numba_baracuda.segment_sum_checked.default" in tagged and all("_checked" in each for each in tagged)


def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return nbt.unsorted_segment_max(nbt.cumsum(x, 1), ids, 4, empty=0.0) + nbt.reduce_mean(x, 0)

    x, given = cases.rows(), cases.ids("unsorted_segment_max")
    rows = torch.export.Dim("rows")
    program = torch.export.export(Model(), (x, given), dynamic_shapes=({0: rows}, {0: rows}))
    longer, more = torch.cat([x, x]), torch.cat([given, given])
    assert torch.equal(program.module()(longer, more), Model()(longer, more))
    assert "numba_baracuda.unsorted_segment_max" in str(program.graph)


@pytest.mark.parametrize("strict", [False, True])
def test_export_of_a_model_that_trains(strict: bool) -> None:
    """With its loss, saved and loaded again."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = torch.nn.Linear(2, 2), nbt.FusedLinearCrossEntropyLoss(2, 5)

        def forward(self, x: torch.Tensor, ids: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.head(nbt.unsorted_segment_softmax(self.inner(x), ids, 4), target)

    rows, model, file = torch.export.Dim("rows"), Model().to(cases.DEVICE), io.BytesIO()
    given = cases.rows(dtype=torch.float32), cases.ids("unsorted_segment_softmax"), torch.tensor([0, 4, 1, 2, 3, -100], device=cases.DEVICE)
    torch.export.save(torch.export.export(model, given, dynamic_shapes=({0: rows}, {0: rows}, {0: rows}), strict=strict), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for count in (6, 4):
        few = [each[:count] for each in given]
        assert torch.equal(loaded(*few), model(*few))


def test_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode():
        x = torch.empty(6, 2, requires_grad=True)
        y = nbt.segment_sum(x, torch.empty(6, dtype=torch.int64), 3)
        y.sum().backward()
    assert y.shape == (3, 2) and x.grad.shape == (6, 2)
    traced = make_fx(lambda x: nbt.reduce_norm2(x, 1))(cases.rows())
    assert torch.equal(traced(cases.rows(1)), nbt.reduce_norm2(cases.rows(1), 1))


@pytest.mark.gpu
def test_capture_in_a_graph() -> None:
    x, given = cases.rows().requires_grad_(), cases.ids("unsorted_segment_sum")
    index = nb.SegmentIndex(given, cases.SEGMENTS)

    def step() -> tuple[torch.Tensor, ...]:
        made = nbt.unsorted_segment_softmax(nbt.cumsum(x, 1), index) * nbt.reduce_norm2(x, 0)
        return made, torch.autograd.grad(made.square().sum(), x)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        made = step()
    with torch.no_grad():
        x.copy_(cases.rows(1))
    recorded.replay()
    for one, wanted in zip(made, step(), strict=True):
        assert torch.equal(one, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_capture_of_losses_in_a_graph(reduction: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=draw).cuda().requires_grad_() for shape in ((64, 32), (257, 32)))
    target = torch.randint(0, 257, (64,), generator=draw).cuda()

    def step() -> list[torch.Tensor]:
        loss = nbt.linear_cross_entropy(x, w, target, reduction=reduction).sum()
        log_probs, entropy = nbt.linear_log_probs(x, w, target, temperature=0.7)
        return [loss.detach(), *torch.autograd.grad(loss + (log_probs - entropy).sum(), (x, w))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        made = step()
    with torch.no_grad():
        x.mul_(2)
    recorded.replay()
    for one, wanted in zip(made, step(), strict=True):
        assert torch.equal(one, wanted)
