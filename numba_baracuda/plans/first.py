"""What the first use of steps waits for: kernels and sorts that nobody has compiled yet, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.op import Launch, Sort, Step, Target
from ..runtime import cache, helpers, progress, radix


def prepare(steps: Sequence[Step], target: Target, device: int) -> None:
    """Compiles the kernels of launches that are in no cache: helpers all but one, this process that one, or its sorts, each in a thread.

    Helpers leave what they make on disk. This process compiles all if the disk cannot be written, and the kernels that only it can build. Beside a
    sort it compiles no other, as both would take turns in the interpreter.
    """
    missing = cache.missing([step.spec.plain() for step in steps if isinstance(step, Launch)], target.arch)
    if not missing:
        return
    names = sorted(missing, key=lambda name: -missing[name].effort)
    sorting = any(isinstance(step, Sort) for step in steps)
    own = [name for name in names if not missing[name].portable] or names[: not sorting]
    spare = [name for name in names if name not in own][: helpers.cores() - 1]
    helped = {name: missing[name] for name in spare} if spare and cache.shared() else {}
    with progress.telling(len(missing), target.arch), helpers.running(helped, target.arch):
        sorts = [radix.begin(step, device) for step in steps if isinstance(step, Sort)]
        for name in sorted(names, key=helped.__contains__):
            cache.cubin(missing[name], target.arch)
        for thread in sorts:
            thread.join()
