"""The loss of classes that are divided among ranks, against that of one process and against float64."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
from loss_cases import EVERYTHING, OPTIONS, problem
from loss_reference import assert_close, wanted
from rank_losses import SHARDS, check, parallel

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.distributed import InProcessCommunicator
from numba_baracuda.emulator.emulated import mode
from numba_baracuda.emulator.emulator import Mode


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_shards(shards: str, value: str) -> None:
    check(*problem(kind=value), value, SHARDS[shards])


@pytest.mark.parametrize("value", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_everything_at_once(value: str, reduction: str) -> None:
    wide = numpy_dtype(BY_NAME[value].accumulator)
    options = {name: each.astype(wide) if isinstance(each, np.ndarray) else each for name, each in EVERYTHING.items()}
    options["bias"] = options["bias"].astype(numpy_dtype(value))
    check(*problem(kind=value), value, SHARDS["uneven"], reduction=reduction, **options)


def test_every_run_gives_the_same_bits_whatever_the_chunk() -> None:
    x, w, target = problem(kind="bf16")
    first, again, whole = (parallel(x, w, target, SHARDS["uneven"], chunk=chunk, grad_input=True)[0] for chunk in (4, 4, 100))
    for other in (again, whole):
        assert first.loss.tobytes() == other.loss.tobytes() and first.grad_input.tobytes() == other.grad_input.tobytes()


@pytest.mark.parametrize("ranks", [1, 8, pytest.param(64, marks=pytest.mark.full)])
def test_many_ranks(ranks: int) -> None:
    """Also more ranks than divide the classes evenly, of which some have none."""
    most = -(-70 // ranks)
    sizes = [max(min(most, 70 - rank * most), 0) for rank in range(ranks)]
    check(*problem(3, 4), "f32", sizes, chunk=2)


def test_every_path_is_free_of_races() -> None:
    x, w, target = problem(9, 3)
    options: dict[str, Any] = {"label_smoothing": 0.1, "grad_input": True, "return_predicted": True, "chunk": 5}
    fast = parallel(x, w, target, SHARDS["uneven"], **options)[1]
    with mode(Mode(1)):
        checked = parallel(x, w, target, SHARDS["uneven"], **options)[1]
    for a, b in zip(fast, checked, strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("reduce", ["all_reduce", "reduce_scatter", None])
def test_rows_of_ranks(reduction: str, reduce: str | None) -> None:
    """Rows in parts, of which one is empty, give what the rows of all ranks give, and gradients of a rank's own rows."""
    x, w, target = problem(11, 4)
    options: dict[str, Any] = {"reduction": reduction, "row_weight": np.linspace(-1, 2, 11).astype(np.float32)}
    right, parts, classes = wanted(x, w, target, **options), [0, 5, 5, 11], [0, 30, 40, 70]

    def work(comm: InProcessCommunicator) -> Any:
        rows, own = (slice(each[comm.rank], each[comm.rank + 1]) for each in (parts, classes))
        given = options | {"row_weight": options["row_weight"][rows].copy()}
        return distributed.fused_linear_cross_entropy(
            x[rows].copy(), w[own].copy(), target[rows].copy(), group=comm, rows="sharded", reduce_grad_input=reduce, chunk=4, grad_input=True,
            grad_weight=True, return_lse=True, **given,
        )  # fmt: skip

    made = InProcessCommunicator.run(3, work)
    whole = np.concatenate([each.grad_weight for each in made])
    assert_close(whole, right, "grad_weight", "f32", 70)
    losses = np.concatenate([each.loss for each in made]) if reduction == "none" else made[0].loss
    assert_close(losses, right, "out", "f32", 4)
    np.testing.assert_allclose(np.concatenate([each.lse for each in made]), right.lse, rtol=1e-5, atol=1e-7)
    if reduce == "reduce_scatter":
        gradient = np.concatenate([each.grad_input for each in made])
    else:
        terms = [each.grad_input for each in made]
        padded = terms[0] if reduce else np.sum(terms, 0)
        gradient = np.concatenate([padded[6 * rank : 6 * rank + parts[rank + 1] - parts[rank]] for rank in range(3)])
    assert_close(gradient, right, "grad_input", "f32", 70)


