"""Each op in ``torch.ops.numba_baracuda``: its overloads, what they run, their fakes and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd import forward_ad

from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Op
from . import fakes
from .schema import Schema

NAMESPACE = "numba_baracuda"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
#: tags of what waits for the device, and of overloads that write to ``out``
_WAITS, _OUT = ([getattr(torch.Tag, name)] if hasattr(torch.Tag, name) else [] for name in ("cudagraph_unsafe", "out"))
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._are_functorch_transforms_active
_ROLES = {"input": "x", "output": "y", "d_output": "dy"}


def plain(tensor: Any) -> bool:
    """Whether a tensor has memory of its own, as far as its type says."""
    return type(tensor) in _PLAIN and not tensor.is_meta


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any], out: bool = False) -> tuple[Any, Callable[..., Any]]:
    """The overload of a schema, and its call below autograd: ``run`` at once where tensors have memory.

    With ``out`` there is an overload of that name, too, which takes a tensor for each result by keyword; ``run`` gets all of them as ``outs``.
    """
    name = schema.partition("(")[0]
    overload = _implement(schema, name, run, fake, _TAGS)
    if out:
        _define_out(schema, name, run)

    def compute(*values: Any) -> Any:
        if all(plain(each) for each in values if isinstance(each, torch.Tensor)) and not _modes():
            return run(*values)
        with torch._C._AutoDispatchBelowAutograd():
            return overload(*values)

    return overload, compute


def _implement(schema: str, name: str, run: Callable[..., Any], fake: Callable[..., Any], tags: Sequence[Any]) -> Any:
    """Defines an overload and returns it."""
    LIBRARY.define(schema, tags=tags)
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.numba_baracuda, packet), overload or "default")


def _define_out(schema: str, name: str, run: Callable[..., Any]) -> None:
    """Defines the overload with results by keyword. See :meth:`.Schema.declare` for the name of the first argument."""
    arguments, _, results = schema.partition("(")[2].rpartition(") -> (")
    names = [each.split()[1] for each in results.removesuffix(")").split(",")]
    kinds = [f"Tensor({letter}!)" for letter, _ in zip("abcd", names, strict=False)]
    by_keyword = ", ".join(f"{kind} {each}" for kind, each in zip(kinds, names, strict=True))
    first, _, others = arguments.partition(",")
    declared = f"{name}.out({first.partition(' ')[0]} operand,{others}, *, {by_keyword}) -> ({', '.join(kinds)})"

    def write(*values: Any, **outs: Any) -> tuple[Any, ...]:
        run(*values, outs=tuple(outs.values()))
        return tuple(outs.values())

    overload = _implement(declared, f"{name}.out", write, lambda *values, **outs: tuple(outs.values()), [*_TAGS, *_OUT])

    _on_autograd(f"{name}.out", overload, lambda *values, **outs: refuse_out(name))


def _on_autograd(name: str, overload: Any, recorded: Callable[..., Any]) -> None:
    """Has ``recorded`` serve the overload's calls that autograd must record, with the same arguments."""

    def run(keys: Any, *values: Any, **outs: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*values, **outs):
            return recorded(*values, **outs)
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keys & torch._C._after_autograd_keyset, *values, **outs)

    LIBRARY.impl(name, run, "Autograd", with_keyset=True)


def refuse_out(name: str) -> NoReturn:
    """Raises for a call with ``out=`` that autograd would have to record."""
    raise InvalidProblem(f"{name}: out= has no gradient, but an argument requires grad; wants no out, or a call under torch.no_grad()")


def record(overload: Any, function: Any) -> None:
    """Has the overload's calls recorded by an ``autograd.Function`` where a tensor requires grad."""
    _on_autograd(overload._schema.name.partition("::")[2], overload, function.apply)


def stem_of(name: str) -> str:
    """What an op and its gradient compute, whatever the family."""
    return name.removesuffix("_backward").removeprefix("unsorted_").removeprefix("segment_").removeprefix("reduce_")


