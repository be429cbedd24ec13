"""Every path of every kernel, and small cases of every op, for ``compute-sanitizer``.

``compute-sanitizer --tool memcheck python tests/sanitize.py``, likewise racecheck. Run the program without the tool first: it leaves the kernels in
the cache, and what the sanitizer then watches takes seconds instead of minutes.

``--kernel-name kernel_substring=numba_baracuda`` leaves out the kernels of cuBLAS, in which racecheck reports hazards or fails itself.
``--report-api-errors no`` leaves out the driver bindings' look-ups of functions that an older driver lacks. Exits with the sanitizer's verdict only.
``python tests/sanitize.py 3/12`` runs the third of twelve shares, so that several can run side by side. ``python tests/sanitize.py 3/12 plain`` has
CuPy's sums in place of cuBLAS' products: racecheck fails in cuBLAS' kernels for halves, whether or not their names are left out. With a third word,
``paths``, only the cases of every path run, which take seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

import cupy as cp
import loss_cases
import numpy as np
import pytest
import reduce_cases
import samples
import scan_cases
import watched_cases
from kinds import KINDS
from samples import OPS, Sample, represents
from user_monoids import LAST, SIDE

import numba_baracuda as nb
from numba_baracuda.arrays import stream_scratch
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.core.op import Gemm, Matrix
from numba_baracuda.reduce.descriptor import reduced_axes
from numba_baracuda.runtime import cublas

SHAPES = (
    (1, (), 1), (3000, (), 40), (3000, (4,), 40), (700, (128,), 9), (500, (37,), 600), (257, (100,), 3), (5000, (16,), 1), (0, (8,), 300),
    (40, (6,), 5000), (2100, (3,), 90), (1500, (1,), 1500), (900, (5,), 40),
)  # fmt: skip
#: reductions: rows of some lanes, of a warp, of a block, in splits, peeled; columns of some lanes and in splits; axes that do not merge
REDUCED = (
    ((300, 4), 1), ((70, 37), 1), ((40, 600), 1), ((9, 4000), 1), ((2, 40_000), 1), ((2, 40_001), 1), ((400, 33), 0), ((60_000, 3), 0),
    ((9, 20, 8), (0, 2)),
)  # fmt: skip
#: scans: the same, and rows that blocks share, peeled or not, and columns
SCANNED = (
    ((300, 4), 1), ((70, 37), 1), ((40, 600), 1), ((9, 4000), 1), ((9, 4001), 1), ((1, 40_000), 1), ((2, 40_001), 1), ((400, 33), 0),
    ((3000, 40), 0), ((9000, 2), 0), ((6, 50, 8), 1), ((3, 4001), 0), ((5, 7, 301), 1), ((7, 600, 6), 1),
)  # fmt: skip
#: for element types and ops whose algorithm another op tests
FEW = ((2100, (3,), 90), (300, (128,), 9))


def near(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    return np.sort(rng.integers(-2, segments + 2, rows))


def run(op: samples.Op, variant: samples.Variant, sample: Sample, **options: object) -> None:
    """Runs one variant on ids in the op's order; a sorted op also on other ids, where values are unspecified but addresses must be valid."""
    described = samples.descriptor(op, sample, **options)
    if variant.refuses(op, described):
        return
    plan = samples.plan_of(op, variant, described)
    given = {name: cp.asarray(array) for name, array in samples.operands(op, sample).items()}
    out = cp.empty((getattr(described, op.operands[-1].axes[0]), *sample.trailing), samples.output_type(op, sample))
    plan.run(**given, **{op.operands[-1].name: out})
    if op.traits["ordered"]:
        given["segment_ids"] = given["segment_ids"][cp.asarray(np.random.default_rng(0).permutation(sample.rows))]
        plan.run(**given, **{op.operands[-1].name: out})
        with contextlib.suppress(nb.InvalidProblem):
            samples.call(op, list(given.values()), sample.segments, check_ids=True)


