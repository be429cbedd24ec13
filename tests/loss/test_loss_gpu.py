"""The fused linear cross-entropy on a device: against torch, in graphs and on other streams, its memory, and sizes that the emulator cannot reach."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from kinds import KINDS, Kind, Numba
from loss_cases import EVERYTHING, problem
from loss_reference import wanted

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.loss.chunking import logits_row_stride

pytestmark = pytest.mark.gpu
if not arrays.emulating():
    cupy = pytest.importorskip("cupy")


def torch_problem(rows: int, width: int, classes: int, ignored: float = 0.15) -> tuple[Any, Any, Any, Any]:
    torch = pytest.importorskip("torch")
    torch.manual_seed(rows)
    x = torch.randn(rows, width, device="cuda").bfloat16()
    w = (torch.randn(classes, width, device="cuda") / width**0.5).bfloat16()
    target = torch.randint(0, classes, (rows,), device="cuda")
    target[torch.rand(rows, device="cuda") < ignored] = -100
    return torch, x, w, target


@pytest.mark.memory(3.0)  # torch's logits in float64, their exponentials and gradients, three times 0.34 GB, and weights
@pytest.mark.parametrize(
    ("rows", "width", "classes", "chunk"),
    [
        (24, 768, 50264, "auto"),
        (600, 768, 1536, 256),
        (257, 127, 513, 100),
        (1024, 512, 32000, "lean"),
        (300, 256, 50257, 128),
        (2000, 64, 256, 700),
        (300, 64, 140001, 300),
        (10000, 16, 300, 10000),
    ],
)
def test_no_worse_than_torch_in_its_own_precision(rows: int, width: int, classes: int, chunk: Any) -> None:
    """Both against float64 on the same inputs: the loss's error is at most torch's, with room for one that is 0, a gradient's 1.5 times it.

    That of the weight, rounded after every chunk, may be off by twice as much.
    """
    torch, x, w, target = torch_problem(rows, width, classes)

    def by_torch(dtype: Any) -> list[Any]:
        a, b = (each.to(dtype, copy=True).requires_grad_() for each in (x, w))
        loss = torch.nn.functional.cross_entropy(a @ b.T, target)
        loss.backward()
        return [each.detach().double() for each in (loss, a.grad, b.grad)]

    right, theirs = by_torch(torch.float64), by_torch(torch.bfloat16)
    for accum, most in (("f32", 1.5), (None, 2.0)):
        made = nb.fused_linear_cross_entropy(x, w, target, grad_input=True, grad_weight=True, grad_weight_accum=accum, chunk=chunk)
        errors, peers = ([float((got.double() - true).abs().max()) for got, true in zip(each, right, strict=True)] for each in (made[:3], theirs))
        assert errors[0] <= peers[0] + 1e-5
        assert errors[1] <= 1.5 * peers[1] + 1e-9 and errors[2] <= most * peers[2] + 1e-9


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [0.0, 170.0, -2e3, 17e3, 1e5])
def test_large_logits_no_worse_than_torch(offset: float, smoothing: float) -> None:
    """In float32, on the same logits: at most twice torch's error, with room for a power that is off by 2^-22."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    z = offset + torch.round(torch.rand(64, 3000, device="cuda") * 768) / 64  # exact in float32
    target = torch.randint(0, 3000, (64,), device="cuda")

    def by_torch(dtype: Any) -> list[Any]:
        logits = z.to(dtype, copy=True).requires_grad_()
        loss = torch.nn.functional.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
        loss.sum().backward()
        return [each.detach().double() for each in (loss, logits.grad)]

    x = torch.eye(64, device="cuda")
    got = nb.fused_linear_cross_entropy(x, z.T.contiguous(), target, reduction="none", grad_weight=True, label_smoothing=smoothing)
    for found, peer, right in zip((got.loss, got.grad_weight.T), by_torch(torch.float32), by_torch(torch.float64), strict=True):
        allowed = 2 * (peer - right).abs().max() + 2.0**-22 * right.abs().max()
        assert (found.double() - right).abs().max() <= allowed


@pytest.mark.parametrize(("value", "tolerance"), [("f32", 1e-5), ("f64", 1e-12)])
def test_many_classes(value: str, tolerance: float) -> None:
    """Rows of many blocks' worth of classes, in wide types."""
    x, w, target = problem(70, 48, 70_001, value)
    got = nb.fused_linear_cross_entropy(*map(cupy.asarray, (x, w, target)), grad_input=True, grad_weight=True, return_predicted=True, chunk=32)
    right = wanted(x, w, target)
    assert abs(float(got.loss) - right.out) <= tolerance * right.out
    for name in ("grad_input", "grad_weight"):
        found = cupy.asnumpy(getattr(got, name))
        assert np.abs(found - getattr(right, name)).max() <= tolerance * np.abs(getattr(right, name)).max()
    np.testing.assert_array_equal(cupy.asnumpy(got.predicted), right.predicted)


@pytest.mark.parametrize("kind", ["torch", "numba"])
def test_arrays_of_every_framework(kind: str) -> None:
    made: Kind = KINDS[kind]
    pytest.importorskip("torch")
    x, w, target = problem()
    share = made.view if isinstance(made, Numba) else lambda array: array
    got = nb.fused_linear_cross_entropy(*(share(made.array(each)) for each in (x, w, target)), grad_input=True, grad_weight=True)
    plain = nb.fused_linear_cross_entropy(*map(cupy.asarray, (x, w, target)), grad_input=True, grad_weight=True)
    for found, other in zip(got[:3], plain[:3], strict=True):
        assert made.owns(found)
        np.testing.assert_array_equal(made.numpy(found), cupy.asnumpy(other))


