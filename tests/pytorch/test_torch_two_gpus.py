"""Two GPUs of one host, over NCCL, against one: every option of the loss, ops of rows and axes, DTensors, and CuPy's communicator."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from loss_cases import EVERYTHING, OPTIONS
from loss_cases import problem as loss_problem
from loss_reference import assert_close, wanted

torch = pytest.importorskip("torch")

import torch.distributed as dist
from rank_gradients import check_gradients, gradients
from rank_placements import FEW, placed
from torch_ranks import on_ranks, same

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")]
SHARDS = {"even": (0, 35, 70), "uneven": (0, 50, 70), "empty": (0, 0, 70)}
ALL = {name: options for name, options in OPTIONS.items() if "dy_entropy" not in options} | {"everything": EVERYTHING}
RETURNED = ("lse", "z_loss", "accuracy", "predicted")
ROWS, SEGMENTS, CUT = 200_003, 501, 70_001
#: ops of every kind of state: sums, extremes, factors, moments, positions; and of exchange
REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_logsumexp", "reduce_var", "reduce_argmax")
SCANS = ("cumsum", "cummax", "logcumsumexp")
SEGMENTS_OF = ("sum", "mean", "max", "var", "argmin", "softmax", "logsumexp_backward", "max_backward")


def on_gpu(given: Any) -> Any:
    """NumPy arrays as tensors on the current GPU, bfloat16 by its bits; anything else as it is."""
    if not isinstance(given, (np.ndarray, np.generic)):
        return given
    if given.dtype == numpy_dtype("bf16"):
        return torch.from_numpy(given.view(np.int16).copy()).view(torch.bfloat16).cuda()
    return torch.from_numpy(np.array(given)).cuda() if given.ndim else float(given)


def losses(rank: int, size: int) -> dict[Any, Any]:
    """Losses, gradients and what else is returned, by dtype, shards and options; each twice, with the same bits."""
    found = {}
    for value in ("f32", "bf16"):
        x, w, target = loss_problem(kind=value)
        for shards, ends in SHARDS.items():
            own = slice(ends[rank], ends[rank + 1])
            for name, options in ALL.items():
                given = {key: on_gpu(each) for key, each in options.items()}
                if "bias" in given:
                    given["bias"] = given["bias"][own].to(on_gpu(x).dtype).contiguous()
                asked = dict.fromkeys(("grad_input", "grad_weight", *(["grad_bias"] if "bias" in given else [])), True)
                asked |= {f"return_{each}": True for each in RETURNED}
                both = []
                for _ in range(2):
                    made = distributed.fused_linear_cross_entropy(
                        on_gpu(x), on_gpu(w[own]), on_gpu(target), group=dist.group.WORLD, chunk=8, **given, **asked
                    )
                    both.append({"out": made.loss, **{key.removeprefix("return_"): getattr(made, key.removeprefix("return_")) for key in asked}})
                assert all(same(a, b) for a, b in zip(both[0].values(), both[1].values(), strict=True)), (value, shards, name)
                found[value, shards, name] = both[0]
    return found


def test_every_option_of_the_loss() -> None:
    made = on_ranks(2, losses, "nccl")
    for value, shards, name in made[0]:
        first, second = (each[value, shards, name] for each in made)
        x, w, target = loss_problem(kind=value)
        options = dict(ALL[name])
        if "bias" in options:
            options["bias"] = options["bias"].astype(x.dtype)
        right = wanted(x, w, target, **options)
        for key in ("out", "grad_input", *RETURNED):
            assert same(first[key], second[key]), (value, shards, name, key)
        for key in ("out", "grad_input"):
            assert_close(np.asarray(first[key].double()), right, key, value, 70)
        for key in first.keys() & {"grad_weight", "grad_bias"}:
            assert_close(np.concatenate([np.asarray(each[key].double()) for each in (first, second)]), right, key, value, 70)


def close(mine: Any, right: Any, value: str, name: Any) -> None:
    """Within the tolerance of sums of as many terms as there are rows."""
    assert mine.shape == right.shape and mine.dtype == right.dtype, name
    if not right.is_floating_point():
        assert torch.equal(mine, right), name
        return
    allowed = 4 * BY_NAME[value].tolerance(ROWS)
    scale = right.double().abs().nan_to_num(posinf=0).max().clamp(min=1)
    torch.testing.assert_close(
        mine.double() / scale, right.double() / scale, rtol=allowed, atol=allowed, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


def of_rows(value: str, prefix: str, rank: int, size: int) -> None:
    """Ops of segments of rows that two ranks have, divided in the middle of a segment."""
    draw = torch.Generator("cuda").manual_seed(5)
    x = (torch.rand(ROWS, 3, generator=draw) + 0.5).to(getattr(torch, BY_NAME[value].numpy_name))
    ids = torch.randint(-1, SEGMENTS + 1, (ROWS,), generator=draw)
    for name in [f"{prefix}segment_{each}" for each in SEGMENTS_OF]:
        op = nb.OPS[name]
        given = {"input": x, "segment_ids": ids if name.startswith("unsorted") else ids.sort()[0]}
        names = [operand.name for operand in op.operands[:-1]]
        if "output" in names:
            given["output"] = getattr(nb, name.removesuffix("_backward"))(given["input"], given["segment_ids"], SEGMENTS)
        by_row = [operand.name for operand in op.operands[:-1] if operand.axes[0] == "num_inputs"]
        given["d_output"] = torch.rand(ROWS if "d_output" in by_row else SEGMENTS, 3, generator=draw).to(x.dtype)
        segments = [SEGMENTS] if len(by_row) == len(names) else []
        own = slice(0, CUT) if rank == 0 else slice(CUT, ROWS)
        mine = [given[key][own].clone() if key in by_row else given[key] for key in names]
        right = getattr(nb, name)(*[given[key] for key in names], *segments)
        to_rows = op.operands[-1].axes[0] == "num_inputs"
        for result in (None,) if to_rows else ("replicated", "sharded"):
            options = {} if result is None else {"result": result}
            made = getattr(distributed, name)(*mine, *segments, group=dist.group.WORLD, **options)
            half = slice(251 * rank, 251 * (rank + 1))
            close(made, right[own] if to_rows else right[half] if result == "sharded" else right, value, (name, value, result))


@pytest.mark.parametrize("prefix", ["", "unsorted_"])
@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_ops_of_rows(value: str, prefix: str) -> None:
    on_ranks(2, functools.partial(of_rows, value, prefix), "nccl")


def along_axes(value: str, rank: int, size: int) -> None:
    """Reductions with their gradients, and scans, along an axis of which two ranks have parts."""
    draw, dtype = torch.Generator("cuda").manual_seed(6), getattr(torch, BY_NAME[value].numpy_name)
    for shape, axis in (((3, ROWS), 1), ((ROWS, 5), 0)):
        at = (slice(None),) * axis + (slice(0, CUT) if rank == 0 else slice(CUT, ROWS),)
        for name in (*REDUCTIONS, *SCANS):
            whole = (torch.rand(shape, generator=draw) + 0.5).to(dtype)
            if "prod" in name:
                whole = (torch.randint(0, 9, shape, generator=draw) > 0).to(dtype)
            mine = whole[at].clone()
            right = getattr(nb, name)(whole, axis)
            made = getattr(distributed, name)(mine, axis, group=dist.group.WORLD)
            close(made, right[at] if name in SCANS else right, value, (name, value, shape))
            backward = nb.OPS[name].backward
            if name in REDUCTIONS and backward:
                dy = torch.rand(right.shape, generator=draw).to(dtype)
                slope = getattr(nb, backward)(dy, whole, right, axis=axis)
                made = getattr(distributed, backward)(dy, mine, right, axis=axis, group=dist.group.WORLD)
                close(made, slope[at], value, (backward, value, shape))


@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_ops_along_an_axis(value: str) -> None:
    on_ranks(2, functools.partial(along_axes, value), "nccl")


def few(rank: int, size: int) -> dict[str, Any]:
    torch.set_default_device("cpu")  # the tests draw on the host
    return gradients(FEW, dist.group.WORLD, rank, size, f"cuda:{rank}")


def test_gradients() -> None:
    check_gradients(FEW, on_ranks(2, few, "nccl"), "cuda")


def on_mesh(rank: int, size: int) -> None:
    torch.set_default_device("cpu")
    placed(rank, size, "cuda")


def test_placements() -> None:
    on_ranks(2, on_mesh, "nccl")


def disagreeing(rank: int, size: int) -> str:
    try:
        distributed.reduce_sum(torch.zeros(4, 2 + rank), 0, group=dist.group.WORLD)
    except nb.InvalidProblem as error:
        return str(error)
    return ""


def test_ranks_that_disagree() -> None:
    assert on_ranks(2, disagreeing, "nccl") == ["reduce_sum: other extents of x is [3] on rank 1, wants [2], as on rank 0"] * 2


def with_cupy(rank: int, size: int) -> None:
    """Collectives and ops of CuPy arrays over a communicator of CuPy."""
    import cupy
    from cupy.cuda import nccl

    torch.set_default_device("cpu")
    cupy.cuda.Device(rank).use()
    named = [nccl.get_unique_id() if rank == 0 else None]
    dist.broadcast_object_list(named, 0, device=torch.device("cuda", rank))
    group = nccl.NcclCommunicator(size, named[0], rank)
    comm = distributed.NcclCommunicator(group)
    assert comm.exchange("a" * (rank + 1)) == ["a", "aa"]
    mine = cupy.array([rank, 10.0 * rank], cupy.float32)
    stream = cupy.cuda.get_current_stream().ptr
    assert comm.all_gather(mine, stream).wait().tolist() == [[0, 0], [1, 10]]
    assert comm.all_reduce(mine.copy(), stream).wait().tolist() == [1, 10]
    assert comm.reduce_scatter(cupy.arange(4, dtype=cupy.float32).reshape(2, 2), stream).wait().tolist() == [4.0 * rank, 4.0 * rank + 2]
    rng = cupy.random.RandomState(7)
    x, ids = rng.random_sample((ROWS, 3)).astype(cupy.float32), rng.randint(0, SEGMENTS, ROWS)
    own = slice(0, CUT) if rank == 0 else slice(CUT, ROWS)
    for made, right in (
        (distributed.reduce_var(x[own].copy(), 0, group=group), nb.reduce_var(x, 0)),
        (distributed.cumsum(x[own].copy(), 0, group=group), nb.cumsum(x, 0)[own]),
        (
            distributed.unsorted_segment_logsumexp(x[own].copy(), ids[own].copy(), SEGMENTS, group=group),
            nb.unsorted_segment_logsumexp(x, ids, SEGMENTS),
        ),
        (distributed.segment_sum(x[own].copy(), cupy.sort(ids)[own].copy(), SEGMENTS, group=group), nb.segment_sum(x, cupy.sort(ids), SEGMENTS)),
    ):
        cupy.testing.assert_allclose(made, right, rtol=1e-4, atol=1e-5)
    w, target = rng.standard_normal((70, 3)).astype(cupy.float32), rng.randint(0, 70, 500)
    made = distributed.fused_linear_cross_entropy(x[:500], w[35 * rank : 35 * rank + 35].copy(), target, group=group, grad_input=True, chunk=128)
    right = nb.fused_linear_cross_entropy(x[:500], w, target, grad_input=True)
    cupy.testing.assert_allclose(made.loss, right.loss, rtol=1e-5)
    cupy.testing.assert_allclose(made.grad_input, right.grad_input, rtol=1e-4, atol=1e-7)


def test_communicator_of_cupy() -> None:
    pytest.importorskip("cupy")
    on_ranks(2, with_cupy, "nccl")
