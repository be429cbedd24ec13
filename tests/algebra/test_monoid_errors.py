"""What is wrong with users' monoids and their calls; the names that they get."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from user_monoids import LAST

import numba_baracuda as nb
from numba_baracuda.algebra.given import adopted

Array = Any

# ---------------------------------------------------------------- what is wrong


def _made(**changes: Any) -> nb.Monoid:
    return nb.Monoid(**{"name": "odd", "identity": (0.0,), "combine": lambda a, b: a + b} | changes)


class Thing:
    """What numba knows nothing of."""


THING = Thing()
WRONG: dict[str, tuple[Any, str]] = {
    "no monoid": ("sum", r"monoid is 'sum', wants a numba_baracuda.Monoid"),
    "a list": (_made(identity=[0.0]), r"monoid is Monoid\(name='odd', identity=\[0.0\].*, wants a tuple as identity, and functions"),
    "no name": (_made(name=""), "monoid's name is '', wants a text"),
    "texts": (_made(identity=("0",)), r"monoid 'odd': identity is \('0',\), wants a tuple of 1 to 4 numbers"),
    "nothing": (_made(identity=()), r"monoid 'odd': identity is \(\), wants a tuple of 1 to 4 numbers"),
    "five": (_made(identity=(0,) * 5), "monoid 'odd': identity holds 5 numbers, wants at most 4"),
    "fraction": (_made(identity=(0.5,), kind="i32"), "monoid 'odd': kind is i32, wants f32 or f64 for elements of float32"),
    "kind": (_made(kind="u8"), "monoid 'odd': kind is 'u8', wants one of 'f32', 'f64', 'i32', 'i64'"),
    "commutes": (_made(commutes=1), "monoid 'odd': commutes is 1, wants True or False"),
    "no combine": (_made(combine=None), r"monoid 'odd': combine is None, wants a Python function combine\(a, b\)"),
    "built in": (_made(combine=max), r"monoid 'odd': combine is <built-in function max>, wants a Python function combine\(a, b\)"),
    "one argument": (_made(combine=lambda a: a), r"monoid 'odd': combine takes \['a'\], wants combine\(a, b\)"),
    "keyword": (_made(lift=lambda x, *, y: x), r"monoid 'odd': lift takes \['x', 'y'\], wants lift\(x\)"),
    "finish": (_made(finish=lambda a, b, c: a), r"monoid 'odd': finish takes .*, wants finish\(state\) or finish\(state, count\)"),
    "no lift": (_made(identity=(0, 0), combine=lambda a, b: a), "monoid 'odd': lift is None, wants a function, as a state is 2 scalars"),
    "no finish": (
        _made(identity=(0, 0), combine=lambda a, b: a, lift=lambda x: (x, x)),
        "monoid 'odd': finish is None, wants a function, as a state is 2 scalars",
    ),
    "too many": (_made(combine=lambda a, b: (a, b)), r"monoid 'odd': combine gives UniTuple\(float32 x 2\), wants a number"),
    "too few": (
        _made(identity=(0, 0), combine=lambda a, b: a[0] + b[0], lift=lambda x: (x, x), finish=lambda s: s[0]),
        "monoid 'odd': combine gives float32, wants a tuple of 2 numbers",
    ),
    "a text": (_made(lift=lambda x: "x"), r"monoid 'odd': lift gives .*, wants a number"),
    "several results": (_made(finish=lambda state: (state, state)), r"monoid 'odd': finish gives UniTuple\(float32 x 2\), wants a number"),
    "untyped": (
        _made(combine=lambda a, b: a.real_part + b),
        "monoid 'odd': combine cannot be compiled for float32, float32: .*real_part.*; wants what numba.cuda compiles",
    ),
    "unknown name": (_made(lift=lambda x: undefined(x)), "monoid 'odd': lift cannot be compiled for float32: .*undefined"),  # noqa: F821
    "captured": (_made(lift=lambda x: x + THING.size), "monoid 'odd': lift uses THING, of type Thing, wants numbers, texts, tuples"),
    "a module": (_made(lift=lambda x: re.size(x)), "monoid 'odd': lift uses re, of type module, wants numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["segment_reduce", "reduce_axis", "scan_axis"])
def test_wrong_monoids(emulator: Kind, name: str, case: str) -> None:
    """Errors of ours that say what is wrong, before anything is written."""
    monoid, message = WRONG[case]
    x, out = np.ones((4, 3), np.float32), np.full((4, 3), 7, np.float32)
    with pytest.raises(nb.BaracudaError, match=f"^{name}: {message}"):
        _call(name, x, monoid, out)
    assert (out == 7).all()


def _call(name: str, x: Array, monoid: Any, out: Array) -> Any:
    if name == "segment_reduce":
        return nb.segment_reduce(x, np.arange(4), 4, monoid, out=out)
    return nb.reduce_axis(x, monoid, 0, out=out[:1]) if name == "reduce_axis" else nb.scan_axis(x, monoid, 0, out=out)


@pytest.mark.parametrize("name", ["segment_reduce", "reduce_axis", "scan_axis"])
def test_wrong_calls(emulator: Kind, name: str) -> None:
    x, out = np.ones((4, 3), np.float32), np.full((4, 3), 7, np.float32)
    _call(name, x, LAST, out.copy())
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: _call(name, x.astype(np.uint8), LAST, out), "element is u8, wants one of f16, bf16, f32, f64, i32, i64"),
        (lambda: _call(name, x, LAST, out[:, :2]), r"(y|out|output) has (shape|trailing axes)"),
        (lambda: _call(name, x, LAST, x), "overlaps"),
        (lambda: getattr(nb, name)(x), "missing a required argument"),
        (lambda: getattr(nb, name)(*([x, np.arange(4), 4, LAST] if name == "segment_reduce" else [x, LAST, 0]), colour=3), "colour"),
    ]
    if name == "segment_reduce":
        wrong += [
            (lambda: nb.segment_reduce(x, np.arange(4), 4, LAST, is_sorted=1), "is_sorted is 1, wants True or False"),
            (lambda: nb.segment_reduce(x, np.arange(4), 4, LAST, empty="identity"), "empty is 'identity', wants a number or None"),
            (lambda: nb.segment_reduce(x, np.arange(4), 4, LAST, empty=1e99), "empty is 1e.99, wants a number that f32 holds"),
            (lambda: nb.segment_reduce(x, np.arange(4) - 1, 4, LAST, check_ids=True), r"segment_ids\[0\] is outside"),
            (lambda: nb.segment_reduce(x, np.arange(4), None, LAST), "num_segments is None"),
        ]
    else:
        wrong += [
            (lambda: getattr(nb, name)(x, LAST, 2), "axis is 2, wants"),
            (lambda: getattr(nb, name)(x, LAST, 1, dtype="bool"), "dtype.* is bool, wants one of"),
        ]
    for call, message in wrong:
        with pytest.raises(nb.BaracudaError, match=f"^{name}: .*{message}"):
            call()
    assert (out == 7).all()


def test_what_the_emulator_does_not_know(emulator: Kind) -> None:
    gamma = _made(finish=lambda state: math.lgamma(state))
    with pytest.raises(nb.Unsupported, match=r"^reduce_axis: .*lgamma.*wants what the emulator knows"):
        nb.reduce_axis(np.ones((4, 3), np.float32), gamma, 0)
    with pytest.raises(nb.Unsupported, match=r"^segment_reduce: finish\(identity\) cannot be computed here: .*lgamma.*wants empty="):
        nb.segment_reduce(np.ones((4, 3), np.float32), np.arange(4), 4, gamma)


# ---------------------------------------------------------------- names


def scaled(factor: Any, power: int = 2) -> nb.Monoid:
    def lift(x: Any, times: int = power) -> Any:
        return x * factor * times

    return _made(lift=lift)


def test_names_say_what_a_monoid_is_made_of() -> None:
    def name(monoid: nb.Monoid, value: str = "f32") -> str:
        return adopted("reduce_axis", monoid, value).name

    assert name(scaled(2.0)) == name(scaled(2.0)) and re.fullmatch(r"user:odd:[0-9a-f]{32}", name(scaled(2.0)))
    others = [
        scaled(3.0), scaled(2), scaled(np.float32(2)), scaled(2.0, 3), _made(), _made(kind="f64"), _made(identity=(1.0,)), _made(commutes=True),
        _made(combine=lambda a, b: a * b), _made(finish=lambda s, n: s), _made(name="even"), _made(combine=lambda a, b: math.exp(a) + b),
        _made(combine=lambda a, b: math.log(a) + b),
    ]  # fmt: skip
    names = [name(each) for each in (scaled(2.0), *others)] + [name(scaled(2.0), "f64")]
    assert len(set(names)) == len(names)
    assert name(scaled(2.0), "f16") == name(scaled(2.0))


#: run twice, in two processes: the helper is a device function that captures a number
SCRIPT = """
from numba import cuda
import numba_baracuda as nb
from numba_baracuda import device
from numba_baracuda.algebra.given import adopted

SCALE = (1.5, 2)

@cuda.jit(device=True)
def helper(x):
    return x * SCALE[0]

def again(n):
    return again(n - 1) if n > 0 else n

print(adopted("x", nb.Monoid("m", (0.0,), lambda a, b: device.maximum(helper(a), b), lambda x: max([y for y in (x, again(x))])), "f32").name)
"""


def test_names_are_those_of_other_processes() -> None:
    told = [subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    changed = subprocess.run([sys.executable, "-c", SCRIPT.replace("1.5", "2.5")], capture_output=True, text=True, check=True).stdout
    assert told[0] == told[1] != changed and told[0].startswith("user:m:")
