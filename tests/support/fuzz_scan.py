"""The fuzzer's part for scans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scan_cases
import scan_reference
from fuzz_arrays import drawn_shape, random_values, repeated, sprinkled
from fuzz_families import Case, NoReference, Problem, drawn_options, met
from references import Array, is_whole

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op


class Scan:
    """One axis of an array of any rank."""

    def check(self, op: Op) -> None:
        if op.name.removesuffix("_backward") not in scan_reference.REFERENCES:
            raise NoReference(f"{op.name}: scan_reference.REFERENCES has no truth for it")

    def draw(self, rng: np.random.Generator, op: Op, element: str, most: int, habits: np.random.Generator) -> Case:
        rank = int(habits.choice([1, 1, 2, 2, 2, 2, 3, 3, 4, 8]))
        shape = drawn_shape(rng, rank, most if op.backward else min(most, 200_000))
        axis = int(rng.integers(-rank, rank))
        if op.backward is None and shape[axis] > 600:  # their reference loops over pairs of elements
            shape = tuple(600 if k == axis % rank else extent for k, extent in enumerate(shape))
        if most < 10_000:  # in the emulator, where a block serves only a few rows
            while math.prod(shape) > 200 * max(1, shape[axis]):
                longest = max((k for k in range(rank) if k != axis % rank), key=shape.__getitem__)
                shape = tuple(extent // 2 if k == longest else extent for k, extent in enumerate(shape))
        options = drawn_options(rng, op, element, habits)
        if element not in ("i32", "bool"):  # only these may have results of several dtypes
            options.pop("dtype", None)
        return Case(op.name, element, shape, {"axis": axis}, options)

    def simpler(self, case: Case) -> Iterator[Case]:
        return iter(())

    def problem(self, op: Op, case: Case) -> Problem:
        rng, shape, axis = np.random.default_rng(case.seed), case.shape, case.settings["axis"]
        name, dtype = op.name.removesuffix("_backward"), numpy_dtype(case.element)
        factors = scan_reference.REFERENCES[name].factors
        asked = {key: each for key, each in case.options.items() if key in ("reverse", "exclusive", "initial")}
        indices = bool(case.options.get("return_indices"))
        x = random_values(rng, shape, case.element)
        if factors:
            spread = min(0.3, 3 / np.sqrt(shape[axis] + 1))
            x = (rng.choice([-1.0, 1.0], shape) * np.exp(rng.uniform(-spread, spread, shape))).astype(dtype)
        given = {"x": repeated(sprinkled(rng, x, case.values, factors), case.layouts.get("x"))}
        if op.backward is None:
            calm = case.values if case.values != "extreme" else "whole"
            given["dy"] = repeated(sprinkled(rng, random_values(rng, shape, case.element), calm), case.layouts.get("dy"))
            with np.errstate(all="ignore"):
                given["y"] = scan_reference.scanned(name, given["x"], axis, **asked).astype(dtype)
        given = {operand.name: given[operand.name] for operand in op.operands[:-1]}
        output = op.operands[-1].name
        whole = dtype.kind in "bi"
        made_of = np.dtype(case.options.get("dtype", np.int64)) if whole and op.traits.get("widened") else dtype
        outputs: dict[str, Any] = {output: (shape, made_of, None)}
        if indices:
            outputs["indices"] = (shape, np.dtype(case.options.get("index_dtype", "int64")), None)

        def call(arrays: dict[str, Any], out: dict[str, Any], keywords: dict[str, Any]) -> dict[str, Any]:
            if out:
                keywords = keywords | {"out": (out[output], out["indices"]) if indices else out[output]}
            made = getattr(nb, op.name)(*arrays.values(), axis, **keywords)
            return dict(zip(outputs, made if indices else (made,), strict=True))

        def compare(results: dict[str, Array]) -> None:
            if indices:
                np.testing.assert_array_equal(results["indices"], _winners(name, given["x"], axis, **asked))
            if whole:
                np.testing.assert_array_equal(results[output], scan_reference.scanned(name, given["x"], axis, made_of, **asked))
                return
            right = scan_cases.truth(op, given, axis, **asked)
            met(results[output], replace(right, value=_held(right.value, dtype)), case.element, op.name)

        return Problem(given, outputs, call, compare)


def _held(value: Array, dtype: Any) -> Array:
    """``value``, with infinities where the dtype cannot represent it."""
    with np.errstate(all="ignore"):
        held = value.astype(dtype).astype(np.float64)
    return np.where(np.isinf(held), held, value)


def _winners(name: str, x: Array, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None) -> Array:
    """The index of each running extreme: the first element that beats all before it, or −1 where ``initial`` does."""
    along = np.moveaxis(x.astype(np.float64 if not is_whole(x.dtype) else np.int64), axis, -1)[..., :: -1 if reverse else 1]
    n = along.shape[-1]
    places, best = np.full(along.shape, -1), np.full(along.shape[:-1], np.nan if initial is None else initial)
    place, started = np.full(along.shape[:-1], -1), np.full(along.shape[:-1], initial is not None)
    for k in range(n):
        if exclusive:
            places[..., k] = place
        each = along[..., k]
        beats = (each > best if name == "cummax" else each < best) | (np.isnan(each) & ~np.isnan(best)) | ~started
        best, place, started = np.where(beats, each, best), np.where(beats, n - 1 - k if reverse else k, place), np.ones_like(started)
        if not exclusive:
            places[..., k] = place
    return np.moveaxis(places[..., :: -1 if reverse else 1], -1, axis)