def _operands(value: str = "bf16") -> tuple[Any, dict[str, Any]]:
    """A plan of several chunks with everything asked for."""
    x, w, target = problem(40, 24, 300, value)
    options = {name: each for name, each in EVERYTHING.items() if not isinstance(each, np.ndarray) and name != "dy"}
    described = nb.FusedLinearCrossEntropyDescriptor(40, 24, 300, value, chunk=16, **options)
    wide, dtype = numpy_dtype(described.accumulator), numpy_dtype(value)
    rng = np.random.default_rng(0)
    given = {"input": x, "weight": w, "target": target, "bias": rng.standard_normal(300).astype(dtype)}
    given |= {"class_weight": rng.uniform(1, 2, 300).astype(wide), "row_weight": rng.uniform(1, 2, 40).astype(wide), "dy": np.array([0.5], wide)}
    made = {"grad_input": (x.shape, dtype), "grad_weight": (w.shape, dtype), "grad_bias": ((300,), dtype), "out": ((1,), wide), "lse": ((40,), wide)}
    outputs = {name: cupy.zeros(shape, kind) for name, (shape, kind) in made.items()}
    return nb.select(described), {name: cupy.asarray(each) for name, each in given.items()} | outputs


@pytest.mark.parametrize("value", ["bf16", "f16", "f32"])
def test_graphs(value: str) -> None:
    """The whole op, its products included, can be captured, and so nothing in it waits for the device; what is launched gives the same bits."""
    plan, operands = _operands(value)
    outputs = [operand.name for operand in plan.op.operands if operand.output and operand.name in operands]
    workspace, stream = cupy.empty(plan.workspace_size, np.uint8), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    plan.run(stream=stream, workspace=workspace, **operands)
    stream.synchronize()
    once = {name: operands[name].copy() for name in outputs}
    with stream:
        stream.begin_capture()
        plan.run(stream=stream, workspace=workspace, **operands)
        graph = stream.end_capture()
    for _ in range(3):
        for name in outputs:
            operands[name][...] = 7
        workspace[...] = 0xA5
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        for name in outputs:
            np.testing.assert_array_equal(cupy.asnumpy(operands[name]).view(np.uint8), cupy.asnumpy(once[name]).view(np.uint8))


_HASH = """
import cupy, numpy as np, hashlib, numba_baracuda as nb
rng = np.random.default_rng(1)
x, w = (cupy.asarray(rng.standard_normal(shape), dtype=np.float16) for shape in ((700, 256), (5003, 256)))
t = cupy.asarray(rng.integers(0, 5003, 700))
for _ in range(10):
    got = nb.fused_linear_cross_entropy(x, w, t, grad_input=True, grad_weight=True, chunk=256)
    print(hashlib.sha256(b"".join(cupy.asnumpy(each).tobytes() for each in got[:3])).hexdigest())
"""


def test_the_same_bits_in_every_run_and_process() -> None:
    runs = [subprocess.run([sys.executable, "-c", _HASH], capture_output=True, text=True) for _ in range(2)]
    assert [each.returncode for each in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    found = [each.stdout.split() for each in runs]
    assert len(found[0]) == 10 and len({*found[0], *found[1]}) == 1


def test_beside_another_stream() -> None:
    """Each thread and stream has what it needs for itself."""
    plan, operands = _operands()
    plan.run(**operands)
    cupy.cuda.Device().synchronize()
    first = operands["grad_weight"].copy()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    found = []
    for stream in streams * 4:
        own = {name: cupy.empty_like(operands[name]) for name in ("grad_input", "grad_weight", "grad_bias", "out", "lse")}
        cupy.cuda.Device().synchronize()
        with stream:
            plan.run(stream=stream, **{**operands, **own})
        found.append(own["grad_weight"])
    cupy.cuda.Device().synchronize()
    for each in found:
        np.testing.assert_array_equal(cupy.asnumpy(each).view(np.uint16), cupy.asnumpy(first).view(np.uint16))


@pytest.mark.memory(1.5)  # a slab of 4096 rows, twice where pools keep that of the call before
def test_memory() -> None:
    """Beside the operands no more than the gradients, the slab and 64 MiB."""
    torch, x, w, target = torch_problem(4096, 256, 50257)
    for chunk in ("auto", "lean", 300):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        nb.fused_linear_cross_entropy(x, w, target, grad_input=True, grad_weight=True, chunk=chunk)
        peak = torch.cuda.max_memory_allocated() - before
        rows = nb.FusedLinearCrossEntropyDescriptor(4096, 256, 50257, "bf16", chunk=chunk).chunk_size
        assert peak <= 2 * (x.numel() + w.numel() + rows * logits_row_stride(50257)) + (64 << 20)


@pytest.mark.memory(16384 * 256_000 * 2 * 1.2 / 1e9)  # the slab, and that of small chunks
def test_more_than_2_to_the_31_logits() -> None:
    """A slab of 4.2 · 10⁹ elements: every row is what it is in small chunks."""
    torch, x, w, target = torch_problem(16384, 64, 256_000)
    options = {"reduction": "none", "grad_input": True}
    whole = nb.fused_linear_cross_entropy(x, w, target, chunk=16384, **options)
    parts = nb.fused_linear_cross_entropy(x, w, target, chunk=1024, **options)
    assert torch.allclose(whole.loss, parts.loss, atol=2e-2) and float(whole.loss[-1000:].abs().max()) > 1
    assert torch.allclose(whole.grad_input.float(), parts.grad_input.float(), atol=2e-2)