@pytest.mark.parametrize("reduce", ["all_reduce", "reduce_scatter"])
def test_a_gradient_that_is_summed_in_float32(reduce: str) -> None:
    """Closer to that of one process than sums of rounded terms."""
    x, w, target = problem(10, 4, kind="bf16")
    right = wanted(x, w, target)
    made = parallel(x, w, target, SHARDS["uneven"], chunk=4, grad_input=True, reduce_grad_input=reduce, grad_input_accum="f32")
    whole = made[0].grad_input if reduce == "all_reduce" else np.concatenate([each.grad_input for each in made])
    assert whole.dtype == x.dtype
    assert_close(whole, right, "grad_input", "bf16", 70)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("rows", ["replicated", "sharded"])
@pytest.mark.parametrize("reduce", ["all_reduce", "reduce_scatter", None])
def test_ignored_rows_that_are_skipped(reduction: str, rows: str, reduce: str | None) -> None:
    """The results are those of all rows, also where no row counts."""
    x, w, target = problem(11, 4)
    parts, classes = [0, 5, 5, 11], [0, 30, 40, 70]
    for ignored in ([0, 3, 4, 9], [*range(11)]):
        given = target.copy()
        given[ignored] = -100

        def work(comm: InProcessCommunicator, given: Any = given) -> Any:
            mine, own = (slice(each[comm.rank], each[comm.rank + 1]) for each in (parts, classes))
            mine = mine if rows == "sharded" else slice(None)
            ways: dict[str, Any] = {"rows": rows, "reduce_grad_input": reduce, "reduction": reduction, "chunk": 4}
            ways |= {"grad_input": True, "grad_weight": True, "return_lse": True, "return_predicted": True, "return_entropy": True}
            ways |= {"dy_entropy": np.linspace(-1, 1, 11, dtype=np.float32)[mine]} if reduction == "none" else {}
            run = functools.partial(distributed.fused_linear_cross_entropy, x[mine].copy(), w[own].copy(), given[mine].copy(), group=comm, **ways)
            return run(), run(skip_ignored=True)

        for plain, skipped in InProcessCommunicator.run(3, work, timeout=20):
            for name in ("loss", "grad_input", "grad_weight", "lse", "predicted", "entropy"):
                whole, made = getattr(plain, name), getattr(skipped, name)
                assert made.shape == whole.shape
                np.testing.assert_allclose(made, whole, rtol=1e-4, atol=1e-6)


def test_skipped_rows_are_not_exchanged() -> None:
    x, w, target = problem(260, 2)
    target[8:] = -100  # rows that count are padded to a multiple
    exchanged: list[tuple[int, ...]] = []

    class Watched(InProcessCommunicator):
        def all_gather(self, x: Any, *others: Any, **more: Any) -> Any:
            exchanged.append(x.shape)
            return super().all_gather(x, *others, **more)

    def work(comm: Any) -> Any:
        return distributed.fused_linear_cross_entropy(x, w[35 * comm.rank : 35 * comm.rank + 35].copy(), target, group=comm, skip_ignored=True).loss

    made = Watched.run(2, work, timeout=20)
    np.testing.assert_allclose(made, [nb.fused_linear_cross_entropy(x, w, target)] * 2, rtol=1e-5)
    assert sum(shape[0] for shape in exchanged) < 2 * 260


