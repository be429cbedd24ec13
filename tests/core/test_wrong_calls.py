"""Every argument of every op with every kind of wrong value: one of our errors, which says what is wrong; nothing is written; the next call works."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from samples import name_of
from wrong_values import Call, Thing, Wrong, good_call, wrong_calls

import numba_baracuda as nb
from numba_baracuda.core.op import Op

EVERY = pytest.mark.parametrize("op", list(nb.OPS.values()), ids=name_of)


def held(arguments: dict[str, Any]) -> dict[str, bytes]:
    """The bytes of all plain arrays."""
    return {name: each.tobytes() for name, each in arguments.items() if isinstance(each, np.ndarray) and not each.dtype.hasobject}


def result(call: Call) -> bytes:
    """The bytes of what a good call writes."""
    outputs = {name: each.copy() for name, each in call.arguments.items() if name == "out" or name.startswith("grad")}
    call.function(**call.arguments | outputs)
    return b"".join(each.tobytes() for each in outputs.values())


def fault(call: Call, name: str, wrong: Wrong) -> str:
    """What is wrong with the refusal of a wrong call, "" if nothing is."""
    arguments = call.arguments | {name: wrong.value}
    before, what = held(arguments), f"{name}={' '.join(repr(wrong.value).split()):.60}"
    try:
        call.function(**arguments)
    except nb.BaracudaError as error:
        said = str(error)
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    else:
        return f"{what} is accepted"
    blamed = wrong.blamed or (name,)
    if held(arguments) != before:
        return f"{what} changes an array before it is refused"
    if not said.startswith(f"{call.op.name}: ") or "wants" not in said:
        return f"{what} is not refused by op and wish: {said}"
    if not any(each in said for each in blamed) or not any(each in said for each in wrong.told):
        return f"{what} is not named, or not what was given: {said}"
    return ""


@EVERY
def test_wrong_values(emulator: Kind, op: Op) -> None:
    """After a good call, whose plans a wrong one might find: True equals 1, and 1.0 does."""
    call = good_call(op)
    right = result(call)
    faults = [fault(call, name, wrong) for name, wrong in wrong_calls(call)]
    assert not any(faults), "\n".join(filter(None, faults))
    assert result(call) == right


@EVERY
def test_wrong_arguments(emulator: Kind, op: Op) -> None:
    """Missing, unknown, given twice, or too many: errors of ours that are ``TypeError``s, too."""
    call = good_call(op)
    names = list(inspect.signature(call.function).parameters)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [((), call.arguments | {"colour": 3}, "colour")]
    for name in call.required:
        wrong.append(((), {each: value for each, value in call.arguments.items() if each != name}, name))
    first = next(iter(call.arguments.values()))
    wrong += [((first,), call.arguments, names[0]), ((first,) * 40, {}, "many")]
    for given, options, name in wrong:
        before = held(options)
        with pytest.raises(nb.InvalidProblem, match=rf"^{op.name}: .*{name}.*, wants {', '.join(names[:2])}") as caught:
            call.function(*given, **options)
        assert isinstance(caught.value, TypeError) and held(options) == before


def test_the_table_is_large() -> None:
    assert sum(1 for op in nb.OPS.values() for _ in wrong_calls(good_call(op))) >= 700


def test_a_thing_is_nothing_else() -> None:
    assert repr(Thing()) == "a Thing"
