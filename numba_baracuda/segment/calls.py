"""The functions that users call: they say which problem the arrays pose, and :mod:`..plans.calls` runs its plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.views import View, spell
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import MAX_RANK, Op
from ..core.options import flag, whole
from ..plans import signatures
from ..plans.calls import Calls, Problem, Results
from ..plans.preference import PlanPreference
from .descriptor import OrderedIds, SegmentDescriptor, needs_segments, part_names

#: keyword -> field of the descriptor
_FIELDS = {"empty": "empty", "correction": "correction", "ties": "ties", "dtype": "result"}
#: defaults of the keywords that only some ops have
DEFAULTS = {"correction": 1, "ties": "first", "dtype": None}


def _rows(view: View, op: Op) -> tuple[int, int]:
    """Leading extent and product of the others."""
    shape = view.shape
    if not shape or len(shape) > MAX_RANK:
        error = InvalidProblem if not shape else Unsupported
        raise error(f"{op.name}: {view.name} has {len(shape)} axes, wants 1 to {MAX_RANK}")
    columns = 1
    for extent in shape[1:]:
        columns *= extent
    return shape[0], columns


def number_of_segments(op: Op, given: Any, index: OrderedIds | None) -> Any:
    """The number that the caller gives, or that of the index; they must be equal."""
    if given is not None and type(given) is not int:
        given = whole(op.name, "num_segments", given, 0)
    if index is None:
        return given
    if given is not None and given != index.num_segments:
        raise InvalidProblem(f"{op.name}: num_segments is {given}, wants {index.num_segments} as segment_ids, a SegmentIndex, says")
    return index.num_segments


Describe = Callable[..., SegmentDescriptor]


def _describe(op: Op, describe: Describe, views: Sequence[View], segments: int | None, form: str, options: dict[str, Any]) -> SegmentDescriptor:
    """The problem of the inputs, the last of which are the ids; ``form`` is the descriptor form of an index, or ""."""
    first, ids = views[0], views[-1]
    extent, columns = _rows(first, op)
    counted = [view for operand, view in zip(op.operands, views, strict=False) if operand.axes[0] == "num_inputs"]
    rows = _rows(ids if form else counted[0], op)[0]
    bounded = segments is not None or needs_segments(op)
    if segments is None:
        if bounded and op.operands[0].axes[0] != "num_segments":
            way = "wants the number of segments; finding it in segment_ids would wait for the device"
            raise InvalidProblem(f"{op.name}: num_segments is None, {way}")
        segments = extent
    if first.element in op.elements and ids.element not in op.indices:
        got, wants = spell(BY_NAME[ids.element].numpy_name, ids.shape), " or ".join(BY_NAME[name].numpy_name for name in op.indices)
        raise Unsupported(f"{op.name}: segment_ids is {got}, wants {wants}")
    named: dict[str, Any] = {field: options[name] for name, field in _FIELDS.items() if name in options}
    named |= {"check_ids": options["check_ids"], "indexed": form, "bounded": bounded}
    return describe(op.name, rows, columns, segments, first.element, ids.element, **named)


def function_of(op: Op, describe: Describe = SegmentDescriptor) -> Callable[..., Any]:
    """The function of an op: its inputs in order, then the number of segments unless an input has it. ``describe`` makes its descriptors."""
    *inputs, output = op.operands
    names, most = [operand.name for operand in inputs], len(inputs)
    from_input = "num_segments" in (inputs[0].axes[0], inputs[1].axes[0])
    positional = dict.fromkeys(names, signatures.NEEDED) | ({} if from_input else {"num_segments": None})
    keywords: dict[str, Any] = {"empty": None} if output.axes[0] == "num_segments" else {}
    keywords |= {"check_ids": False, "deterministic": True}
    keywords |= {name: DEFAULTS[name] for name in op.traits["keywords"]}

    @functools.cache
    def calls_of(form: str) -> Calls:
        """The calls with an array of ids, or with an index of this form."""

        def problem(views: list[View], sizes: tuple[int, ...], options: dict[str, Any]) -> Problem:
            descriptor = _describe(op, describe, views[:most], sizes[0] if sizes else None, form, options)
            return descriptor, PlanPreference(deterministic=flag(op.name, "deterministic", options["deterministic"]))

        return Calls(op, [*names, *part_names(op, form)], [output.name], problem, results, fixed=slice(1, None))

    def results(descriptor: SegmentDescriptor, views: list[View], options: dict[str, Any]) -> Results:
        return (((getattr(descriptor, output.axes[0]), *views[0].shape[1:]), descriptor.result_of(op)),)

    of_arrays = calls_of("")

    def run(given: tuple[Any, ...], options: dict[str, Any], chosen: Any, out: Any, stream: Any, workspace: Any) -> Any:
        operands, calls, index, segments = given[:most], of_arrays, None, None if from_input else given[most]
        if isinstance(operands[-1], OrderedIds):
            *others, index = operands
            form = index.descriptor_form
            operands, calls = (*others, *map(index.view_of, ("segment_ids", *part_names(op, form)))), calls_of(form)
        if index is not None or (segments is not None and type(segments) is not int):
            operands = calls.read(operands)  # errors of arrays come first
            segments = number_of_segments(op, segments, index)
        sizes = () if segments is None else (segments,)
        return calls(operands, sizes, chosen, options, None if out is None else (out,), stream, workspace)[0]

    return signatures.function_of(op, run, positional, keywords, _doc(op))


_AXES = {"num_inputs": "N", "num_segments": "S", "embedding_dim": "…"}
_DOC = """{formula}

Shapes: {shapes}; the trailing axes may be any number up to rank 8, and none. Any operand may be a strided view. Values: {values}; ids: {indices},
or a ``SegmentIndex``, with which nothing is sorted or counted again.
{notes}
Ids outside [0, S) are dropped. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes. ``check_ids=True`` waits
for the device and raises ``InvalidProblem`` at the first id out of range or, for sorted ops, the first descent; other calls never wait. Variants:
{variants}.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have.
"""


def _doc(op: Op) -> str:
    values = ", ".join(BY_NAME[name].numpy_name for name in op.elements)
    indices = ", ".join(BY_NAME[name].numpy_name for name in op.indices)
    shapes = ", ".join(f"``{operand.name}`` [{', '.join(_AXES[axis] for axis in operand.axes)}]" for operand in op.operands)
    variants = "; ".join(f"``{variant.name}``{'' if variant.deterministic else ' with ``deterministic=False``'}" for variant in op.variants)
    notes = op.traits["notes"] + ("" if needs_segments(op) else " Without ``num_segments`` every id of 0 or more is in range.")
    return _DOC.format(formula=op.formula, shapes=shapes, values=values, indices=indices, notes=notes, variants=variants)
