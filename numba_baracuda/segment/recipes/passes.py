"""Passes over ids in any order, each for a range of segments: what they update at random stays in the level 2 cache.

Where an id crowds, or ids ascend, little is updated at random, and one pass over all segments is faster. The device tells, so the host need not
wait.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.op import NULL, Launch, Layout, Slot, Step, Target
from ...core.policy import tuned
from .. import policy_of
from ..policy import IdPasses
from ..tiling import THREADS
from .common import ids_step, kernel_spec

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

ONCE, BY_RANGE = Slot("once", "i32", 4), Slot("by_range", "i32", 4)  #: guards of one pass, and of one for each range of segments


def merged(slots: list[Slot], more: list[Slot]) -> list[Slot]:
    """The slots of both, and only once those of passes, which both may have. They are told apart by name, since sizes have no hash in a trace."""
    named = {slot.name for slot in slots}
    return [*slots, *[slot for slot in more if slot.name not in named]]


@dataclass(frozen=True)
class Pass:
    """An update of the segments from ``low`` to ``high``, which kernels make unless ``guard`` names a word that is 0."""

    low: int
    high: int
    guard: str

    @property
    def guarded(self) -> bool:
        return self.guard != NULL

    @property
    def by_range(self) -> bool:
        """Whether it is one of several, where no id crowds."""
        return self.guard == BY_RANGE.name


def passes(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, segment_bytes: int, pass_bytes: int
) -> tuple[list[Pass], list[Step], list[Slot]]:  # fmt: skip
    """The passes that update ``segment_bytes`` of each segment at random; what tells which of them are made, and its slots.

    ``pass_bytes``: as :func:`~..policy_of.passes` has them.
    """
    policy, segments = tuned(IdPasses()), descriptor.num_segments
    number = policy_of.passes(segments, segment_bytes, pass_bytes, target.l2_bytes)
    if number == 1:
        return [Pass(0, segments, NULL)], [], []
    arguments = {
        "ids": "segment_ids", "once": ONCE.name, "by_range": BY_RANGE.name, "rows": descriptor.num_inputs,
        "crowd": int(policy.crowd_share * THREADS), "ascents": int(policy.ascending_share * THREADS), "ids_step": ids_step(layouts),
    }  # fmt: skip
    ranges = itertools.pairwise([segments * k // number for k in range(number + 1)])
    made = [Pass(0, segments, ONCE.name), *[Pass(low, high, BY_RANGE.name) for low, high in ranges]]
    return made, [Launch(kernel_spec("choose_passes", index=descriptor.index), (1, THREADS, 0), arguments)], [ONCE, BY_RANGE]
