"""An op's arguments as torch's dispatcher takes them: a schema from the signature of its function, and the way there and back."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core import registry
from ..core.dtypes import element
from ..core.errors import InvalidProblem, WrongArguments
from ..core.op import Op
from ..plans.signatures import CALL
from ..segment.descriptor import OrderedIds
from .index import IDS, IndexTensors, index_of, parts_of

#: arguments that decide on the outputs or the tags of an op: where one is True, torch has another op, with this at the end of its name
FLAGS = {"check_ids": "checked", "return_indices": "indices"}

_TENSORS = ("x", "y", "dy", "input", "output", "d_output", "segment_ids")
_MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class Argument:
    """How an argument is declared, as one argument of the schema or several, and converted from Python and back."""

    declared: tuple[str, ...]
    encode: Callable[[Any], tuple[Any, ...]] = lambda given: (given,)
    decode: Callable[..., Any] = lambda given: given


def _axes(given: Any) -> tuple[Any, ...]:
    return (None if given is None else [given] if isinstance(given, int) else list(given),)


def _axes_again(given: Any) -> Any:
    return None if given is None else given[0] if len(given) == 1 else tuple(given)


def _dtype(given: Any) -> tuple[Any, ...]:
    known = given is None or isinstance(given, torch.dtype)
    return (given if known else getattr(torch, element(given, name="dtype").numpy_name),)


def _empty(given: Any) -> tuple[Any, ...]:
    return (None, True) if isinstance(given, str) and given == "identity" else (given, False)


_TENSOR, _WANTED = Argument(("Tensor {}",)), Argument(("Tensor? {}=None",))
_FLAG = Argument(("bool {}={default}",))
_ARGUMENTS = {
    "segment_ids": Argument(("Tensor {}", *(f"Tensor? {name}=None" for name in IDS)), parts_of, index_of),
    "num_segments": Argument(("SymInt? {}=None",)),
    "input_shape": Argument(("SymInt[]? {}=None",), lambda given: (given,), lambda given: None if given is None else tuple(given)),
    "axis": Argument(("int {}=-1",)),
    "axes": Argument(("int[1]? {}",), _axes, _axes_again),
    "empty": Argument(("Scalar? {}=None", "bool identity=False"), _empty, lambda number, identity: "identity" if identity else number),
    "initial": Argument(("Scalar? {}=None",)),
    "correction": Argument(("float {}=1.0",), lambda given: (float(given),)),
    "ties": Argument(('str {}="{default}"',)),
    "dtype": Argument(("ScalarType? {}=None",), _dtype),
    "index_dtype": Argument(("ScalarType? {}=None",), _dtype, lambda given: "int64" if given is None else given),
}


class Schema:
    """The arguments of an op's function but those of its call, in the order of its signature: their *values* are what its methods take."""

    def __init__(self, op: Op) -> None:
        self.op, self.function = op, registry.function(op.name)
        parameters = {name: each for name, each in inspect.signature(self.function).parameters.items() if name not in CALL}
        self.names = list(parameters)
        self.positional = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters.values())
        self.needed = [name for name, each in parameters.items() if each.default is each.empty]
        self.defaults = {name: each.default for name, each in parameters.items() if name not in self.needed}
        self._keywords = self.names[self.positional :]
        self._usual = [self.defaults.get(name, _MISSING) for name in self._keywords]
        self._defaults = [self.defaults.get(name, _MISSING) for name in self.names]
        self._places = {name: k for k, name in enumerate(self.names)}
        self.tensors = sum(name in _TENSORS for name in self.names)  #: how many arguments are tensors; they come first
        self.flag = next((name for name in self.names if name in FLAGS), "")
        self.fallbacks: list[Any] = []  #: defaults in the dispatcher's form; it leaves out arguments that equal theirs
        self._arguments = [(name, self._argument(name)) for name in self.names if name != self.flag]
        self.signature = inspect.Signature([*parameters.values(), inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)])

    def _argument(self, name: str) -> Argument:
        if name in _ARGUMENTS:
            return _ARGUMENTS["axes" if name == "axis" and self.op.family == "reduce" else name]
        if name in _TENSORS:
            return _TENSOR if name in self.needed else _WANTED
        return _FLAG

    def declare(self, flagged: bool, out: bool) -> str:
        """The schema of an overload: with the flag set or not, with arguments for outputs or without.

        With outputs the first argument has another name, so that Inductor does not take the overload for a form of the other: it would call this one
        instead, and fail where extents are symbolic (torch 2.13).
        """
        name = f"{self.op.name}{f'_{FLAGS[self.flag]}' if flagged else ''}{'.out' if out else ''}"
        declared = [text.format(each, default=self.defaults.get(each)) for each, argument in self._arguments for text in argument.declared]
        last = max(k for k, text in enumerate(declared) if "=" not in text)  # what comes before has no default either
        declared = [text.partition("=")[0] for text in declared[:last]] + declared[last:]
        returned = ["Tensor"] * (2 if flagged and self.flag == "return_indices" else 1)
        if out:
            declared[0] = f"{declared[0].partition(' ')[0]} operand"
            returned = [f"Tensor({letter}!)" for letter, _ in zip("ab", returned, strict=False)]
            declared += ["*", *(f"{kind} {given}" for kind, given in zip(returned, ("out", "out_indices"), strict=False))]
        result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
        return f"{name}({', '.join(declared)}) -> {result}"

    def values(self, given: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        """The values of a call; raises for an argument that is missing or unknown."""
        passed = len(given)
        if passed > self.positional:
            raise WrongArguments(f"{self.op.name}: got {passed} arguments without a name, wants {', '.join(self.names[: self.positional])}")
        found = [*given, *self._defaults[passed:]]
        for name, each in options.items():
            if self._places.get(name, -1) < passed:
                raise WrongArguments(f"{self.op.name}: got an argument {name}, wants {', '.join(self.names)} or out, once each")
            found[self._places[name]] = each
        for name in self.needed:
            if found[self._places[name]] is _MISSING:
                raise WrongArguments(f"{self.op.name}: {name} is missing, wants {', '.join(self.needed)}")
        return found

    def flagged(self, values: list[Any]) -> bool:
        """Whether the op's flag is set."""
        if not self.flag:
            return False
        value = values[self.names.index(self.flag)]
        if value is not True and value is not False:
            raise InvalidProblem(f"{self.op.name}: {self.flag} is {value!r}, wants True or False")
        return value

    def encode(self, values: list[Any]) -> list[Any]:
        """The values as the dispatcher takes them."""
        named = dict(zip(self.names, values, strict=True))
        if "num_segments" in named and named["num_segments"] is None and isinstance(named["segment_ids"], OrderedIds):
            named["num_segments"] = named["segment_ids"].num_segments
        found: list[Any] = []
        for name, argument in self._arguments:
            found.extend(argument.encode(named[name]))
        return found

    def decode(self, given: tuple[Any, ...], flagged: bool) -> list[Any]:
        """The values of what the dispatcher hands over."""
        named: dict[str, Any] = {self.flag: flagged}
        left = iter([*given, *self.fallbacks[len(given) :]])
        for name, argument in self._arguments:
            named[name] = argument.decode(*[next(left) for _ in argument.declared])
        ids = named.get("segment_ids")
        if isinstance(ids, IndexTensors):
            ids.num_segments = named["num_segments"] if named.get("num_segments") is not None else named["d_output"].shape[0]
        return [named[name] for name in self.names]

    def call(self, values: Sequence[Any], out: Any = None) -> Any:
        """Calls the op's own function."""
        keywords = values[self.positional :]
        if out is None and all(map(operator.is_, keywords, self._usual)):
            return self.function(*values[: self.positional])
        options = {name: each for name, each, usual in zip(self._keywords, keywords, self._usual, strict=True) if each is not usual}
        if out is not None:
            options["out"] = out
        return self.function(*values[: self.positional], **options)
