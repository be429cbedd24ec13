"""Whether ops run in the CPU emulator, and the warning that they do."""

from __future__ import annotations

import os
import sys
import warnings

from ..runtime import driver


class EmulationWarning(UserWarning):
    """An op runs in the CPU emulator."""


decided: bool | None = None  #: what :func:`emulating` said first, None before
_warned = False


def _after_fork() -> None:
    """Runs in a forked child. A child that cannot use its parent's device then gets the error at its first array."""
    global decided
    if decided is False:
        decided = None


os.register_at_fork(after_in_child=_after_fork)


def emulating() -> bool:
    """Whether ops run in the CPU emulator: ``NUMBA_BARACUDA_EMULATE=1``, or no CUDA device. The first call decides."""
    global decided
    if decided is None:
        decided = os.environ.get("NUMBA_BARACUDA_EMULATE", "0") not in ("", "0") or driver.device_count() == 0
    return decided


def warn_emulated() -> None:
    """For an op that is about to run emulated; warns once in a process, about the line that called the package."""
    global _warned
    if not _warned:
        _warned = True
        speed = "some 10^4 to 10^5 elements/s in the CPU emulator"
        message = f"numba_baracuda runs without a CUDA device: {speed}, which serves tests and small examples"
        warnings.warn(message, EmulationWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """The ``stacklevel``, for the function that calls this one, of the innermost frame outside the package, or of the outermost one."""
    package, level, frame = __name__.partition(".")[0], 1, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level


def reset() -> None:
    """Decide again, and warn again."""
    global decided, _warned
    decided, _warned = None, False
