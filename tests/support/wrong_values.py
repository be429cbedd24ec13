"""Wrong values for every kind of argument, and good calls in which each replaces a right one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import samples
from samples import Sample

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op

F = np.float32
ROWS, COLUMNS, SEGMENTS, CLASSES = 4, 3, 3, 5
NAN, INF = float("nan"), float("inf")


class Thing:
    """An object that no op takes, with a name that messages can be searched for."""

    def __repr__(self) -> str:
        return "a Thing"


@dataclass(frozen=True)
class Wrong:
    """A wrong value; the message must have one of ``told`` as the value that it got, and one of ``blamed`` as the argument."""

    value: Any
    told: tuple[str, ...]
    blamed: tuple[str, ...] = ()


def shown(*values: Any) -> list[Wrong]:
    """Wrong values of which a message has the repr or the type."""
    return [Wrong(value, (repr(value)[:90], f"of type {type(value).__name__}")) for value in values]


def without(wrong: list[Wrong], *values: Any) -> list[Wrong]:
    """All but these values."""
    found = [(type(value), repr(value)) for value in values]
    return [each for each in wrong if (type(each.value), repr(each.value)) not in found]


THINGS = ("x", {}, {"a": 1}, {0}, [], Thing(), 1j, np.array(["x"]))
FLAGS = shown(*THINGS, "", "True", None, 0, 1, 0.0, 1.0, -1, np.int64(1), np.array(True), (True,))
WHOLES = shown(*THINGS, "3", 3.0, 2.5, NAN, True, False, -1, 1 << 63, -(1 << 70), np.float32(3), np.array(3), [3], (3,))
CORRECTIONS = shown(*THINGS, "1", None, True, -1, -(1 << 70), NAN, INF, [1], np.array([1, 2]))
CHOICES = shown(*THINGS, "", "last", "FIRST", b"first", None, 0, True, ["first"], ("all",), {"even"}, np.array("first"))
NUMBERS = shown(*THINGS, "0.5", True, [0.5], np.array([0.5, 1.0]), np.array(0.5))
#: numbers that float32 cannot represent
BEYOND = shown(1e300, -1e39, 10**400)
AXES = without(shown(*THINGS), []) + shown("1", 1.0, 1.5, NAN, True, np.array(1.0), np.array([0.5]), b"\0")
AXES += [
    Wrong(value, ("7", "2", "of type ndarray", repr(value)))
    for value in (7, -7, 2, 1 << 70, (0, 7), [0, 0], (1, -1), np.array([1, 1]), [[0]], np.array([[0]]), (0, None))
]
ONE_AXIS = AXES + shown(None, [1], (1,), range(1), np.array([1]))
NO_DTYPES = shown(*THINGS, 5, 2.5, True, "int16", np.int16, "float31")
DTYPES = NO_DTYPES + [Wrong(value, (name,)) for value, name in (("float32", "f32"), (np.float64, "f64"), ("bool", "bool"))]
SHAPES = without(shown(*THINGS), []) + shown(5, "ab", (4, 3.0), (4, True), (4, None), ((4,), 3), (1 << 70, 3), np.array([4.0, 3.0]))
SHAPES += [Wrong(value, (repr(list(value)),)) for value in ((4, -3), (5, 3), (4, 3, 1), [])]
STREAMS = [Wrong(value, (f"of type {type(value).__name__}", repr(value))) for value in (*THINGS, -5, -1, 2.5, True, 1 << 70, np.array(0), np.True_)]


def _alias(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.broadcast_to(np.ones((), dtype), shape)


def no_arrays() -> list[Wrong]:
    """Objects that are no arrays, and arrays of dtypes that no op has."""
    wrong = [Wrong(each, (f"of type {type(each).__name__}",)) for each in ("x", {}, Thing(), 1j, 5, 2.5, True, F(1), b"1", range(3))]
    wrong += [Wrong(np.ones((ROWS, COLUMNS), dtype), (str(np.dtype(dtype)),)) for dtype in (np.complex64, np.int16, np.uint32, ">f4", "U3", object)]
    masked = np.ma.masked_array(np.ones((ROWS, COLUMNS), F), mask=False)
    return [*wrong, Wrong(masked, ("masked array",)), Wrong(np.zeros(3, [("a", F)]), ("'a'",))]


def arrays(array: Any, others: tuple[str, ...], tells_rows: bool = False) -> list[Wrong]:
    """Wrong values for an operand: no arrays, and arrays of other shapes, for which the message may blame another operand.

    Other numbers of rows are wrong only where another operand ``tells_rows``.
    """
    lengths = [] if tells_rows else [np.concatenate([array, array[:1]]), array[:-1]]
    others_shaped = [*lengths, np.stack([array, array], -1), array.reshape((*array.shape, *[1] * 8))]
    shapes = [Wrong(each, ("shape", "axes"), others) for each in others_shaped]
    return [*no_arrays(), Wrong(None, ("None",)), *shapes]


def typed(array: Any, dtypes: tuple[Any, ...]) -> list[Wrong]:
    return [Wrong(array.astype(dtype), (np.dtype(dtype).name, {"uint8": "u8", "bool": "bool"}.get(np.dtype(dtype).name, "?"))) for dtype in dtypes]


def outputs(array: Any, name: str) -> list[Wrong]:
    """Wrong values for an output, which functions call ``out``."""
    frozen, blamed = array.copy(), (name, "out")
    frozen.flags.writeable = False
    other = np.int32 if array.dtype == np.float64 else np.float64
    wrong = [Wrong(each.value, each.told, blamed) for each in no_arrays()]
    wrong += [Wrong(each, ("has shape", "axes"), blamed) for each in (np.concatenate([array, array]), np.stack([array, array]), array[..., :0])]
    wrong.append(Wrong(array.astype(other), (np.dtype(other).name,), blamed))
    wrong.append(Wrong(frozen, ("read-only",), blamed))
    if array.size > 1:
        wrong.append(Wrong(_alias(array.shape, array.dtype), ("read-only", "broadcast"), blamed))
    return wrong


WORKSPACES = no_arrays()[:8]

# ---------------------------------------------------------------- good calls


@dataclass(frozen=True)
class Call:
    """A good call by keywords, its result, and wrong values for each argument."""

    op: Op
    arguments: dict[str, Any]
    wrong: dict[str, list[Wrong]]

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(nb, self.op.name)  # type: ignore[no-any-return]

    @property
    def required(self) -> list[str]:
        empty = inspect.Parameter.empty
        return [name for name, parameter in inspect.signature(self.function).parameters.items() if parameter.default is empty]


def poisoned(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.full(shape, 77, dtype)


def _segment(op: Op) -> Call:
    sample = Sample("wrong calls", ROWS, (COLUMNS,), SEGMENTS)
    given = samples.operands(op, sample)
    names = tuple(given)
    alone = op.operands[0].axes[0] == "num_segments" and "output" not in names  # then only d_output has the number of segments
    given["segment_ids"] = given["segment_ids"].astype(np.int32)
    wrong: dict[str, list[Wrong]] = {}
    for k, (name, array) in enumerate(given.items()):
        if name == "segment_ids":
            wrong[name] = [*arrays(array, (*names, "d_input")), *typed(array, (np.uint8, bool, F)), Wrong(array[0], ("of type int32",))]
        else:
            wrong[name] = arrays(array, (*names, "d_input", "output"), name == "d_output" and alone) + typed(
                array, (np.uint8, bool) if k == 0 else (np.float64, np.float16)
            )
    output = op.operands[-1]
    out = poisoned((ROWS if output.axes[0] == "num_inputs" else SEGMENTS, COLUMNS), samples.output_type(op, sample))
    empty = NUMBERS + shown("none", "Identity") + BEYOND + (shown("identity", 2.5, NAN, INF) if op.traits["results"] else [])
    wrong |= {"out": outputs(out, output.name), "check_ids": FLAGS, "deterministic": FLAGS, "empty": empty}
    wrong |= {"ties": CHOICES, "correction": CORRECTIONS, "num_segments": WHOLES + shown(1 << 40), "dtype": DTYPES}
    if "num_segments" in inspect.signature(getattr(nb, op.name)).parameters:
        given["num_segments"] = SEGMENTS
        if not op.traits["backward"]:
            wrong["num_segments"] = wrong["num_segments"] + shown(None)
    return Call(op, {**given, "out": out}, wrong)


def _reduce(op: Op) -> Call:
    full, kept = np.arange(1, 13, dtype=F).reshape(ROWS, COLUMNS), np.ones((ROWS, 1), F)
    given = {operand.name: full.copy() if operand.axes[0] == "input_shape" else kept.copy() for operand in op.operands[:-1]}
    wrong: dict[str, list[Wrong]] = {"axis": AXES}
    for name, array in given.items():
        wrong[name] = arrays(array, (*given, "y", "dx", "input_shape"))
        wrong[name] += typed(array, (np.float64, np.float16)) if name != next(iter(given)) else []
    output = op.operands[-1]
    dtype = numpy_dtype("bool" if op.indices == ("bool",) else op.indices[0]) if op.indices else F
    out = poisoned((ROWS, COLUMNS) if op.traits["backward"] else (ROWS, 1), dtype)
    wrong |= {"out": outputs(out, output.name), "correction": CORRECTIONS, "ties": CHOICES, "dtype": DTYPES}
    if op.traits["backward"]:
        if "x" not in given:
            given["input_shape"] = (ROWS, COLUMNS)
            wrong["input_shape"] = [*without(SHAPES, (5, 3), (4, 3, 1), []), Wrong(None, ("missing",))]
            wrong["input_shape"] += [Wrong(each, ("shape", "axis"), ("dy", "dx", "axis")) for each in ((5, 3), (4, 3, 1), [])]
            wrong |= {"x": without(arrays(full, ("input_shape",)), None), "y": []}  # only the shape of x is used, and nothing of y
        else:
            wrong["input_shape"] = SHAPES
            wrong |= {name: [*without(wrong[name], None), Wrong(None, ("missing",))] for name in ("x", "y") if name in wrong}
    else:
        wrong["keepdims"] = FLAGS
    return Call(op, {**given, "axis": 1, "out": out}, wrong)


def _scan(op: Op) -> Call:
    full = np.arange(1, 13, dtype=F).reshape(ROWS, COLUMNS)
    given = {operand.name: full.copy() for operand in op.operands[:-1]}
    wrong: dict[str, list[Wrong]] = {"axis": ONE_AXIS}
    for k, (name, array) in enumerate(given.items()):
        wrong[name] = arrays(array, (*given, "y", "dx", "axis", "input_shape"))
        wrong[name] += typed(array, (np.float64, np.float16)) if k else []
    out = poisoned((ROWS, COLUMNS), F)
    wrong |= dict.fromkeys(("reverse", "exclusive", "deterministic", "return_indices"), FLAGS)
    wrong |= {"out": outputs(out, op.operands[-1].name), "initial": NUMBERS + BEYOND, "index_dtype": DTYPES + shown(None)}
    wrong["dtype"] = NO_DTYPES + [Wrong(value, (name,)) for value, name in ((np.float64, "float64"), ("i32", "int32"), ("bool", "bool"))]
    return Call(op, {**given, "axis": 1, "out": out}, wrong)


def _loss(op: Op) -> Call:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((ROWS, COLUMNS)).astype(F), rng.standard_normal((CLASSES, COLUMNS)).astype(F)
    grads = {"grad_input": poisoned(x.shape, F), "grad_weight": poisoned(w.shape, F), "grad_bias": poisoned((CLASSES,), F)}
    wrong = {name: outputs(array, name) for name, array in grads.items()}
    wrong = {name: [Wrong(each.value, each.told, tuple(grads)) for each in values] for name, values in wrong.items()}
    upstream = [Wrong(each, (f"of type {type(each).__name__}", repr(each))) for each in ("x", {}, Thing(), 1j, True, [None])]
    upstream += [Wrong(np.ones(7, F), ("has shape",)), Wrong(np.ones(1, np.complex64), ("complex64",)), Wrong(np.ones(1, np.int32), ("int32",))]
    if op.backward is None:
        wrong = {name: [each for each in wrong[name] if each.told != ("has shape", "axes")] for name in wrong}
        wrong["dy_scalar"] = [*upstream, Wrong(None, ("None",))]
        return Call(op, {"dy_scalar": 2.0, **grads}, wrong)
    given = {"input": x, "weight": w, "target": np.arange(ROWS), "bias": np.ones(CLASSES, F), "class_weight": np.ones(CLASSES, F)}
    given["row_weight"] = np.ones(ROWS, F)
    for k, (name, array) in enumerate(given.items()):
        wrong[name] = [each for each in arrays(array, (*given, *grads)) if k < 3 or each.value is not None]
        wrong[name] += typed(array, (np.float16, bool)) if name != "input" else []
    wrong = {name: [each for each in values if not (name.startswith("grad") and each.value is True)] for name, values in wrong.items()}
    finite = NUMBERS + shown(NAN, INF, 10**400)
    wrong |= {
        "reduction": shown(*THINGS, "average", 7, -1, 1.0, True, None, ["mean"], NAN),
        "ignore_index": [*without(WHOLES, -1), *shown(None)],
        "label_smoothing": [*finite, *shown(None, -0.1, 1.5)],
        "lse_square_scale": [*finite, *shown(None, -1.0, -1e-30, 1e300)],
        "softcap": [*finite, *shown(-1.0), Wrong(0, ("0.0",))],
        "logit_scale": [*finite, *shown(None, 1e300)],
        "chunk": WHOLES + shown(None, 0, "large", "AUTO", b"auto"),
        "max_workspace_bytes": [*WHOLES, Wrong(0, ("more than max_workspace_bytes, 0",))],
        "grad_weight_accum": without(DTYPES, "float32"),
        "accumulate_grad_weight": FLAGS,
        "dy": upstream,
        "dy_entropy": [Wrong(np.ones(7, F), ("has shape",)), Wrong(np.ones(ROWS, np.int32), ("int32",)), Wrong(np.ones(ROWS, F), ("reduction",))],
        "out": outputs(poisoned((1,), F), "out"),
    }  # fmt: skip
    wrong["out"] = [each for each in wrong["out"] if getattr(each.value, "dtype", None) != np.float16]
    wrong |= dict.fromkeys(("skip_ignored", "return_lse", "return_z_loss", "return_accuracy", "return_predicted", "return_entropy"), FLAGS)
    return Call(op, {**given, **grads, "out": poisoned((1,), F)}, wrong)


_FAMILIES = {"segment": _segment, "reduce": _reduce, "scan": _scan, "loss": _loss}


def good_call(op: Op) -> Call:
    """A good call of an op with wrong values for every argument of its signature."""
    call = _FAMILIES[op.family](op)
    known = set(inspect.signature(call.function).parameters)
    wrong = {name: values for name, values in {**call.wrong, "stream": STREAMS, "workspace": WORKSPACES}.items() if name in known}
    assert wrong.keys() == known, (op.name, known ^ wrong.keys())
    return Call(op, call.arguments, wrong)


def wrong_calls(call: Call) -> Iterator[tuple[str, Wrong]]:
    """Every argument with every wrong value."""
    for name, values in call.wrong.items():
        for wrong in values:
            yield name, wrong
