"""What the functions refuse, in which words, and which exceptions those are."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import samples
from kinds import Kind
from references import INTEGERS, WITH_INTEGERS, stem
from samples import OPS

import numba_baracuda as nb
from numba_baracuda.core import errors
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op

F, D = np.float32, np.float64


def x(*shape: int, dtype: Any = F) -> Any:
    return np.ones(shape, dtype)


IDS = np.array([0, 1, 1, 2], np.int32)

#: function, arguments, keywords, error, message
FUNCTIONS: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("segment_sum", (x(4, 3), IDS), {}, nb.InvalidProblem, "num_segments is None, wants the number of segments"),
    ("segment_sum", (x(4, 3), IDS, -1), {}, nb.InvalidProblem, "num_segments is -1, wants a whole number, 0 or more"),
    ("segment_sum", (x(4, 3), IDS, 3.0), {}, nb.InvalidProblem, "num_segments is 3.0"),
    ("segment_sum", (x(4, 3), IDS, True), {}, nb.InvalidProblem, "num_segments is True"),
    ("segment_sum", (x(4, 3), IDS, np.array(3)), {}, nb.InvalidProblem, r"num_segments is array\(3\)"),
    ("segment_sum", (x(4, 3), IDS, "3"), {}, nb.InvalidProblem, "num_segments is '3'"),
    ("segment_sum", (x(5, 3), IDS, 3), {}, nb.InvalidProblem, r"segment_ids has shape \[4\], wants \[5\]"),
    ("segment_sum", (x(4, 3), IDS.reshape(2, 2), 3), {}, nb.InvalidProblem, r"segment_ids has shape \[2, 2\], wants \[4\]"),
    ("segment_sum", (x(2, 3), IDS.reshape(2, 2), 3), {}, nb.InvalidProblem, r"segment_ids has shape \[2, 2\], wants \[2\]"),
    ("segment_sum", (x(), IDS, 3), {}, nb.InvalidProblem, "input has 0 axes, wants 1 to 8"),
    ("segment_sum", (x(4), IDS[0], 3), {}, nb.InvalidProblem, "segment_ids is of type int32, wants an array"),
    ("segment_sum", (x(4, *[1] * 8), IDS, 3), {}, nb.Unsupported, "input has 9 axes, wants 1 to 8"),
    ("segment_sum", (x(4, dtype=np.uint8), IDS, 3), {}, nb.Unsupported, f"element is u8, wants one of {', '.join(OPS['segment_sum'].elements)}"),
    ("segment_mean", (x(4, dtype=np.int32), IDS, 3), {}, nb.Unsupported, f"element is i32, wants one of {', '.join(OPS['segment_mean'].elements)}"),
    ("segment_sum", (x(4, dtype=bool), IDS, 3), {}, nb.Unsupported, "element is bool"),
    ("segment_sum", (x(4, dtype=np.complex64), IDS, 3), {}, nb.InvalidProblem, r"input is complex64\[4\], wants one of"),
    ("segment_sum", (x(4, dtype=">f4"), IDS, 3), {}, nb.InvalidProblem, "input is >f4"),
    ("segment_sum", (x(4), IDS.astype(np.int16), 3), {}, nb.InvalidProblem, r"segment_ids is int16\[4\], wants one of"),
    ("segment_sum", (x(4), IDS.astype(F), 3), {}, nb.Unsupported, r"segment_ids is float32\[4\], wants int32 or int64"),
    ("unsorted_segment_max", (x(4), IDS.astype(np.uint8), 3), {}, nb.Unsupported, r"segment_ids is uint8\[4\], wants int32 or int64"),
    ("segment_sum", (None, IDS, 3), {}, nb.InvalidProblem, "input is None, wants an array"),
    ("segment_sum", ([["1"]], IDS, 3), {}, nb.InvalidProblem, "input is of type list, not of numbers in rows of one length, wants an array"),
    ("segment_sum", (x(4), IDS, 3), {"out": x(4)}, nb.InvalidProblem, r"output has shape \[4\], wants \[3, 1\]"),
    ("segment_sum", (x(4), IDS, 3), {"out": x(3, dtype=D)}, nb.InvalidProblem, "output is float64, wants float32"),
    ("segment_sum", (x(4), IDS, 3), {"out": "here"}, nb.InvalidProblem, "output is of type str, wants an array"),
    ("segment_sum", (x(4), IDS, 3), {"stream": "s"}, nb.InvalidProblem, "stream is of type str, wants an integer handle"),
    ("segment_sum", (x(4), IDS, 3), {"stream": True}, nb.InvalidProblem, "stream is of type bool"),
    ("segment_sum", (x(4), IDS, 3), {"empty": "none"}, nb.InvalidProblem, "empty is 'none', wants a number, 'identity' or None"),
    ("segment_sum", (x(4), IDS, 3), {"empty": x(1)}, nb.InvalidProblem, "empty is of type ndarray"),
    ("segment_sum", (x(4), IDS, 3), {"empty": -1e39}, nb.InvalidProblem, r"empty is -1e\+39, wants a number that f32 holds"),
    ("unsorted_segment_mean", (x(4, 3), IDS[:3], 3), {}, nb.InvalidProblem, r"segment_ids has shape \[3\], wants \[4\]"),
    ("segment_sum_backward", (x(), IDS), {}, nb.InvalidProblem, "d_output has 0 axes"),
    ("segment_sum_backward", (x(3), IDS.astype(F)), {}, nb.Unsupported, r"segment_ids is float32\[4\]"),
    ("segment_mean_backward", (x(3, 2), IDS), {"out": x(4, 3)}, nb.InvalidProblem, r"d_input has shape \[4, 3\], wants \[4, 2\]"),
    ("unsorted_segment_sum_backward", (x(3, 2, dtype=D), IDS), {"out": x(4, 2)}, nb.InvalidProblem, "d_input is float32, wants float64"),
    ("segment_max", (x(4), IDS, 3), {"empty": "Identity"}, nb.InvalidProblem, "empty is 'Identity', wants a number, 'identity' or None"),
    ("segment_max", (x(4, dtype=np.int32), IDS, 3), {"empty": 1 << 40}, nb.InvalidProblem, "empty is 1099511627776, wants a number that i32 holds"),
    ("unsorted_segment_min", (x(4, dtype=np.int64), IDS, 3), {"empty": 2.5}, nb.InvalidProblem, "empty is 2.5, wants a number that i64 holds"),
    ("segment_sum", (x(4, dtype=np.float16), IDS, 3), {"empty": 1e5}, nb.InvalidProblem, "empty is 100000.0, wants a number that f16 holds"),
    ("segment_softmax", (x(4, 3), IDS), {}, nb.InvalidProblem, "num_segments is None, wants the number of segments"),
    ("segment_softmax", (x(5, 3), IDS, 3), {}, nb.InvalidProblem, r"segment_ids has shape \[4\], wants \[5\]"),
    ("segment_softmax", (x(4), IDS, 3), {"out": x(3)}, nb.InvalidProblem, r"output has shape \[3\], wants \[4, 1\]"),
    ("segment_softmax_backward", (x(4, 3), x(4, 3), IDS, 3.0), {}, nb.InvalidProblem, "num_segments is 3.0"),
    ("segment_softmax_backward", (x(4, 3), x(5, 3), IDS, 3), {}, nb.InvalidProblem, r"output has shape \[5, 3\], wants \[4, 3\]"),
    ("segment_softmax_backward", (x(5, 3), x(6, 3), IDS, 3), {}, nb.InvalidProblem, r"output has shape \[6, 3\], wants \[5, 3\]"),
    ("segment_max_backward", (x(3, 2), x(5, 2), IDS), {}, nb.InvalidProblem, r"segment_ids has shape \[4\], wants \[5\]"),
    ("segment_max_backward", (x(3, 2), x(5, 2), IDS.reshape(2, 2)), {}, nb.InvalidProblem, r"segment_ids has shape \[2, 2\], wants \[5\]"),
    ("segment_min_backward", (x(3, 2), x(4, 3), IDS), {}, nb.InvalidProblem, r"input has shape \[4, 3\], wants \[4, 2\]"),
    ("segment_max_backward", (x(3, 2), x(4, 2, dtype=D), IDS), {}, nb.InvalidProblem, "input is float64, wants float32"),
    ("segment_max_backward", (x(3, 2), None, IDS), {}, nb.InvalidProblem, "input is None, wants an array"),
    ("segment_max_backward", (x(3), x(4), IDS), {"ties": "last"}, nb.InvalidProblem, "ties is 'last', wants"),
    ("unsorted_segment_min_backward", (x(3), x(4), IDS), {"ties": None}, nb.InvalidProblem, "ties is None, wants"),
    ("segment_prod_backward", (x(3, 2), x(5, 2), x(3, 2), IDS), {}, nb.InvalidProblem, r"segment_ids has shape \[4\], wants \[5\]"),
    ("segment_prod_backward", (x(3, 2), x(4, 2), x(4, 2), IDS), {}, nb.InvalidProblem, r"output has shape \[4, 2\], wants \[3, 2\]"),
    ("segment_prod_backward", (x(3, 2), x(4, 2), x(3, 2), IDS), {"out": x(3, 2)}, nb.InvalidProblem, r"d_input has shape \[3, 2\], wants \[4, 2\]"),
    ("segment_var", (x(4), IDS, 3), {"correction": -1}, nb.InvalidProblem, "correction is -1, wants a finite number, 0 or more"),
    ("segment_std", (x(4), IDS, 3), {"correction": float("nan")}, nb.InvalidProblem, "correction is nan, wants a finite number, 0 or more"),
    ("unsorted_segment_var_backward", (x(3), x(4), IDS), {"correction": True}, nb.InvalidProblem, "correction is True, wants a finite number"),
    ("segment_std_backward", (x(3), x(4), x(3), IDS), {"correction": None}, nb.InvalidProblem, "correction is None, wants a finite number"),
]


@pytest.mark.parametrize(("name", "arguments", "keywords", "error", "message"), FUNCTIONS, ids=[f"{row[0]}-{row[4][:40]}" for row in FUNCTIONS])
def test_functions_refuse(
    emulator: Kind, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        getattr(nb, name)(*arguments, **keywords)
    assert str(caught.value).startswith(f"{name}: ")
    assert isinstance(caught.value, nb.BaracudaError)


@pytest.mark.parametrize("name", OPS)
def test_a_refusal_leaves_no_wrong_plan_behind(kind: Kind, name: str) -> None:
    """The same call refuses again, and the right one works."""
    op = OPS[name]
    extents = {"num_inputs": 4, "num_segments": 3, "embedding_dim": 3}
    given = [
        kind.array(np.array([0, 1, 1, 2], np.int32) if operand.index else np.ones([extents[axis] for axis in operand.axes], F))
        for operand in op.operands[:-1]
    ]
    for _ in range(2):
        with pytest.raises(nb.InvalidProblem):
            samples.call(op, given, 3, out=kind.array(np.ones((9, 3), F)))
    assert samples.call(op, given, 3).shape == (extents[op.operands[-1].axes[0]], 3)


@pytest.mark.parametrize("op", list(OPS.values()), ids=samples.name_of)
def test_ops_without_integers(kind: Kind, op: Op) -> None:
    """Gradients, and means, norms and whatever else would have to be rounded."""
    whole = not op.traits["backward"] and stem(op.name) in WITH_INTEGERS
    given = samples.operands(op, samples.Sample("integers", 4, (3,), 3))
    for element in INTEGERS:
        if whole:
            assert nb.select(nb.SegmentDescriptor(op.name, 4, 3, 3, element)).precision_guarantee.accumulator.name == element.upper()
        else:
            dtype = numpy_dtype(element)
            wrong = [kind.array(array if name == "segment_ids" else np.ones(array.shape, dtype)) for name, array in given.items()]
            with pytest.raises(nb.Unsupported, match=f"^{op.name}: element is {element}, wants one of f"):
                samples.call(op, wrong, 3)


def test_one_position_equal_to_another_is_not_its_type(emulator: Kind) -> None:
    """3.0 == 3 and True == 1, but neither is a number of segments, also when the plan is known."""
    nb.segment_sum(x(4), IDS, 3)
    nb.segment_sum(x(4), IDS, 1)
    for wrong in (3.0, True):
        with pytest.raises(nb.InvalidProblem, match=f"num_segments is {wrong}"):
            nb.segment_sum(x(4), IDS, wrong)


@pytest.mark.parametrize(
    ("error", "builtin", "status"),
    [
        (nb.InvalidProblem, ValueError, nb.Status.INVALID_PROBLEM),
        (nb.Unsupported, NotImplementedError, nb.Status.UNSUPPORTED),
        (nb.MisalignedOperand, ValueError, nb.Status.MISALIGNED_OPERAND),
        (nb.WorkspaceTooSmall, ValueError, nb.Status.WORKSPACE_TOO_SMALL),
        (nb.BufferTooSmall, ValueError, nb.Status.INVALID_PROBLEM),
        (nb.KernelLaunchError, RuntimeError, nb.Status.LAUNCH_FAILURE),
    ],
)
def test_exceptions(error: Any, builtin: type, status: nb.Status) -> None:
    assert issubclass(error, nb.BaracudaError) and issubclass(error, builtin)
    assert error.status == status
    if error is not nb.BufferTooSmall:
        assert errors.exception_for(status) is error


def test_status_numbers() -> None:
    assert [(status.name, int(status)) for status in nb.Status] == [
        ("OK", 0), ("MISALIGNED_OPERAND", 1), ("INVALID_PROBLEM", 2), ("UNSUPPORTED", 3), ("WORKSPACE_TOO_SMALL", 4), ("LAUNCH_FAILURE", 5),
    ]  # fmt: skip
    with pytest.raises(KeyError):
        errors.exception_for(nb.Status.OK)


def test_what_exceptions_carry() -> None:
    for error, unit in ((nb.WorkspaceTooSmall, "bytes"), (nb.BufferTooSmall, "elements")):
        problem = error("op: thing", 12, 7)
        assert (problem.needed, problem.got, str(problem)) == (12, 7, f"op: thing holds 7 {unit}, wants 12")
    assert nb.KernelLaunchError("refused", 719).code == 719


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_a_pool_of_processes(protocol: int) -> None:
    raised = (
        nb.InvalidProblem("wrong"), nb.Unsupported("not here"), nb.MisalignedOperand("odd"), nb.KernelLaunchError("refused", 700),
        nb.WorkspaceTooSmall("segment_sum: workspace", 64, 63), nb.BufferTooSmall("x", 3, 2),
    )  # fmt: skip
    for error in raised:
        for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
            assert type(other) is type(error) and str(other) == str(error) and other.args == error.args
            assert vars(other) == vars(error) and other.status == error.status
