"""The fuzzer's part for each family of ops: draws a problem, calls the op, and compares with the suite's reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import reduce_cases
import references
import samples
import tolerance
from fuzz_arrays import Layout, drawn_shape, picked, random_values, repeated, sprinkled
from references import Array, Truth, is_whole
from samples import Sample

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.core.op import Op


class NoReference(Exception):
    """The suite has no reference for an op, or no values for one of its options."""


@dataclass(frozen=True)
class Case:
    """A problem as plain data. ``shape`` is that of the values, or BT, H, V of a loss; ``settings`` belong to it, ``options`` may be dropped."""

    op: str
    element: str
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    values: str = "normal"
    seed: int = 0
    schedule: int | None = None  #: seed of the emulator's checked mode


@dataclass
class Problem:
    """A case with its arrays in host memory. ``outputs`` are shape, dtype and, for those that are updated, the values before."""

    inputs: dict[str, Array]
    outputs: dict[str, tuple[tuple[int, ...], Any, Array | None]]
    call: Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], dict[str, Any]]
    compare: Callable[[dict[str, Array]], None]
    refusal: str | None = None  #: text that the message of InvalidProblem must contain
    unspecified: bool = False  #: whether results are unspecified


#: values of every option that a function may have other than ``out``, ``stream`` and ``workspace``
CHOICES: dict[str, Sequence[Any]] = {
    "keepdims": (False, True), "correction": (0, 0.5, 1, 1.75, 2, 3, 30), "ties": ("first", "all", "even"), "reverse": (True,), "exclusive": (True,),
    "initial": (0.5, 2.0, -1.5, 0.0), "deterministic": (False,), "empty": (2.5, -np.inf, np.nan, "identity", 0.0), "check_ids": (True,),
    "return_indices": (True,), "index_dtype": ("int32", "int64"), "dtype": ("int32", "int64"),
}  # fmt: skip
CALL = ("out", "stream", "workspace")
#: the fuzzer's own options of a case: with ``out=``, with ``workspace=``, run twice
CALLS = ("out", "workspace", "twice")


def options_of(op: Op) -> list[str]:
    """The keywords of an op's function that change its result."""
    function = getattr(nb, op.name)
    names = [each.name for each in inspect.signature(function).parameters.values() if each.kind == each.KEYWORD_ONLY or each.name == "keepdims"]
    return [name for name in names if name not in CALL and name not in ("axis", "input_shape")]


def drawn_options(rng: np.random.Generator, op: Op, element: str, habits: np.random.Generator) -> dict[str, Any]:
    """Some of the options, each with its value in this burst of cases."""
    made: dict[str, Any] = {}
    for name in options_of(op):
        if name not in CHOICES:
            raise NoReference(f"{op.name}: no values are known for the option {name}")
        choices = CHOICES[name]
        if name == "empty" and op.traits["results"]:
            choices = (3, -2)
        elif BY_NAME[element].whole and name in ("empty", "initial"):
            choices = (3, -2, "identity") if name == "empty" else (3, -2, 0)
        value, usual = picked(habits, choices), habits.random() < 0.5
        if usual and rng.random() < 0.6:
            made[name] = value
    return made


def loosened(got: Array, truth: Truth, element: str) -> Array:
    """``got``, with the truth where no check is possible: terms leave the accumulator's range, or a rounding the element's."""
    dtype = numpy_dtype(element)
    if is_whole(dtype) or got.dtype != dtype or got.shape != truth.value.shape:
        return got
    with np.errstate(all="ignore"):
        most = BY_NAME[BY_NAME[element].accumulator].limits[1]
        summed = truth.scale * np.maximum(tolerance.terms_of(truth), 1)  # the scale of a mean is that of its terms, divided
        lost = ~(summed < most / 8) & ~np.isnan(truth.value)
        wide, limit = got.astype(np.float64), BY_NAME[element].limits[1]
        rounded = (abs(wide) >= limit * (1 - 64 * BY_NAME[element].eps)) & (abs(truth.value) >= limit * (1 - 64 * BY_NAME[element].eps))
        rounded &= np.sign(wide) == np.sign(truth.value)
        return np.where(lost | rounded, truth.value.astype(dtype), got)


def met(got: Array, truth: Truth, element: str, op: str) -> None:
    """:func:`tolerance.assert_close`, where the truth is known."""
    with np.errstate(all="ignore"):
        whole = replace(truth, scale=np.where(np.isfinite(truth.scale), truth.scale, 0.0))
    tolerance.assert_close(loosened(got, truth, element), whole, element, op)


