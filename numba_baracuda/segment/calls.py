"""The functional form of the family: views of the arrays, a descriptor of the views, and a run of its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import allocation, arrays, streams
from ..arrays.views import View, remember, spell
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import MAX_RANK, Op
from ..core.options import flag, whole
from ..plans import plan, signatures
from ..plans.preference import PlanPreference
from .descriptor import OrderedIds, SegmentDescriptor, needs_segments

_plans: dict[Any, plan.Plan] = plan.memo()
#: keywords, and the fields of descriptors that they are
_FIELDS = {"empty": "empty", "correction": "correction", "ties": "ties", "dtype": "result"}
_DEFAULTS = {"correction": 1, "ties": "first", "dtype": None}


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


def _number_of_segments(op: Op, given: Any, index: OrderedIds | None) -> Any:
    """The number that the caller gave, or that of the index; the two may not differ."""
    if given is not None and type(given) is not int:
        given = whole(op.name, "num_segments", given, 0)
    if index is None:
        return given
    if given is not None and given != index.num_segments:
        raise InvalidProblem(f"{op.name}: num_segments is {given}, wants {index.num_segments} as segment_ids, a SegmentIndex, says")
    return index.num_segments


Describe = Callable[..., SegmentDescriptor]


def _describe(
    op: Op, describe: Describe, views: Sequence[View], segments: int | None, index: OrderedIds | None, options: dict[str, Any]
) -> SegmentDescriptor:
    first, ids = views[0], views[-1]
    extent, columns = _rows(first, op)
    counted = [view for operand, view in zip(op.operands, views, strict=False) if operand.axes[0] == "num_inputs"]
    rows = _rows(counted[0] if index is None else ids, op)[0]
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
    form = index.descriptor_form if index is not None else ""
    named |= {"check_ids": options["check_ids"], "indexed": form, "bounded": bounded}
    return describe(op.name, rows, columns, segments, first.element, ids.element, **named)


def call(op: Op, describe: Describe, labels: Sequence[Any], given: Sequence[Any], num_segments: Any, options: dict[str, Any], chosen: Any) -> Any:
    """Views, plan, output, run. ``labels`` name op and operand for errors; ``chosen`` is a key of the options."""
    index = given[-1] if isinstance(given[-1], OrderedIds) else None
    views = [arrays.read(array, at) for array, at in zip(given[:-1], labels, strict=False)]
    views.append(index.view_of("segment_ids") if index is not None else arrays.read(given[-1], labels[len(given) - 1]))
    first, output = views[0], op.operands[-1]
    segments = _number_of_segments(op, num_segments, index)
    form = "" if index is None else index.descriptor_form
    key = (op.name, describe, *[view.form for view in views], segments, form, chosen)
    made = _plans.get(key)
    if made is None:
        descriptor = _describe(op, describe, views, segments, index, options)
        preference = PlanPreference(deterministic=flag(op.name, "deterministic", options["deterministic"]))
        made = remember(_plans, key, plan.select(descriptor, preference, device=first.device))
    handle = streams.stream_handle(options["stream"], first, op.name)
    out = options["out"]
    if out is None:
        out = allocation.empty(first, (getattr(made.descriptor, output.axes[0]), *first.shape[1:]), made.descriptor.result_of(op), handle)
    if index is not None:
        views += made.parts_of(index)
    views.append(arrays.read(out, labels[-1]))
    made.execute(views, handle, options["workspace"])
    return out


def function_of(op: Op, describe: Describe = SegmentDescriptor) -> Callable[..., Any]:
    """The function of an op: its inputs in order, then the number of segments unless an input has it. ``describe`` makes its descriptors."""
    *inputs, output = op.operands
    labels = [(op.name, operand.name, "") for operand in op.operands]
    from_input = "num_segments" in (inputs[0].axes[0], inputs[1].axes[0])
    positional = dict.fromkeys((operand.name for operand in inputs), signatures.NEEDED) | ({} if from_input else {"num_segments": None})
    keywords: dict[str, Any] = {"empty": None} if output.axes[0] == "num_segments" else {}
    keywords |= {"check_ids": False, "deterministic": True}
    keywords |= {name: _DEFAULTS[name] for name in op.traits["keywords"]}
    most = len(inputs)

    def run(given: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        return call(op, describe, labels, given[:most], None if from_input else given[most], options, chosen)

    return signatures.function_of(op, run, positional, signatures.CALL | keywords, _doc(op))


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
