"""Ranks that disagree on a call get an error on every rank, before any array is exchanged."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..core.errors import BaracudaError, InvalidProblem, Unsupported
from .communicator import Communicator


class Call(NamedTuple):
    """What a rank says of its call: texts or numbers that are the ``same`` on all ranks, and some that are its ``own``."""

    same: dict[str, Any]
    own: Any = None


_agreed: weakref.WeakKeyDictionary[Any, dict[Any, list[Any]]] = weakref.WeakKeyDictionary()


def agree(op: str, comm: Communicator, key: Any, describe: Callable[[], Call]) -> list[Any]:
    """What each rank says as its own of a call, once all say the same otherwise.

    Raises on every rank where they differ, and where ``describe`` raises on one. Ranks exchange texts, for which the host waits, at the first call
    with a ``key``; later ones return at once.
    """
    known = _agreed.setdefault(comm, {})
    if (op, key) not in known:
        known[op, key] = _exchanged(op, comm, describe)
    return known[op, key]


@contextlib.contextmanager
def telling(op: str, *comms: Communicator) -> Iterator[None]:
    """Tells all ranks what is raised inside, before a rank can describe its call: the exchanges that they wait in, one after another, are ``comms``.

    Only where ranks have not agreed on any call of the op, since they may not wait at later ones: this rank then raises alone.
    """
    try:
        yield
    except BaracudaError as failure:
        if not any(name == op for name, _ in _agreed.get(comms[0], ())):
            for comm in comms:
                comm.exchange(json.dumps({"op": op} | _failed(failure)))
        raise


def _failed(failure: BaracudaError) -> dict[str, Any]:
    """What a rank says of its call that has failed."""
    return {"error": (type(failure).__name__, str(failure))}


def _exchanged(op: str, comm: Communicator, describe: Callable[[], Call]) -> list[Any]:
    failure: BaracudaError | None = None
    said: dict[str, Any] = {"op": op}
    try:
        said |= describe()._asdict()
    except BaracudaError as error:
        failure = error
        said |= _failed(error)
    every = [json.loads(each) for each in comm.exchange(json.dumps(said))]
    if failure is not None:
        raise failure
    for rank, each in enumerate(every):
        if "error" in each:
            kind, text = each["error"]
            raise (Unsupported if kind == "Unsupported" else InvalidProblem)(f"rank {rank}: {text}")
    first = {"the call": every[0]["op"], **every[0]["same"]}
    for rank, each in enumerate(every):
        for name, got in {"the call": each["op"], **each["same"]}.items():
            wants = first.get(name)
            if got != wants:
                raise InvalidProblem(f"{op}: {name} is {_text(got)} on rank {rank}, wants {_text(wants)}, as on rank 0")
    return [each["own"] for each in every]


def _text(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)
