"""Measures alternatives to the tuning policy of an op at one shape: ``python -m benchmarks.tune OP SHAPE… [--field NAME=VALUE,…]``.

Every alternative replaces fields of the family's policies, is checked against what the chosen policies compute, and is timed on the device. Without a
GPU, the launches that each alternative would make on an H200 are printed instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from numba_baracuda.arrays import arrays
from numba_baracuda.core.errors import BaracudaError, InvalidProblem
from numba_baracuda.core.op import Launch, Target
from numba_baracuda.core.policy import Policy, of_family, reading
from numba_baracuda.core.registry import find
from numba_baracuda.plans.plan import target_of
from numba_baracuda.plans.tuning import using

from . import report
from .checks import Truth, complaint
from .run import message
from .timing import Events, Timing, set_count
from .tune_problems import CARD, SHAPES, Problem, launches_of, problem_of
from .values import duplicate, poison, wide

Read = dict[type[Policy], Policy]
SAME = "the same launches"


@dataclass(frozen=True)
class Change:
    """A value that replaces a policy's own."""

    policy: type[Policy]
    field: str
    value: Any

    def __str__(self) -> str:
        return f"{self.policy.__name__}.{self.field}={self.value}"


Alternative = tuple[Change, ...]


@contextmanager
def applied(alternative: Alternative) -> Iterator[None]:
    """Ops run with these changes inside the block."""
    with ExitStack() as stack:
        for change in alternative:
            stack.enter_context(using(change.policy, **{change.field: change.value}))
        yield


def chosen_policies(problem: Problem, target: Target) -> tuple[list[Launch], Read]:
    """The launches by the package's own policies, and the policies that their recipes read."""
    with reading() as found:
        return launches_of(problem, target), found


def changes_of(text: str, family: str, read: Read) -> list[Change]:
    """The changes that an argument ``[POLICY.]FIELD=VALUE,…`` stands for; without a policy, of each policy that the recipes read."""
    name, equals, values = text.partition("=")
    policy, dot, field = name.rpartition(".")
    known = of_family(family)
    if not equals or not values or not field:
        raise InvalidProblem(f"--field: got {text!r}, wants [POLICY.]FIELD=VALUE,…")
    if dot and policy not in known:
        raise InvalidProblem(f"--field: got policy {policy!r}, wants one of {', '.join(known)}")
    policies = [known[policy]] if dot else [each for each in read if field in _fields(each)]
    if not policies:
        fields = ", ".join(f"{each.__name__}.{one}" for each in read for one in _fields(each))
        raise InvalidProblem(f"--field: got field {field!r}, which no policy of this problem has; wants one of {fields}")
    return [Change(each, field, _value(each, field, value)) for each in policies for value in values.split(",")]


def _fields(policy: type[Policy]) -> dict[str, Any]:
    """The fields that a measurement may replace."""
    return {each.name: each for each in dataclasses.fields(policy) if not each.metadata.get("fixed")}