def folds(monoid: nb.Monoid, element: str) -> None:
    """Segments in every order of ids, reductions and scans by a monoid."""
    for rows, trailing, segments in SHAPES:
        given = samples.operands(OPS["segment_sum"], Sample("monoid", rows, trailing, segments, near, element))
        x, ids = cp.asarray(given["input"]), cp.asarray(given["segment_ids"])
        for is_sorted, order in ((True, ids), (False, ids[::-1]), (True, nb.SegmentIndex(ids[::-1], segments))):
            nb.segment_reduce(x, order, segments, monoid, is_sorted=is_sorted, empty=0)
    for shape, axis in REDUCED:
        nb.reduce_axis(cp.asarray(np.ones(shape, numpy_dtype(element))), monoid, axis)
    for shape, axis in SCANNED:
        nb.scan_axis(cp.asarray(np.ones(shape, numpy_dtype(element))), monoid, axis)


def losses(element: str, rows: int, width: int, classes: int) -> None:
    """Training and inference, plain and with all options, in chunks of which the last is short."""
    x, w, target = loss_cases.problem(rows, width, classes, element)
    wide, rng = numpy_dtype(BY_NAME[element].accumulator), np.random.default_rng(2)
    options = {name: each for name, each in loss_cases.EVERYTHING.items() if not isinstance(each, np.ndarray)}
    options |= {"bias": cp.asarray(rng.standard_normal(classes).astype(x.dtype)), "class_weight": cp.asarray(rng.uniform(1, 2, classes).astype(wide))}
    options |= {"row_weight": cp.asarray(rng.uniform(1, 2, rows).astype(wide))}
    given, gradients = [*map(cp.asarray, (x, w, target))], {"grad_input": True, "grad_weight": True}
    nb.fused_linear_cross_entropy(*given, chunk=2)
    made = nb.fused_linear_cross_entropy(*given, chunk=2, **gradients)
    nb.fused_linear_cross_entropy(*given, chunk=2, reduction="none", grad_weight_accum="f32" if element != "f64" else None, **gradients)
    nb.fused_linear_cross_entropy(*given, chunk=2, **gradients, **options, grad_bias=True, return_lse=True, return_z_loss=True, return_predicted=True)
    rows_given = {"dy": options["row_weight"], "dy_entropy": options["row_weight"], "reduction": "none"}
    nb.fused_linear_cross_entropy(*given, chunk=2, **gradients, **rows_given, return_entropy=True)
    nb.fused_linear_cross_entropy_backward(0.5, made.grad_input, made.grad_weight)


def plain_product(step: Gemm, *_: object) -> Callable[..., None]:
    """A substitute for ``cublas.product`` by elementwise products and sums."""
    wide = numpy_dtype(BY_NAME[step.a.element].accumulator)

    def array(address: int, dtype: np.dtype, shape: tuple[int, ...] = (), stride: int = 0, offset: int = 0) -> cp.ndarray:
        memory = cp.cuda.UnownedMemory(address + offset * dtype.itemsize, max(stride, 1) * math.prod(shape[:1]) * dtype.itemsize, None)
        strides = (stride * dtype.itemsize, dtype.itemsize)[: len(shape)]
        return cp.ndarray(shape, dtype, cp.cuda.MemoryPointer(memory, 0), strides=strides)

    def read(address: int, matrix: Matrix) -> cp.ndarray:
        return array(address, numpy_dtype(matrix.element), (matrix.rows, matrix.columns), max(matrix.stride, matrix.columns, 1), matrix.offset)

    def queue(stream: int, a: int, b: int, c: int, workspace: int, *scalars: int) -> None:
        with cp.cuda.ExternalStream(stream):
            first, second = read(a, step.a).astype(wide), read(b, step.b).astype(wide)
            first, second = first.T if step.transpose_a else first, second.T if step.transpose_b else second
            alpha, beta = (array(each, wide) for each in scalars) if scalars else (step.alpha, step.beta)
            sums, old = (first[:, :, None] * second[None]).sum(1), read(c, step.c)
            old[...] = cp.where(cp.asarray(beta == 0), alpha * sums, alpha * sums + beta * old.astype(wide))

    return queue