class Operator:
    """An op as torch calls it. ``function`` is the ``autograd.Function`` of its gradient, once :mod:`.autograd` has made it."""

    def __init__(self, op: Op) -> None:
        self.op, self.schema = op, Schema(op)
        self.roles = [self.role(name) for name in self.schema.names]
        self.stem = stem_of(op.name)
        self.backward = op.name.endswith("_backward")
        self.differentiable = self.backward or op.backward is not None
        self.function: Any = None
        self.record: Callable[..., Any] = self._without_gradient
        self.eager: Callable[..., Any] = self._without_gradient
        flags = (False, True) if self.schema.flag else (False,)
        self.overloads = {(flagged, out): self._define(flagged, out) for flagged in flags for out in (False, True)}

    @staticmethod
    def role(name: str) -> str:
        """What an argument is for, by one word for all families: ``x`` is an input, ``y`` its result, ``dy`` the gradient of that."""
        return _ROLES.get(name, name)

    def _define(self, flagged: bool, out: bool) -> Any:
        """Defines an overload."""
        schema = self.schema
        declared = schema.declare(flagged, out)
        name, tags = declared.partition("(")[0], [*_TAGS, *(_OUT if out else ())]
        if flagged and schema.flag == "check_ids":
            tags += _WAITS

        def run(*given: Any, **outs: Any) -> Any:
            made = _one(tuple(outs.values()))
            return schema.call(schema.decode(given, flagged), made)

        def fake(*given: Any, **outs: Any) -> Any:
            return _one(tuple(outs.values())) if outs else fakes.outputs(self.op, dict(zip(schema.names, schema.decode(given, flagged), strict=True)))

        found = _implement(declared, name, run, fake, tags)
        schema.fallbacks = [each.default_value for each in found._schema.arguments if not each.kwarg_only]

        def recorded(*given: Any, **outs: Any) -> Any:
            if out:
                refuse_out(self.op.name)
            return self.record(*schema.decode(given, flagged))

        _on_autograd(name, found, recorded)
        return found

    def differentiate(self, function: Any, eager: Any) -> None:
        """Gives the op its gradient: ``eager`` is for tensors with memory, ``function`` for all others and for transforms."""
        self.function = function
        bases: list[Any] = [super(torch.autograd.Function, each) for each in (function, eager)]  # apply of Function itself binds a signature
        self.record, self.eager = (base.apply for base in bases)

    def _without_gradient(self, *values: Any) -> Any:
        raise NotImplementedError(f"{self.op.name} has been given no gradient yet")

    def traced(self, values: Sequence[Any], outs: tuple[Any, ...] = ()) -> Any:
        """Calls the overload, as compilers and tensors without memory want it."""
        overload = self.overloads[self.schema.flagged(list(values)), bool(outs)]
        return overload(*self.schema.encode(list(values)), **dict(zip(("out", "out_indices"), outs, strict=False)))

    def compute(self, *values: Any) -> Any:
        """The results without a gradient."""
        if self._look(values)[0]:
            return self.schema.call(values)
        self._refuse_nested(values)
        with torch._C._AutoDispatchBelowAutograd():
            return self.traced(values)

    def public(self) -> Callable[..., Any]:
        """The function that users call."""
        function, values, look, on = self.schema.function, self.schema.values, self._look, self.on

        def run(*given: Any, **options: Any) -> Any:
            out = options.pop("out", None) if options else None
            if not options and out is None and not torch.compiler.is_compiling():
                plain, recorded = look(given)
                if plain:
                    return self.eager(*values(given, options)) if recorded else function(*given)
            return on(values(given, options), out)

        return run

    def call(self, named: dict[str, Any]) -> Any:
        """A call with those of these values, by role, that the op has."""
        defaults = self.schema.defaults
        return self.on([named[role] if role in named else defaults[name] for name, role in zip(self.schema.names, self.roles, strict=True)])

    def on(self, values: Sequence[Any], out: Any = None) -> Any:
        """The results of a call with these values: by way of a gradient where one is recorded, of the dispatcher where tensors have no memory."""
        if not torch.compiler.is_compiling():
            plain, recorded = self._look(values)
            if recorded or _transforms():
                if out is not None:
                    refuse_out(self.op.name)
                return (self.eager if plain else self.function.apply if _transforms() else self.record)(*values)
            if plain:
                return self.schema.call(values, out)
            self._refuse_nested(values)
        return self.traced(values, () if out is None else out if isinstance(out, tuple) else (out,))

    def _look(self, values: Sequence[Any]) -> tuple[bool, bool]:
        """Whether the op can run on the memory of these tensors, and whether autograd records a call with them."""
        plain, recorded = True, False
        for each in values[: self.schema.tensors]:
            kind = type(each)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                recorded = recorded or each.requires_grad
            elif isinstance(each, torch.Tensor):
                plain, recorded = False, recorded or each.requires_grad
        plain = plain and not (getattr(next(iter(values), None), "is_meta", False) or _modes() or _transforms())
        return plain, self.differentiable and ((recorded and torch.is_grad_enabled()) or forward_ad._current_level >= 0)

    def _refuse_nested(self, values: Sequence[Any]) -> None:
        for name, each in zip(self.schema.names, values[: self.schema.tensors], strict=False):
            if isinstance(each, torch.Tensor) and each.is_nested:
                raise Unsupported(f"{self.op.name}: {name} is a nested tensor, wants a strided one, such as its .values()")


def _one(outs: tuple[Any, ...]) -> Any:
    return outs if len(outs) > 1 else outs[0] if outs else None