def _value(policy: type[Policy], field: str, text: str) -> Any:
    """A value of the field's type; ``replaced`` raises for wrong ones."""
    usual = getattr(policy, field, None)
    if isinstance(usual, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def neighbours(read: Read) -> list[Alternative]:
    """Alternatives without ``--field``: every field of the policies, one at a time, one value up and one down."""
    found: list[Alternative] = []
    for policy, values in read.items():
        for name, field in _fields(policy).items():
            now, choices = getattr(values, name), field.metadata.get("choices") or ()
            step, near = field.metadata.get("multiple", 1), list[Any]()
            if isinstance(now, bool):
                near = [not now]
            elif choices:
                at = choices.index(now)
                near = [*choices[max(at - 1, 0) : at], *choices[at + 1 : at + 2]]
            elif name.startswith("min_blocks"):
                near = [now - 1, now + 1] if now else []
            else:
                near = [now / 2, 2 * now] if isinstance(now, float) else [now // 2 // step * step, 2 * now]
            found += [(Change(policy, name, value),) for value in near if value]
    return found


def alternatives(problem: Problem, fields: Sequence[str], target: Target = CARD) -> tuple[list[Launch], list[tuple[Alternative, list[Launch] | str]]]:
    """The chosen launches, and each alternative with its own, or the reason why not. One without an effect is left out unless its policy is named."""
    chosen, read = chosen_policies(problem, target)
    family, named = find(problem.op).family, len(fields) > 0 and all("." in text.partition("=")[0] for text in fields)
    wanted = list(itertools.product(*[changes_of(text, family, read) for text in fields])) if fields else neighbours(read)
    found: list[tuple[Alternative, list[Launch] | str]] = []
    for alternative in wanted:
        try:
            with applied(alternative):
                made: list[Launch] | str = launches_of(problem, target)
        except BaracudaError:
            if fields:
                raise
            continue
        except Exception as error:  # from a recipe that does not support the values
            made = f"fails: {message(error)}"
        same = all(each.policy in read and getattr(read[each.policy], each.field) == each.value for each in alternative)
        if same or made == chosen:
            made = SAME
        if named or made != SAME:
            found.append((alternative, made))
    return chosen, found


def described(launch: Launch) -> str:
    """Kernel, grid and block of a launch."""
    blocks, threads, shared = launch.config
    resident = f", ≥ {launch.spec.min_blocks} resident" if launch.spec.min_blocks else ""
    return f"{launch.spec.kernel} {blocks:,} × {threads} threads, {shared:,} B shared{resident}"


def difference(launch: Launch, chosen: Launch | None) -> str:
    """A launch, and the constants and numbers in which it differs from the chosen one of the same kernel."""
    if chosen is None or launch.spec.factory != chosen.spec.factory:
        return described(launch)
    found = []
    for new, old in ((dict(launch.spec.constants), dict(chosen.spec.constants)), (launch.arguments, chosen.arguments)):
        found += [f"{name} {old[name]} → {new[name]}" if name in old else f"{name} {new[name]}" for name in new if new[name] != old.get(name)]
    return described(launch) + "".join(f"; {each}" for each in found)


def _lines(lines: Sequence[str]) -> Text:
    """The lines as text; equal ones once, with their number."""
    return Text("\n".join(line if number == 1 else f"{number} × {line}" for line, number in Counter(lines).items()))


def launch_table(problem: Problem, chosen: list[Launch], others: Sequence[tuple[Alternative, list[Launch] | str]]) -> Table:
    """A table of the launches of each alternative."""
    table = _table(f"{problem.op} {problem.id} on {CARD.arch}", "", "policy", "launches")
    table.add_row("*", "chosen", _lines(list(map(described, chosen))))
    for alternative, made in others:
        if isinstance(made, str):
            lines = [made]
        else:
            lines = [difference(launch, old) for launch, old in itertools.zip_longest(made, chosen) if launch and launch != old]
        table.add_row("", Text(", ".join(map(str, alternative))), _lines(lines))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name.endswith("us") or name == "of chosen" else "left")
    return table


class Measured:
    """A problem on the device: the chosen policy's result, and the times of alternatives."""

    def __init__(self, problem: Problem, xp: Any, events: Any, cache: int, repeats: int) -> None:
        self.problem, self.xp, self.events, self.repeats = problem, xp, events, repeats
        first = problem.make(xp)
        size = sum(spec.nbytes for spec in problem.specs.values())
        free = xp.cuda.runtime.memGetInfo()[0] + xp.get_default_memory_pool().free_bytes() if hasattr(xp, "cuda") else 1 << 30
        copies = set_count(size, cache, int(0.3 * free)) - 1
        self.sets = [first, *({name: duplicate(xp, array) for name, array in first.items()} for _ in range(copies))]
        self.outputs = [name for name, spec in problem.specs.items() if spec.output]
        self.wanted: dict[str, Any] = {}

    def run(self, alternative: Alternative = ()) -> tuple[Timing | None, str]:
        """The time, and how the result compares with that of the first run, which is the chosen policy's."""
        with applied(alternative):
            _, bind = self.problem.prepare(self.xp)
            calls = [bind(operands) for operands in self.sets]
            for name in self.outputs:
                poison(self.sets[0][name])
            calls[0]()
            verdict = self._compared()
            return (None if verdict.startswith("WRONG") else self.events(calls, self.repeats)), verdict

    def _compared(self) -> str:
        """Compares results. Other roundings may differ by the tolerance of a sum over the greatest extent, times the greatest element."""
        xp, found = self.xp, {name: self.sets[0][name] for name in self.outputs}
        if not self.wanted:
            self.wanted = {name: duplicate(xp, array) for name, array in found.items()}
            return "chosen"
        if all(bool((array.view("u1") == self.wanted[name].view("u1")).all()) for name, array in found.items()):
            return "same bits"
        terms = max(extent for spec in self.problem.specs.values() for extent in spec.shape)
        for name, array in found.items():
            value = wide(xp, self.wanted[name])
            scale = None if array.dtype.kind in "iub" else xp.broadcast_to(abs(value).max(), value.shape)
            wrong = complaint(xp, array, Truth(value, scale, terms))
            if wrong:
                return f"WRONG: {name}: {wrong}"
        return "rounds otherwise"


def time_table(problem: Problem, measured: Measured, others: Sequence[tuple[Alternative, list[Launch] | str]]) -> tuple[Table, int]:
    """The times of the chosen policy and of its alternatives, and how many of these were wrong."""
    table = _table(f"{problem.op} {problem.id}", "", "policy", "median us", "low us", "high us", "of chosen", "result")
    chosen, _ = measured.run()
    assert chosen is not None, "the chosen policy is what others are compared with"
    wrong = 0
    rows: list[tuple[str, str, Timing | None, str]] = [("*", "chosen", chosen, "")]
    for alternative, made in others:
        name, time = ", ".join(map(str, alternative)), None
        try:
            time, verdict = (None, made) if isinstance(made, str) else measured.run(alternative)
        except Exception as error:  # from the compiler or the driver: other alternatives still run
            verdict = f"fails: {message(error)}"
        wrong += verdict.startswith("WRONG")
        rows.append(("", name, time, verdict))
    for mark, name, each, verdict in rows:
        numbers = [f"{each.median:.2f}", f"{each.low:.2f}", f"{each.high:.2f}", f"{each.median / chosen.median:.1%}"] if each else [""] * 4
        table.add_row(mark, Text(name), *numbers, Text(verdict))
    return table, wrong


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", metavar="OP", help="name in numba_baracuda.OPS")
    shapes = "; ".join(f"{family}: {numbers}" for family, numbers in SHAPES.items())
    parser.add_argument("shape", nargs="+", type=int, metavar="SHAPE", help=shapes)
    parser.add_argument("--dtype", default="f32", help="of the values (default: %(default)s)")
    parser.add_argument("--index", default="i32", help="of ids (default: %(default)s)")
    parser.add_argument("--axis", type=int, default=-1, metavar="K", help="that is reduced or scanned (default: the last)")
    parser.add_argument("--any-order", action="store_true", help="with deterministic=False")
    field = "values of a field, of one policy or of all that the problem reads; several --field combine (default: every field, one step up and down)"
    parser.add_argument("--field", action="append", default=[], metavar="[POLICY.]NAME=VALUE,…", help=field)
    parser.add_argument("--repeats", type=int, default=25, metavar="N", help="samples of each time (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    screen = report.console()
    try:
        problem = problem_of(arguments.op, arguments.shape, arguments.dtype, arguments.index, arguments.axis, arguments.any_order)
        chosen, others = alternatives(problem, arguments.field, CARD if arrays.emulating() else target_of(0))
    except BaracudaError as error:
        screen.print(f"benchmarks.tune: {error}", markup=False)
        return 2
    if arrays.emulating():
        screen.print(launch_table(problem, chosen, others))
        screen.print("benchmarks.tune: times need a GPU, and NUMBA_BARACUDA_EMULATE unset", markup=False)
        return 0
    import cupy

    from numba_baracuda.runtime import driver

    table, wrong = time_table(problem, Measured(problem, cupy, Events(cupy), driver.l2_bytes(), arguments.repeats), others)
    screen.print(table)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
