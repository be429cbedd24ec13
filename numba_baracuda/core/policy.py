"""Tuning policies: tile sizes, thresholds and resident blocks as named fields, and how a measurement replaces them for a while.

Every family has a ``policy.py`` with a frozen dataclass for each kernel, or for several that share their numbers, and functions that pick the policy
of a problem. Fields that mean the same have the same name in every family, after the tuning policies of CUB:

``threads_per_block``; ``items_per_thread``, the rows or vectors that a thread has in flight at a time; ``vector_bytes``, the bytes of the widest load
or store; ``min_blocks_per_multiprocessor``, the resident blocks that the compiler must leave registers for, 0 where it decides;
``grid_blocks_per_multiprocessor``, the blocks for each multiprocessor that a grid should have; ``shared_bytes_per_block``;
``contiguous_bytes``, the contiguous bytes of a row that a block loads or stores together.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from .errors import InvalidProblem
from .lazy import load

P = TypeVar("P", bound="Policy")
_ROOT = __name__.partition(".")[0]
THREADS = (32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Policy:
    """The tuning policy of one kernel, or of several; ``tuned`` is what recipes read."""


def compiled(value: Any, choices: tuple[Any, ...] = ()) -> Any:
    """A field that kernels compile in: a constant of their factories, which a spec names only where a measurement replaces the field."""
    return field(default=value, metadata={"compiled": True, "choices": choices})


def fixed(value: Any) -> Any:
    """A field that kernels compile in and no measurement can replace: only an edit of the policy changes it."""
    return field(default=value, metadata={"fixed": True})


def chosen(value: Any, *choices: Any) -> Any:
    """A field that has one of a few values."""
    return field(default=value, metadata={"choices": choices})


def multiple(value: int, of: int) -> Any:
    """A field that is a multiple of a number."""
    return field(default=value, metadata={"multiple": of})


_replaced: dict[type[Policy], dict[str, Any]] = {}
_read: list[dict[type[Policy], Policy]] = []


def tuned(policy: P) -> P:
    """The policy of a problem, with the fields that a measurement replaces."""
    other = _replaced.get(type(policy))
    made = replace(policy, **other) if other else policy
    for each in _read:
        each[type(policy)] = made
    return made


def constants(policy: Policy) -> dict[str, Any]:
    """What a spec must name of a policy: the fields that kernels compile in and that a measurement replaces."""
    other = _replaced.get(type(policy), {})
    return {each.name: other[each.name] for each in fields(policy) if each.metadata.get("compiled") and each.name in other}


def of_family(family: str) -> dict[str, type[Policy]]:
    """The policies of a family by name."""
    found = vars(load(f"{_ROOT}.{family}.policy")).values()
    return {each.__name__: each for each in found if isinstance(each, type) and issubclass(each, Policy) and each is not Policy}


@contextlib.contextmanager
def replaced(policy: type[Policy], **values: Any) -> Iterator[None]:
    """Recipes get these values inside the block. Plans that exist keep theirs; :func:`numba_baracuda.plans.tuning.using` drops them."""
    for name, value in values.items():
        _check(policy, name, value)
    before = _replaced.get(policy)
    _replaced[policy] = {**(before or {}), **values}
    try:
        yield
    finally:
        if before is None:
            del _replaced[policy]
        else:
            _replaced[policy] = before


@contextlib.contextmanager
def reading() -> Iterator[dict[type[Policy], Policy]]:
    """Policy class → policy, for those that are read inside the block; the last one read stays."""
    found: dict[type[Policy], Policy] = {}
    _read.append(found)
    try:
        yield found
    finally:
        _read.remove(found)


def _check(policy: type[Policy], name: str, value: Any) -> None:
    """Raises for a field that is unknown or fixed, and for a value that it cannot have."""
    known = {each.name: each for each in fields(policy)}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidProblem(f"{policy.__name__}: got field {name!r}, wants one of {', '.join(known)}{hint}")
    if known[name].metadata.get("fixed"):
        raise InvalidProblem(f"{policy.__name__}.{name} is compiled into its kernels, wants an edit of {policy.__module__}")
    choices, usual = known[name].metadata.get("choices"), getattr(policy, name)
    if choices and value not in choices:
        raise InvalidProblem(f"{policy.__name__}.{name} is {value!r}, wants one of {', '.join(map(str, choices))}")
    kind: type[Any] = float if isinstance(usual, float) else type(usual)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    least = 0 if not usual or name == "min_blocks_per_multiprocessor" else 1
    fits = number and value >= 0 if kind is float else type(value) is kind and (kind is bool or value >= least)
    if not fits:
        wants = {bool: "True or False", float: "a number of 0 or more"}.get(kind, f"a whole number of {least} or more")
        raise InvalidProblem(f"{policy.__name__}.{name} is {value!r}, wants {wants}")
    step = known[name].metadata.get("multiple", 1)
    if step > 1 and value % step:
        raise InvalidProblem(f"{policy.__name__}.{name} is {value!r}, wants a multiple of {step}")
