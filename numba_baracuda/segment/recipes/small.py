"""Gradients of folds, and softmax, of small problems by one launch, where a second one would cost the host as much as the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.op import FRESH_BYTES, Clear, Launch, Slot, Step
from ...core.policy import tuned
from ..policy import FoldThenBroadcast
from .common import kernel_spec
from .statuses import STATUS

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

#: constants of the fold that the launch of both has, too; those of the broadcast by the names that it has there; and arguments that it lacks
_OF_FOLD = (
    "monoid", "value", "index", "vector", "lanes", "packed", "guarded", "apart", "dims", "looks_back", "threads_per_block", "items_per_thread",
)  # fmt: skip
_OF_BROADCAST = {
    "gradient": "gradient", "vector": "piece", "unit": "unit", "span": "span", "items_per_thread": "pieces", "ids_per_thread": "ids_per_thread",
}  # fmt: skip
_UNUSED = ("counts", "permutation", "carry_ids", "carry_counts", "carry_states", "empty")


def fold_alone(descriptor: SegmentDescriptor, steps: Sequence[Step], guard: str) -> Launch | None:
    """The one launch of a fold of rows as they lie, with this guard or ``NULL``; None for others and for large problems."""
    folds = [step for step in steps if isinstance(step, Launch)]
    if len(folds) != 1 or folds[0].spec.kernel != "fold_tiles" or dict(folds[0].spec.constants)["row_index"]:
        return None
    small = folds[0].arguments["guard"] == guard and descriptor.num_inputs * descriptor.row_size <= tuned(FoldThenBroadcast()).max_bytes
    return folds[0] if small else None


def together(fold: Launch, slots: Sequence[Slot], final: Sequence[Step]) -> tuple[list[Step], list[Slot]] | None:
    """One launch of such a fold and of the flat broadcast behind it, and its slots; None where another launch is last."""
    last = final[-1]
    if len(final) != 1 or not isinstance(last, Launch) or last.spec.kernel != "broadcast_flat":
        return None
    of_fold, of_last = dict(fold.spec.constants), dict(last.spec.constants)
    status = next((slot for slot in slots if slot.name == STATUS), Slot(STATUS, "i64", 0))
    # the counter of blocks that are done lies behind the statuses, 16 bytes
    grown = Slot(STATUS, status.element, status.count + 2)
    if last.arguments["guard"] != fold.arguments["guard"] or grown.nbytes > FRESH_BYTES:
        return None
    threads = fold.config[1]
    if last.config[1] % threads:  # a tile of the broadcast would not be whole turns of the block
        return None
    constants = {name: of_fold[name] for name in _OF_FOLD if name in of_fold}
    constants |= {new: of_last[name] for name, new in _OF_BROADCAST.items() if name in of_last}
    blocks = min(fold.spec.min_blocks, tuned(FoldThenBroadcast()).most_blocks_per_multiprocessor)
    spec = kernel_spec("fold_then_broadcast", threads, blocks, **constants | {"threads_per_block": threads})
    arguments = {name: each for name, each in {**fold.arguments, **last.arguments}.items() if name not in _UNUSED} | {
        "tile": fold.arguments["tile"], "flat_tile": last.arguments["tile"], "counter": status.count, STATUS: STATUS,
    }  # fmt: skip
    launch = Launch(spec, (fold.config[0] + last.config[0], threads, last.config[2]), arguments)
    return [Clear(STATUS, fresh=True), launch], [grown, *[slot for slot in slots if slot.name != STATUS]]
