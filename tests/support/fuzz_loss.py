"""The fuzzer's part for losses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import loss_reference
import numpy as np
from fuzz_arrays import picked, repeated, sprinkled
from fuzz_families import CALLS, Case, NoReference, Problem
from loss_cases import GRADIENTS, INPUTS, RETURNED
from references import Array

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.core.op import Op

#: keywords of the loss that the reference has, with values; names stand for arrays
NUMBERS: dict[str, tuple[Any, ...]] = {
    "reduction": ("mean", "sum", "none"), "ignore_index": (-100, 0, 1), "label_smoothing": (0.1, 1.0, 0.0), "lse_square_scale": (0.03, 1e-3),
    "softcap": (1.5, 30.0), "logit_scale": (0.25, -0.5, 2.0),
}  # fmt: skip
ARRAYS = ("bias", "class_weight", "row_weight", "dy", "dy_entropy")
#: keywords that change how the loss is computed, not its result
WAYS: dict[str, tuple[Any, ...]] = {
    "chunk": (1, 4, 16, 1000, "lean", "liger"), "grad_weight_accum": ("wide",), "skip_ignored": (True,), "max_workspace_bytes": (1 << 28,),
    "accumulate_grad_weight": (True,),
}  # fmt: skip
_KNOWN = {*INPUTS, "out", "stream", "workspace", *NUMBERS, *ARRAYS, *WAYS, *GRADIENTS, *[f"return_{name}" for name in RETURNED]}


class Loss:
    """A linear layer and its cross-entropy, and the scale of its gradients afterwards."""

    row_major = ("input", "weight", "grad_input", "grad_weight", "bias", "class_weight", "grad_bias")
    NAME = "fused_linear_cross_entropy"

    def check(self, op: Op) -> None:
        import inspect

        if op.name not in loss_reference.REFERENCES:
            raise NoReference(f"{op.name}: loss_reference has no truth for it")
        unknown = set(inspect.signature(nb.fused_linear_cross_entropy).parameters) - _KNOWN
        if unknown:
            raise NoReference(f"{op.name}: no values are known for the options {', '.join(sorted(unknown))}")

    def draw(self, rng: np.random.Generator, op: Op, element: str, most: int, habits: np.random.Generator) -> Case:
        bt, v = (int(np.exp(rng.uniform(0, np.log(min(most, 3000) / 8)))) for _ in range(2))
        bt, h = min(bt, max(1, most // v)) - (rng.random() < 0.03), int(rng.integers(1, 40))
        if op.backward is None:
            given = tuple(name for name in GRADIENTS if rng.random() < 0.6)
            return Case(
                op.name,
                element,
                (max(bt, 1), h, v),
                {"given": given, "dy": picked(rng, (0.375, -1.5, 2.0, 1.0, 0.0)), "form": picked(rng, (0, 1, 2))},
            )
        usual = {name: picked(habits, choices) for name, choices in (NUMBERS | WAYS).items() if habits.random() < 0.4}
        options = {name: value for name, value in usual.items() if rng.random() < 0.6}
        options |= {name: True for name in ARRAYS if rng.random() < 0.25}
        options |= {f"return_{name}": True for name in RETURNED if rng.random() < 0.2}
        options |= {name: True for name in GRADIENTS if rng.random() < 0.7}
        if "bias" not in options:
            options.pop("grad_bias", None)
        if "grad_weight" not in options:
            options.pop("grad_weight_accum", None)
        if not ("grad_weight" in options and rng.random() < 0.5):
            options.pop("accumulate_grad_weight", None)
        return Case(op.name, element, (bt, h, v), {"index": picked(rng, ("i64", "i32")), "size": picked(rng, (1.0, 1.0, 1.0, 8.0))}, options)

    def simpler(self, case: Case) -> Iterator[Case]:
        for change in ({"size": 1.0}, {"index": "i64"}):
            yield replace(case, settings=case.settings | change)

    def problem(self, op: Op, case: Case) -> Problem:
        return self._scaled(op, case) if op.backward is None else self._forward(op, case)

    def _forward(self, op: Op, case: Case) -> Problem:
        rng, (bt, h, v), dtype = np.random.default_rng(case.seed), case.shape, numpy_dtype(case.element)
        wide = numpy_dtype(BY_NAME[case.element].accumulator)
        options = {name: option for name, option in case.options.items() if name not in CALLS}
        given: dict[str, Array] = {
            "input": rng.standard_normal((bt, h)),
            "weight": rng.standard_normal((v, h)) / np.sqrt(h) * 2 * case.settings.get("size", 1),
        }
        given = {name: sprinkled(rng, array.astype(dtype), case.values) for name, array in given.items()}
        target = rng.integers(0, v, bt)
        target[rng.random(bt) < 0.2] = picked(rng, (-100, v, -3, options.get("ignore_index", -100)))
        given["target"] = target.astype(numpy_dtype(case.settings["index"]))
        each = options.get("reduction") == "none"
        if not each:
            options.pop("dy_entropy", None)
        made = {
            "bias": rng.standard_normal(v).astype(dtype), "class_weight": rng.uniform(0.2, 2, v).astype(wide),
            "row_weight": rng.uniform(-1, 2, bt).astype(wide), "dy": rng.uniform(0.5, 1.5, bt if each else 1).astype(picked(rng, (wide, dtype))),
            "dy_entropy": rng.uniform(-1, 1, bt).astype(picked(rng, (wide, dtype))),
        }  # fmt: skip
        given |= {name: made[name] for name in ARRAYS if options.pop(name, False)}
        given = {name: repeated(array, case.layouts.get(name)) for name, array in given.items()}
        gradients = [name for name in GRADIENTS if options.pop(name, False)]
        returned = [name for name in RETURNED if options.get(f"return_{name}")]
        shapes = {"grad_input": (bt, h), "grad_weight": (v, h), "grad_bias": (v,)}
        held = rng.integers(-4, 5, (v, h)).astype(dtype) if options.get("accumulate_grad_weight") and "grad_weight" in gradients else None
        outputs: dict[str, Any] = {"out": ((bt,) if each else (), wide, None)}
        outputs |= {name: (shapes[name], dtype, held if name == "grad_weight" else None) for name in gradients}
        if options.get("grad_weight_accum"):
            options["grad_weight_accum"] = BY_NAME[case.element].accumulator

        def call(arrays: dict[str, Any], out: dict[str, Any], keywords: dict[str, Any]) -> dict[str, Any]:
            asked = {name: option for name, option in keywords.items() if name in ("workspace", "stream")} | options
            asked |= {name: array for name, array in arrays.items() if name in ARRAYS}
            asked |= {name: out.get(name, True) for name in gradients} | ({"out": out["out"]} if "out" in out else {})
            got = nb.fused_linear_cross_entropy(arrays["input"], arrays["weight"], arrays["target"], **asked)
            if not isinstance(got, tuple):
                return {"out": got, **{name: out[name] for name in gradients}}
            made = {"out": got.loss} | {name: getattr(got, name) for name in (*gradients, *returned)}
            return {name: out[name] if array is None else array for name, array in made.items()}

        def compare(results: dict[str, Array]) -> None:
            ways = {f"return_{name}" for name in RETURNED} | WAYS.keys()
            arrays = {name: array for name, array in given.items() if name in ARRAYS}
            known = {name: option for name, option in options.items() if name not in ways}
            with np.errstate(all="ignore"):
                right = loss_reference.wanted(given["input"], given["weight"], given["target"], **known, **arrays)
                right = self._certain(right, given, case.element, options)
            for name, inner in (("out", h), *[(name, max(bt, v)) for name in gradients]):
                value = results[name].astype(np.float64)
                if name == "grad_weight" and held is not None:
                    self._close_held(value - held, right, case.element, inner, held)
                else:
                    loss_reference.assert_close(value, right, name, case.element, inner)
            self._check_returned({name: results[name] for name in returned}, right, given, case)

        return Problem(given, outputs, call, compare)

    @staticmethod
    def _certain(right: loss_reference.Wanted, given: dict[str, Array], element: str, options: dict[str, Any]) -> loss_reference.Wanted:
        """The same with a tolerance for 1 − p of a target with p near 1: a few roundings of 1, however small the difference is."""
        sizes = {name: np.where(np.isfinite(array), abs(array), 0).astype(np.float64) for name, array in given.items()}
        each = 4.0 * np.prod([sizes[name].max(initial=0) for name in ("class_weight", "row_weight", "dy") if name in sizes])
        each *= max(1, abs(options.get("logit_scale", 1))) * BY_NAME[BY_NAME[element].accumulator].eps
        more = {
            "grad_input": each * sizes["weight"].max(0, initial=0),
            "grad_weight": each * sizes["input"].sum(0),
            "grad_bias": each * len(sizes["target"]),
        }
        allowed = BY_NAME[element].tolerance(1)
        return replace(right, scales={name: scale + more.get(name, 0.0) / allowed for name, scale in right.scales.items()})

    @staticmethod
    def _close_held(added: Array, right: loss_reference.Wanted, element: str, inner: int, held: Array) -> None:
        """Compares the increment of an accumulated gradient, whose rounding is that of the sum."""
        scales = right.scales | {"grad_weight": right.scales["grad_weight"] + 16 * abs(held.astype(np.float64))}
        loss_reference.assert_close(added, replace(right, scales=scales), "grad_weight", element, inner)

    @staticmethod
    def _check_returned(results: dict[str, Array], right: loss_reference.Wanted, given: dict[str, Array], case: Case) -> None:
        """Checks logarithms to the tolerance of logits, and classes where the greatest logit is clear."""
        if case.values in ("special", "extreme"):
            return
        x, w = (given[name].astype(np.float64) for name in ("input", "weight"))
        options = case.options
        sizes = abs(x) @ abs(w).T + (abs(given["bias"].astype(np.float64)) if "bias" in given else 0)
        sizes = (1 + sizes.max(1, initial=0)) * max(1, abs(options.get("logit_scale", 1))) + np.log(case.shape[2])
        off = 4 * BY_NAME[case.element].tolerance(case.shape[1]) * sizes
        for name, got in results.items():
            if name == "entropy":
                loss_reference.assert_close(got, right, name, case.element, case.shape[1])
            elif name == "lse":
                assert (abs(got - right.lse) <= off).all(), f"lse: off by {abs(got - right.lse).max()}"
            elif name == "z_loss":
                allowed = (
                    3
                    * off
                    * (1 + abs(np.asarray(right.lse)))
                    * options.get("lse_square_scale", 0)
                    * (1 + abs(given["row_weight"]) if "row_weight" in given else 1)
                )
                allowed = allowed if options.get("reduction") == "none" else allowed.sum()
                assert (abs(got - right.z_loss) <= allowed + 1e-7 * abs(right.z_loss)).all(), f"z_loss: {got}, wants {right.z_loss}"
            elif name == "predicted":
                z = x @ w.T + (given["bias"].astype(np.float64) if "bias" in given else 0)
                z = z * options.get("logit_scale", 1)
                clear = right.predicted >= 0
                assert ((got < 0) == ~clear).all(), "predicted: −1 in other rows"
                cap = options.get("softcap")
                z = z if cap is None else cap * np.tanh(z / cap)
                rows = np.flatnonzero(clear)
                assert (z[rows].max(1) - z[rows, got[rows]] <= 4 * off[rows]).all(), "predicted: not the class of the greatest logit"

    def _scaled(self, op: Op, case: Case) -> Problem:
        """``grad = dy · grad`` in place."""
        rng, (bt, h, v), dtype = np.random.default_rng(case.seed), case.shape, numpy_dtype(case.element)
        number, shapes = case.settings["dy"], {"grad_input": (bt, h), "grad_weight": (v, h), "grad_bias": (v,)}
        held = {name: sprinkled(rng, rng.standard_normal(shapes[name]).astype(dtype), case.values) for name in case.settings["given"]}
        wide = numpy_dtype(BY_NAME[case.element].accumulator)
        given = {} if not case.settings["form"] else {"dy_scalar": np.array([number], wide if case.settings["form"] == 1 else dtype)}

        def call(arrays: dict[str, Any], out: dict[str, Any], keywords: dict[str, Any]) -> dict[str, Any]:
            made = nb.fused_linear_cross_entropy_backward(arrays.get("dy_scalar", number), **out, **keywords)
            assert made is None, "the backward scale returned something"
            return out

        def compare(results: dict[str, Array]) -> None:
            with np.errstate(all="ignore"):
                for name, before in held.items():
                    wanted = (before.astype(wide) * wide.type(number)).astype(dtype)
                    np.testing.assert_array_equal(results[name].astype(np.float64), wanted.astype(np.float64), err_msg=name)

        return Problem(given, {name: (array.shape, dtype, array) for name, array in held.items()}, call, compare)
