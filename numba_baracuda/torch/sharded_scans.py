"""Gradients of scans along an axis whose elements are divided among processes."""

from __future__ import annotations

from typing import Any

import torch

from ..core.registry import OPS, function
from ..distributed import communicator
from ..distributed.agreement import Call, agree
from ..distributed.axis import SCANS
from ..distributed.communicator import Communicator


def gathered(comm: Communicator, part: Any) -> Any:
    """``[size, *part.shape]``: the tensor of each rank."""
    stream = torch.cuda.current_stream(part.device).cuda_stream if part.is_cuda else 0
    return comm.all_gather(part.contiguous(), stream).wait()


def gradient(name: str, x: Any, dy: Any, axis: int, *, group: Any, reverse: bool, exclusive: bool) -> Any:
    """The gradient of this rank's elements, those of other ranks included in what follows from them.

    A rank scans z: the fold of all elements before its own, its own, and one on which nothing depends. The gradient of the last result of z, the fold
    of all elements so far, is that of the first element of the next rank's z: ``carry``, by that rank's own results, and ``share`` times the gradient
    of its last one.
    """
    back = OPS[OPS[name].backward or ""]
    if [operand.name for operand in back.operands[:-1]] == ["dy"]:  # it is linear: the same scan from the other end
        from .. import distributed

        return getattr(distributed, name)(dy.contiguous(), axis, group=group, reverse=not reverse, exclusive=exclusive)
    comm, element = communicator(back.name, group), x.dtype
    extents = agree(back.name, comm, (tuple(x.shape), element, axis, reverse, exclusive), lambda: Call({}, x.shape[axis]))
    order = range(comm.size)[:: -1 if reverse else 1]
    before, after = order[: order.index(comm.rank)], order[order.index(comm.rank) + 1 :]

    def turned(each: Any) -> Any:
        return each.flip(-1) if reverse else each

    x, dy = (turned(each.movedim(axis, -1).to(torch.promote_types(element, torch.float32))) for each in (x, dy))
    fold, first, extent = function(SCANS[name]), int(any(extents[rank] for rank in before)), x.shape[-1]
    totals = gathered(comm, fold(x.contiguous(), -1))
    prefix = [fold(totals[list(before)], 0)[0]] * first
    z = torch.cat([*prefix, x, torch.zeros_like(totals[0])], -1)
    saved = {"x": z, "y": function(name)(z, -1, exclusive=True)}

    def pulled(dz: Any) -> Any:
        named = saved | {"dy": dz}
        return function(back.name)(*[named[operand.name] for operand in back.operands[:-1]], -1, exclusive=True)

    last, dz, begin = torch.zeros_like(z), torch.zeros_like(z), first + (not exclusive)
    last[..., -1] = 1
    dz[..., begin : begin + extent] = dy
    every = gathered(comm, torch.stack([pulled(each)[..., :1] for each in (dz, last)]))
    flow = torch.zeros_like(totals[0])
    for rank in after[::-1]:
        carry, share = every[rank]
        flow = carry + torch.where(share == 0, 0, share * flow)
    dz[..., -1:] += flow
    return turned(pulled(dz)[..., first : first + extent]).movedim(-1, axis).to(element)
