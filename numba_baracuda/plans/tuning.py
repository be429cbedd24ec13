"""The hook for measurements: plans with other tuning policies than the package's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..core.policy import Policy, replaced
from .memos import forget


@contextlib.contextmanager
def using(policy: type[Policy], **values: Any) -> Iterator[None]:
    """Ops that are called inside the block, in any thread, run with these values instead of the policy's own.

        with using(FoldTiles, threads_per_block=256):
            segment_sum(x, ids, segments)

    Fields that kernels compile in become constants of their own specs, so that the cache keeps the kernels of all values apart. The memos of
    plans and launches are emptied before and after the block; a plan that the caller has keeps its own. Raises ``InvalidProblem``
    for a field that the policy does not have, or that no measurement can replace, and for a value that it cannot have.
    """
    try:
        with replaced(policy, **values):
            forget()
            yield
    finally:
        forget()