def test_a_data_group_of_which_a_rank_has_no_rows() -> None:
    """It takes part in the sums of all."""
    x, w, target = problem(11, 4)
    for parts, skip in (([0, 7, 7, 11], False), ([0, 7, 9, 11], True)):
        given = target.copy()
        given[parts[1] : parts[2]] = -100
        right = nb.fused_linear_cross_entropy(x, w, given, grad_weight=True, return_z_loss=True, lse_square_scale=0.1)

        def work(comm: InProcessCommunicator, parts: Any = parts, given: Any = given, skip: bool = skip) -> Any:
            own = slice(parts[comm.rank], parts[comm.rank + 1])
            return distributed.fused_linear_cross_entropy(
                x[own].copy(), w.copy(), given[own].copy(), data_group=comm, grad_input=True, grad_weight=True, return_z_loss=True, skip_ignored=skip,
                lse_square_scale=0.1,
            )  # fmt: skip

        made = InProcessCommunicator.run(3, work, timeout=20)
        for each in made:
            np.testing.assert_allclose([each.loss, each.z_loss], [right.loss, right.z_loss], rtol=1e-5)
        np.testing.assert_allclose(np.sum([each.grad_weight for each in made], 0), right.grad_weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean", "class_weight"])
def test_data_parallel_means(name: str) -> None:
    """Ranks with other rows and all classes: the loss of the whole batch on each, and gradients that add up to its own."""
    x, w, target = problem(11, 4)
    options: dict[str, Any] = {"reduction": "mean", **OPTIONS.get(name, {"reduction": name})}
    right, parts = wanted(x, w, target, **options), [0, 2, 7, 11]

    def work(comm: InProcessCommunicator) -> Any:
        rows = slice(parts[comm.rank], parts[comm.rank + 1])
        return distributed.fused_linear_cross_entropy(
            x[rows].copy(), w.copy(), target[rows].copy(), data_group=comm, grad_input=True, grad_weight=True, **options
        )

    made = InProcessCommunicator.run(3, work)
    for each in made:
        assert_close(each.loss, right, "out", "f32", 4)
    assert_close(np.concatenate([each.grad_input for each in made]), right, "grad_input", "f32", 70)
    assert_close(np.sum([each.grad_weight for each in made], 0), right, "grad_weight", "f32", 70)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softcap": 2.0}, "softcap is 2.0 on rank 1, wants None, as on rank 0"),
        ({"input": np.zeros((5, 3), np.float32), "weight": np.zeros((35, 3), np.float32)}, "width of input is 3 on rank 1, wants 4, as on rank 0"),
        ({"input": np.zeros((5, 4)), "weight": np.zeros((35, 4))}, "dtype of input is float64 on rank 1, wants float32, as on rank 0"),
        ({"vocab_range": (30, 65)}, r"vocab_range is \[30, 65\] on rank 1, wants \[35, 70\], as weight has \[35, 35\] rows on the ranks"),
        ({"label_smoothing": 2.0}, "label_smoothing is 2.0, wants a number from 0 to 1"),
        ({"target": np.zeros(4, np.int64)}, r"target has shape \[4\], wants \[5\]"),
        ({"input": None}, "input is None, wants an array"),
    ],
)
def test_what_one_rank_has_wrong_is_said_on_all(options: dict[str, Any], message: str) -> None:
    x, w, target = problem(5, 4)

    def work(comm: InProcessCommunicator) -> Any:
        given = {"input": x, "weight": w[35 * comm.rank : 35 * comm.rank + 35], "target": target} | (options if comm.rank else {})
        return distributed.fused_linear_cross_entropy(**given, group=comm)

    for failure in InProcessCommunicator.run(2, work, timeout=20):
        assert isinstance(failure, nb.InvalidProblem) and re.search(message, str(failure)), failure


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softcap": 2.0}, "softcap is 2.0 on rank 1, wants None, as on rank 0"),
        ({"input": np.zeros((5, 4)), "weight": np.zeros((35, 4))}, "dtype of input is float64 on rank 1, wants float32, as on rank 0"),
        ({"target": np.zeros(4, np.int64)}, r"target has shape \[4\], wants \[5\]"),
        ({"weight": "none"}, "weight is of type str"),
        ({"vocab_range": (1, 36)}, r"vocab_range is \[1, 36\]"),
        ({"weight": np.zeros((30, 4), np.float32)}, "rows of weight is 30 on rank 1, wants 35, as on rank 0"),
    ],
)
def test_all_ranks_of_a_grid_are_told_what_one_has_wrong(options: dict[str, Any], message: str) -> None:
    """Two groups have parts of the classes, two have other rows; the last of four ranks is wrong."""
    x, w, target = problem(5, 4)
    groups, others = ([InProcessCommunicator.group(2) for _ in range(2)] for _ in range(2))

    def work(comm: InProcessCommunicator) -> Any:
        row, column = divmod(comm.rank, 2)
        given = {"input": x, "weight": w[35 * column : 35 * column + 35], "target": target} | (options if comm.rank == 3 else {})
        return distributed.fused_linear_cross_entropy(**given, group=groups[row][column], data_group=others[column][row])

    for failure in InProcessCommunicator.run(4, work, timeout=20):
        assert isinstance(failure, nb.InvalidProblem) and re.search(message, str(failure)), failure


