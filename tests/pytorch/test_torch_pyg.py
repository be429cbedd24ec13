"""numba_baracuda.torch.pyg: its functions and modules against those of torch_geometric, and what a patch reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg_nn
import torch_geometric.utils as utils
from torch_cases import DEVICE

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda.torch import pyg

ORIGINALS = {name: getattr(utils, name) for name in ("scatter", "segment", "softmax")}
SETS = 4


@pytest.fixture
def patched() -> Iterator[None]:
    pyg.patch()
    yield
    pyg.unpatch()


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape))).to(dtype).to(DEVICE) + 1


def index_and_ptr() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([0, 0, 0, 2, 2, 3], device=DEVICE), torch.tensor([0, 3, 3, 5, 6], device=DEVICE)


@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "mul", "min", "max", "amin", "amax", "any"])
@pytest.mark.parametrize("dim", [0, -2])
def test_scatter(reduce: str, dim: int) -> None:
    src, index = drawn(6, 6, 2), index_and_ptr()[0].flip(0)
    torch.testing.assert_close(pyg.scatter(src, index, dim, SETS, reduce), ORIGINALS["scatter"](src, index, dim, SETS, reduce))
    torch.testing.assert_close(pyg.scatter(src.long(), index, dim, None, reduce), ORIGINALS["scatter"](src.long(), index, dim, None, reduce))


def test_segment_and_softmax() -> None:
    src, (index, ptr) = drawn(6, 3), index_and_ptr()
    for reduce in ("sum", "mean", "min", "max"):
        torch.testing.assert_close(pyg.segment(src, ptr, reduce), ORIGINALS["segment"](src, ptr, reduce))
    shuffled = torch.tensor([3, 0, 2, 0, 2, 0], device=DEVICE)
    for given in ({"index": index}, {"ptr": ptr}, {"index": shuffled, "num_nodes": SETS}):
        torch.testing.assert_close(pyg.softmax(src, **given), ORIGINALS["softmax"](src, **given))
    torch.testing.assert_close(pyg.softmax(src.T, index, dim=-1), ORIGINALS["softmax"](src.T, index, dim=-1))
    with pytest.raises(NotImplementedError, match="requires 'index'"):
        pyg.softmax(src)
    with pytest.raises(ValueError, match="must be one-dimensional"):
        pyg.scatter(src, index.view(2, 3))


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Mul", "Var", "Std", "Softmax", "PowerMean"])
def test_aggregations(name: str) -> None:
    """With their gradients, by an index in any order and by offsets; a product has none of those."""
    mine, theirs = getattr(pyg, f"{name}Aggregation")(), getattr(pyg_nn.aggr, f"{name}Aggregation")()
    index, ptr = index_and_ptr()
    for given in ({"index": index.flip(0), "dim_size": SETS}, {"ptr": ptr}):
        if name != "Mul" or "index" in given:
            found = []
            for each in (mine, theirs):
                x = drawn(6, 3).requires_grad_()
                y = each(x, **given)
                y.square().sum().backward()
                found.append((y.detach(), x.grad))
            torch.testing.assert_close(found[0], found[1])


def test_options_of_aggregations() -> None:
    index, x = index_and_ptr()[0], drawn(6, 3)
    for name, options in (
        ("Softmax", {"t": 0.5, "semi_grad": True}),
        ("Softmax", {"learn": True, "channels": 3}),
        ("PowerMean", {"p": 2.5}),
        ("Var", {"semi_grad": True}),
    ):
        found = []
        for module in (pyg, pyg_nn.aggr):
            leaf = x.clone().requires_grad_()
            y = getattr(module, f"{name}Aggregation")(**options)(leaf, index)
            y.square().sum().backward()
            found.append((y.detach(), leaf.grad))
        torch.testing.assert_close(found[0], found[1])


def test_patched_layers(patched: None) -> None:
    """GAT and SAGE with other neighbours: the same results and gradients as without the patch, by calls of this package."""
    edges = torch.tensor([[0, 1, 2, 3, 3, 0], [1, 0, 1, 2, 0, 3]], device=DEVICE)
    layers: list[Any] = [pyg_nn.GATConv(3, 4, heads=2), pyg_nn.SAGEConv(3, 4, aggr="max"), pyg_nn.GCNConv(3, 4)]
    layers.append(pyg_nn.SAGEConv(3, 4, aggr=pyg.StdAggregation()))
    for layer in layers:
        layer = layer.double().to(DEVICE)
        found = []
        for here in (True, False):
            (pyg.patch if here else pyg.unpatch)()
            layer.zero_grad()
            y = layer(drawn(4, 3).requires_grad_(), edges)
            names = {type(node).__name__ for node in nodes(y.grad_fn)}
            assert any("Segment" in each for each in names) == (here or isinstance(getattr(layer, "aggr_module", None), pyg.StdAggregation))
            y.square().sum().backward()
            found.append([y.detach(), *(each.grad.clone() for each in layer.parameters())])
        torch.testing.assert_close(found[0], found[1])


def test_rows_of_nodes_for_edges(patched: None) -> None:
    """As torch's index_select, along the axis of nodes of a layer; rows of other dtypes and edges of several axes go there."""
    edges = torch.tensor([3, 0, 0, 2, 1, 3], device=DEVICE)
    for dim, shape in ((-2, (4, 3)), (0, (4, 2, 3)), (1, (2, 4, 3)), (0, (4,))):
        layer, leaf = pyg_nn.SimpleConv(), drawn(*shape).requires_grad_()
        layer.node_dim = dim
        y, wanted = layer._index_select(leaf, edges), leaf.index_select(dim, edges)
        torch.testing.assert_close(y, wanted)
        assert any("Segment" in type(node).__name__ for node in nodes(y.grad_fn))
        dy = drawn(*y.shape)
        torch.testing.assert_close(torch.autograd.grad(y, leaf, dy), torch.autograd.grad(wanted, leaf, dy))
        assert layer._index_select(leaf, edges[:0]).shape == wanted.narrow(dim, 0, 0).shape
    whole = torch.arange(8, device=DEVICE).reshape(4, 2)
    assert torch.equal(pyg_nn.SimpleConv()._index_select(whole, edges), whole[edges])


