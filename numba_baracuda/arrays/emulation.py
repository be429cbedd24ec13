"""The warning that ops run in the CPU emulator."""

from __future__ import annotations

import sys
import warnings


class EmulationWarning(UserWarning):
    """An op runs in the CPU emulator."""


_warned = False


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
    """Warn again."""
    global _warned
    _warned = False