def test_groups_of_other_rows_come_with_any_numbers_of_them() -> None:
    """Their numbers may change on some ranks alone."""
    x, w, target = problem(11, 4)

    def work(comm: InProcessCommunicator) -> Any:
        sums = []
        for rows in ([slice(0, 4), slice(4, 8)], [slice(0, 4), slice(4, 11)], [slice(0, 2), slice(2, 9)]):
            own = rows[comm.rank]
            sums.append(distributed.fused_linear_cross_entropy(x[own].copy(), w.copy(), target[own].copy(), data_group=comm).loss)
        return sums

    for each in InProcessCommunicator.run(2, work, timeout=20):
        for loss, rows in zip(each, (8, 11, 9), strict=True):
            np.testing.assert_allclose(loss, nb.fused_linear_cross_entropy(x[:rows], w, target[:rows]), rtol=1e-5)


def test_numbers_that_are_none() -> None:
    """Infinite logits, rows of nothing but −∞, and NaN in rows that are left out give what they give on one GPU."""
    x, w, target = problem(6, 3, 9)
    target[:] = [0, 8, -100, 4, 3, 9]
    x[0], w[1], x[2], x[5] = 3e38, 10, np.nan, np.inf
    asked: dict[str, Any] = {"grad_input": True, "grad_weight": True, "return_lse": True, "return_predicted": True, "return_entropy": True}
    asked["dy_entropy"] = np.linspace(-1, 1, 6, dtype=np.float32)
    for bias in (np.zeros(9, np.float32), np.full(9, -np.inf, np.float32)):
        options = asked | {"bias": bias, "reduction": "none"}
        single = nb.fused_linear_cross_entropy(x, w, target, **options)
        made = parallel(x, w, target, [4, 0, 5], **options)
        for name in ("loss", "lse", "predicted", "entropy", "grad_input"):
            for each in made:
                np.testing.assert_allclose(getattr(each, name), getattr(single, name), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.concatenate([each.grad_weight for each in made]), single.grad_weight, rtol=1e-5, atol=1e-6)
    assert np.isinf(single.lse[1]) and single.predicted[1] == 0 and not single.grad_input[2].any()


def test_gradients_that_are_added_to_what_is_there() -> None:
    """Also in float32 over several chunks."""
    x, w, target = problem(10, 3, kind="bf16")
    ends, single = [0, 30, 30, 70], np.ones_like(w)
    options: dict[str, Any] = {"accumulate_grad_weight": True, "grad_weight_accum": "f32", "chunk": 4}
    nb.fused_linear_cross_entropy(x, w, target, grad_weight=single, **options)

    def work(comm: InProcessCommunicator) -> Any:
        own = slice(ends[comm.rank], ends[comm.rank + 1])
        held = np.ones_like(w[own])
        distributed.fused_linear_cross_entropy(x, w[own].copy(), target, group=comm, grad_weight=held, **options)
        return held

    made = np.concatenate(InProcessCommunicator.run(3, work))
    np.testing.assert_allclose(made.astype(np.float32), single.astype(np.float32), rtol=2.0**-7)
    with pytest.raises(nb.InvalidProblem, match="grad_weight is True, wants an array, to which accumulate_grad_weight adds"):
        distributed.fused_linear_cross_entropy(x, w, target, grad_weight=True, accumulate_grad_weight=True)