def nodes(first: Any) -> set[Any]:
    """All nodes of an autograd graph."""
    seen, left = set(), [first]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
    return seen


def test_an_index_of_edges() -> None:
    """The same sums by each form of the edges, and what each knows of their order."""
    pairs = torch.tensor([[0, 1, 2, 3, 3, 0], [1, 0, 1, 2, 0, 3]], device=DEVICE)
    rows = drawn(6, 2)
    for row, flow in ((1, "source_to_target"), (0, "target_to_source")):
        order = pairs[row].sort(stable=True).indices
        wanted = torch.zeros(SETS, 2, dtype=rows.dtype, device=DEVICE).index_add(0, pairs[row], rows)
        edges = pyg.EdgeIndex(pairs, sparse_size=(SETS, SETS))
        ordered = pyg.EdgeIndex(pairs[:, order], sparse_size=(SETS, SETS), sort_order="col" if row else "row")
        for each, size, given, ascends in ((edges, None, rows, False), (pairs, SETS, rows, False), (ordered, None, rows[order], True)):
            index = pyg.segment_index(each, size, flow=flow)
            assert index.is_sorted == ascends and index.num_segments == SETS
            torch.testing.assert_close(nbt.unsorted_segment_sum(given, index), wanted)
    by_target = pairs[1].sort(stable=True)
    pointers = torch.searchsorted(by_target.values, torch.arange(SETS + 1, device=DEVICE))
    adjacency = torch.sparse_csr_tensor(pointers, pairs[0][by_target.indices], torch.ones(6, device=DEVICE), (SETS, SETS))
    made = nbt.unsorted_segment_sum(rows[by_target.indices], pyg.segment_index(adjacency))
    torch.testing.assert_close(made, torch.zeros(SETS, 2, dtype=rows.dtype, device=DEVICE).index_add(0, pairs[1], rows))
    for call, message in (
        (lambda: pyg.segment_index(pairs), "num_nodes is None"),
        (lambda: pyg.segment_index(pairs.T, SETS), r"edges is torch.strided of shape \[6, 2\], wants an EdgeIndex"),
        (lambda: pyg.segment_index(pairs.tolist(), SETS), "edges is a list"),
        (lambda: pyg.segment_index(pairs, SETS, flow="both"), "flow is 'both', wants source_to_target or target_to_source"),
    ):
        with pytest.raises(nb.InvalidProblem, match=rf"^pyg\.segment_index: {message}"):
            call()


def test_patch_and_unpatch() -> None:
    import torch_geometric.nn.aggr.base as base

    pyg.patch()
    pyg.patch()
    assert pyg_nn.MessagePassing._index_select_safe is pyg._select
    assert utils.scatter is base.scatter is pyg.scatter and utils.softmax is pyg.softmax and utils.segment is base.segment is pyg.segment
    pyg.unpatch()
    pyg.unpatch()
    assert all(getattr(utils, name) is original for name, original in ORIGINALS.items()) and base.scatter is ORIGINALS["scatter"]
    assert pyg_nn.MessagePassing._index_select_safe is pyg._ORIGINAL_SELECT is not pyg._select
