"""Ops on DTensors, on each rank, against one process."""

from __future__ import annotations

import torch
import torch.distributed as dist
from rank_gradients import graded

import numba_baracuda as nb
import numba_baracuda.torch as nbt

if dist.is_available():
    from numba_baracuda.torch import distributed as sharded_ops

#: ops whose gradients processes compute; threads those of all
FEW = ("reduce_var", "reduce_prod", "cumprod", "segment_max", "unsorted_segment_mean")


def placed(rank: int, size: int, device: str = "cpu") -> None:
    """Ops of :mod:`numba_baracuda.torch` on DTensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh, (x, _, (ids, _)) = init_device_mesh(device, (size,)), graded("unsorted_segment_sum", device)
    rows, by_row = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_(), distribute_tensor(ids, mesh, [Shard(0)])
    columns, everywhere = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_(), distribute_tensor(ids, mesh, [Replicate()])
    for segments in (4, 5):  # rules know the number of segments
        one = x.clone().requires_grad_()
        right = nbt.unsorted_segment_sum(one, ids, segments)
        (slope,) = torch.autograd.grad((right * right).sum(), one)
        for given, index, wants in ((rows, by_row, Partial()), (columns, everywhere, Shard(1))):
            sums = nbt.unsorted_segment_sum(given, index, segments)
            assert sums.placements == (wants,) and torch.allclose(sums.full_tensor(), right, atol=1e-5)
            if segments == 5:
                continue
            (made,) = torch.autograd.grad((sums * sums).sum(), given)
            assert made.placements == given.placements and torch.allclose(made.full_tensor(), slope, atol=1e-4)
    extremes = nbt.unsorted_segment_max(rows, by_row, 4)  # it has no rule for rows, which are gathered
    assert extremes.placements == (Replicate(),) and torch.equal(extremes.full_tensor(), nbt.unsorted_segment_max(x, ids, 4))
    extremes = nbt.unsorted_segment_max(columns, everywhere, 4)
    assert extremes.placements == (Shard(1),) and torch.equal(extremes.full_tensor(), nbt.unsorted_segment_max(x, ids, 4))
    filled = nbt.unsorted_segment_sum(rows, by_row, 5, empty=3.0)  # partial sums would add up what empty segments get
    assert torch.allclose(filled.full_tensor(), nbt.unsorted_segment_sum(x, ids, 5, empty=3.0), atol=1e-5)
    one = x.clone().requires_grad_()
    curves = []
    for given, sums in ((one, nbt.unsorted_segment_sum(one, ids, 4)), (rows, sharded_ops.unsorted_segment_sum(rows, by_row, 4))):
        (slope,) = torch.autograd.grad((sums**3).sum(), given, create_graph=True)
        curves.append(torch.autograd.grad((slope * slope).sum(), given)[0])
    assert torch.allclose(curves[1].full_tensor(), curves[0], rtol=1e-5)
    index = nb.SegmentIndex(by_row.to_local(), 4)  # of a rank's own rows
    for result, wants in (("replicated", Replicate()), ("sharded", Shard(0))):
        sums = sharded_ops.unsorted_segment_sum(rows, index, result=result)
        assert sums.placements == (wants,) and torch.allclose(sums.full_tensor(), nbt.unsorted_segment_sum(x, ids, 4), atol=1e-6)
    ordered = distribute_tensor(ids.sort()[0], mesh, [Shard(0)])
    shares = sharded_ops.segment_softmax(rows, ordered, 4)
    assert shares.placements == (Shard(0),) and torch.allclose(shares.full_tensor(), nbt.segment_softmax(x, ids.sort()[0], 4), atol=1e-6)