def ops(which: int, shares: int) -> None:
    """Small cases of every op."""
    for op, variant in samples.variants_of(list(OPS.values()))[which - 1 :: shares]:
        wide = represents(op, variant)
        for element in [element for element in op.elements if element != "bf16"]:
            for index in ("i32", "i64") if wide else ("i32",):
                for shape in SHAPES if wide and element in ("f32", "f64") else FEW:
                    rows, trailing, segments = shape
                    run(op, variant, Sample(f"{shape}", rows, trailing, segments, near, element, index))
        if samples.takes_empty(op):
            run(op, variant, Sample("filled", 900, (3,), 300, near), empty=2.0)
    for index in ("i32", "i64"):
        x = cp.asarray(np.random.default_rng(0).standard_normal((6, 5, 900)), dtype=np.float32).transpose(2, 1, 0)[::-2]
        ids = cp.asarray(near(np.random.default_rng(1), 450, 20), dtype=samples.numpy_dtype(index))
        nb.segment_sum(x, ids, 20)
        order, packed = nb.SegmentIndex(ids[::-1], 20), cp.ascontiguousarray(ids[::-1])
        for given, is_sorted in itertools.product((packed, packed[1:], ids), (None, True)):  # which is not true of some
            nb.segment_sum(x[: len(given)], nb.SegmentIndex(given, 20, is_sorted))
        for op in list(OPS.values())[which - 1 :: shares]:
            given = samples.operands(op, Sample("indexed", 450, (6,), 20, near))
            samples.call(op, [order if name == "segment_ids" else cp.asarray(array) for name, array in given.items()], 20)
    for op in reduce_cases.OPS[which - 1 :: shares]:
        for (shape, axis), element in itertools.product(REDUCED, [element for element in op.elements if element != "bf16"]):
            given = reduce_cases.operands(op, shape, reduced_axes(op.name, axis, len(shape)), element)
            for ties in ("all", "first", "even") if "ties" in op.traits["keywords"] else ("",):
                inputs = {name: cp.asarray(array) for name, array in given.items()}
                reduce_cases.run(op, inputs, shape, axis, **({"ties": ties} if ties else {}))
    for op in reduce_cases.OTHER[which - 1 :: shares]:
        for shape, axis in REDUCED:
            reduce_cases.function(op)(cp.asarray(reduce_cases.values(op, shape, "f32")), axis)
    for op in scan_cases.OPS[which - 1 :: shares]:
        for (shape, axis), element in itertools.product(SCANNED, ("f32", "f64", "f16")):
            given = {name: cp.asarray(array) for name, array in scan_cases.operands_of(op, shape, axis, element).items()}
            for options in ({}, {"reverse": True}, {"deterministic": False}) if element == "f32" else ({},):
                scan_cases.run(op, given, axis, **options)
            if op.traits["has_indices"] and op.backward:
                scan_cases.run(op, given, axis, return_indices=True)
    for monoid, element in list(itertools.product((LAST, SIDE), ("f32", "f16")))[which - 1 :: shares]:
        folds(monoid, element)
    for element in ("f32", "f64", "f16", "bf16")[which - 1 :: shares]:
        for rows, width, classes in ((21, 12, 70), (5, 8, 5003), (3, 16, 20_011)):
            losses(element, rows, width, classes)


def paths(which: int, shares: int) -> None:
    """Every path of every kernel."""
    for case in list(watched_cases.CASES.values())[which - 1 :: shares]:
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(pytest.skip.Exception):
            case(KINDS["cupy"], patch)


def main(share: str = "1/1", products: str = "cublas", what: str = "") -> None:
    cp.cuda.set_allocator(None)  # every array is an allocation of its own, so that the sanitizer knows its bounds
    stream_scratch.MOST_STREAMS = 0  # and every workspace
    if products == "plain":
        cublas.product = plain_product
    which, shares = map(int, share.split("/"))
    if what != "paths":
        ops(which, shares)
    paths(which, shares)
    cp.cuda.Device().synchronize()
    print("every path ran" if what == "paths" else "every op ran")


if __name__ == "__main__":
    main(*sys.argv[1:])