def _middle(rng: np.random.Generator, rows: int, segments: int) -> Array:
    return np.full(rows, segments // 2)


IDS: dict[str, samples.Ids] = {
    "anywhere": samples.anywhere, "runs": samples.runs, "skewed": samples.skewed, "outside": samples.outside, "one": _middle,
    "own": lambda r, n, s: np.arange(n), "gaps": lambda r, n, s: np.sort(r.integers(0, max(s // 9, 1), n)) * 9,
    "limits": samples.limits, "far": samples.far_outside, "long": samples.around_a_long_one,
}  # fmt: skip
FORMS = ("array", "index", "told index", "offsets")


class Segment:
    """Rows with ids in any order, as an array or as an index."""

    def check(self, op: Op) -> None:
        if op.name not in references.REFERENCES:
            raise NoReference(f"{op.name}: references.REFERENCES has no truth for it")

    def draw(self, rng: np.random.Generator, op: Op, element: str, most: int, habits: np.random.Generator) -> Case:
        rank = int(habits.choice([1, 2, 2, 2, 2, 3, 3, 4, 8]))
        columns = picked(habits, (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 33, 37, 64, 100, 128, 130, 257))
        trailing = () if rank == 1 else (columns,) if rank == 2 else drawn_shape(habits, rank - 1, columns)
        rows = int(np.exp(rng.uniform(0, np.log(max(2, most // max(1, int(np.prod(trailing)))))))) - (rng.random() < 0.05)
        segments = max(0, picked(rng, (0, 1, 2, 7, rows // 20, rows // 3, rows, 3 * rows + 5, 200)))
        segments = min(segments, max(3, most // max(1, int(np.prod(trailing)))))
        index = picked(habits, ("i32", "i32", "i64"))
        kinds = [name for name in IDS if name != "far" or index == "i64"]
        settings = {"segments": segments, "ids": picked(rng, kinds), "index": index, "form": "array"}
        form = picked(habits, FORMS)
        if rng.random() < 0.3:
            settings["form"] = form
        elif op.traits["ordered"] and rng.random() < 0.04:
            settings["ids"] = "shuffled"
        return Case(op.name, element, (max(rows, 0), *trailing), settings, drawn_options(rng, op, element, habits))

    def simpler(self, case: Case) -> Iterator[Case]:
        for change in ({"form": "array"}, {"ids": "anywhere"}, {"segments": case.settings["segments"] // 2}, {"segments": 1}, {"index": "i32"}):
            yield replace(case, settings=case.settings | change)

    def problem(self, op: Op, case: Case) -> Problem:
        rows, *trailing = case.shape
        segments, form, rng = case.settings["segments"], case.settings["form"], np.random.default_rng(case.seed)
        ids_of = IDS.get(case.settings["ids"], samples.anywhere)
        sample = Sample(
            f"fuzz {case.seed}", rows, tuple(trailing), segments, lambda rng, n, s: ids_of(rng, n, max(s, 1)) if n else np.zeros(0, np.int64),
            case.element, case.settings["index"],
        )  # fmt: skip
        asked = {name: each for name, each in case.options.items() if name in ("ties", "correction")}
        given = samples.operands(op, sample, **asked)
        ids = repeated(given["segment_ids"], case.layouts.get("segment_ids"))
        if form == "offsets":
            ids = np.sort(np.clip(ids, 0, max(segments - 1, 0)).astype(np.int64)).astype(ids.dtype)
        elif case.settings["ids"] == "shuffled":
            ids = rng.permutation(ids)
        given["segment_ids"] = ids
        factors = "prod" in op.name
        for name, array in given.items():
            if name not in ("segment_ids", "output"):
                given[name] = repeated(sprinkled(rng, array, case.values, factors), case.layouts.get(name))
        if "output" in given and "input" in given:
            given["output"] = samples.saved(op, given["input"], ids, sample, **asked)
        output = op.operands[-1]
        extent = rows if output.axes[0] == "num_inputs" else segments
        kind = samples.descriptor(op, sample, result=case.options.get("dtype")).result_of(op)

        def call(arrays: dict[str, Any], out: dict[str, Any], keywords: dict[str, Any]) -> dict[str, Any]:
            named = dict(arrays)
            if form in ("index", "told index"):
                told = bool((np.diff(ids.astype(np.int64)) >= 0).all()) if form == "told index" else None
                named["segment_ids"] = nb.SegmentIndex(named["segment_ids"], segments, told)
            elif form == "offsets":
                named["segment_ids"] = nb.SegmentIndex.from_offsets(named.pop("offsets"), rows if case.seed % 2 else None)
                named = {name: named[name] for name in given}
            return {output.name: samples.call(op, list(named.values()), segments, **keywords, **({"out": out[output.name]} if out else {}))}

        def compare(results: dict[str, Array]) -> None:
            got, asked = results[output.name], {name: each for name, each in case.options.items() if name in ("empty", "ties", "correction")}
            met(got, references.truth(op.name, given, segments, **asked, result=kind), case.element, op.name)

        inputs = dict(given)
        if form == "offsets":
            inputs["offsets"] = (
                np.searchsorted(inputs.pop("segment_ids"), np.arange(segments + 1)).astype(ids.dtype) if segments else np.zeros(1, ids.dtype)
            )
            if not segments:
                inputs["offsets"][0] = rows
        refusal = self._refusal(op.traits["ordered"] and form == "array", ids, segments) if case.options.get("check_ids") else None
        return Problem(
            inputs, {output.name: ((extent, *trailing), numpy_dtype(kind), None)}, call, compare, refusal, case.settings["ids"] == "shuffled"
        )

    @staticmethod
    def _refusal(ordered: bool, ids: Array, segments: int) -> str | None:
        """The first id that ``check_ids=True`` names."""
        wide = ids.astype(np.int64)
        wrong = (wide < 0) | (wide >= segments)
        if ordered:
            wrong[1:] |= np.diff(wide) < 0
        return f"segment_ids[{int(wrong.argmax())}]" if wrong.any() else None


class Reduce:
    """Any axes of an array of any rank."""

    def check(self, op: Op) -> None:
        kind = reduce_cases.kind_of(op)
        if op in reduce_cases.OTHER:
            if not hasattr(np, kind):
                raise NoReference(f"{op.name}: NumPy has no {kind}")
        elif f"segment_{op.name.removeprefix('reduce_')}" not in references.REFERENCES:
            raise NoReference(f"{op.name}: references.REFERENCES has no segment_{kind}")

    def draw(self, rng: np.random.Generator, op: Op, element: str, most: int, habits: np.random.Generator) -> Case:
        rank = int(habits.choice([0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 8]))
        shape = drawn_shape(rng, rank, most)
        some = tuple(int(axis) for axis in rng.permutation(rank)[: rng.integers(0, rank + 1)])
        choices = [None, some, some, *[int(axis) for axis in range(-rank, rank)]]
        return Case(op.name, element, shape, {"axis": picked(rng, choices)}, drawn_options(rng, op, element, habits))

    def simpler(self, case: Case) -> Iterator[Case]:
        return iter(())

    def problem(self, op: Op, case: Case) -> Problem:
        rng, shape = np.random.default_rng(case.seed), case.shape
        axes = tuple(sorted(reduce_cases.reduced_axes(op.name, case.settings["axis"], len(shape))))
        kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        less = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
        other, asked = op in reduce_cases.OTHER, {name: each for name, each in case.options.items() if name in ("ties", "correction")}
        factors = "prod" in op.name
        if other or is_whole(numpy_dtype(case.element)):
            given = {"x": random_values(rng, shape, case.element)}
        else:
            given = reduce_cases.operands(op, shape, axes, case.element, **asked)
        for name in [name for name in given if name != "y"]:
            given[name] = repeated(sprinkled(rng, given[name], case.values, factors), case.layouts.get(name))
        if "y" in given:
            forward = next(each for each in reduce_cases.FORWARD if each.backward == op.name)
            chosen = {name: each for name, each in asked.items() if name == "correction"}
            with np.errstate(all="ignore"):
                given["y"] = reduce_cases.truth(forward, {"x": given["x"]}, shape, axes, **chosen).value.astype(given["x"].dtype)
        output = op.operands[-1]
        squeezed = bool(op.backward or other) and case.options.get("keepdims") is False
        made = shape if not (op.backward or other) else less if squeezed else kept
        kind = np.dtype(case.options.get("dtype", BY_NAME[op.indices[0]].numpy_name)) if output.index else numpy_dtype(case.element)

        def call(arrays: dict[str, Any], out: dict[str, Any], keywords: dict[str, Any]) -> dict[str, Any]:
            keywords = keywords | ({"out": out[output.name]} if out else {})
            axis = case.settings["axis"]
            if op.backward or other:
                return {output.name: reduce_cases.function(op)(arrays["x"], axis, **keywords)}
            named = dict(arrays) if "x" in arrays else {**arrays, "input_shape": shape}
            return {output.name: reduce_cases.function(op)(**named, axis=axis, **keywords)}

        def compare(results: dict[str, Array]) -> None:
            got = results[output.name]
            assert got.shape == made, f"the result has shape {got.shape}, wants {made}"
            whole = got.reshape(shape if not (op.backward or other) else kept)
            if other:
                lines = reduce_cases.lined_up(given["x"], axes)
                lines = lines if is_whole(lines.dtype) or lines.dtype == bool else lines.astype(np.float64)
                wanted = np.asarray(getattr(np, reduce_cases.kind_of(op))(lines, axis=0)).reshape(kept)
                np.testing.assert_array_equal(whole, wanted)
                assert got.dtype == kind, f"the result is {got.dtype}, wants {kind}"
                return
            ties = {"ties": "all"} if "ties" in op.traits["keywords"] else {}
            met(whole, reduce_cases.truth(op, given, shape, axes, **(ties | asked)), case.element, op.name)

        nothing = op.name in ("reduce_argmax", "reduce_argmin") and not all(shape[axis] for axis in axes)
        return Problem(given, {output.name: (made, kind, None)}, call, compare, "wants at least one element" if nothing else None)
