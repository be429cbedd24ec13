"""A line on the terminal, or in a notebook, while compilers keep the caller waiting. ``NUMBA_BARACUDA_PROGRESS=0`` turns it off."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DELAY = 1.0  #: seconds of silence
_speaking = threading.Lock()
os.register_at_fork(after_in_child=_speaking._at_fork_reinit)  # type: ignore[attr-defined]


def _listened() -> bool:
    if os.environ.get("NUMBA_BARACUDA_PROGRESS", "") == "0":
        return False
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


class _Line:
    """The line, from when it is due to the end of what it tells."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._over = False
        self._shown: Any = None

    def show(self) -> None:
        with self._lock:
            if self._over:
                return
            from rich.console import Console
            from rich.live import Live
            from rich.text import Text

            screen = Console(stderr=True)
            if screen.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
                screen.print(self._text, markup=False)  # nothing there takes a line away
                return
            self._shown = Live(Text(self._text), console=screen, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._shown.start(refresh=True)

    def close(self) -> None:
        with self._lock:
            self._over = True
            if self._shown is not None:
                self._shown.stop()


@contextmanager
def telling(kernels: int, arch: str) -> Iterator[None]:
    """Says what is compiled if the block takes longer than a second and somebody may read it, and takes the line away at its end."""
    if not _listened() or not _speaking.acquire(blocking=False):
        yield
        return
    line = _Line(f"numba_baracuda: compiling {kernels} kernel{'s' * (kernels != 1)} for {arch} …")
    timer = threading.Timer(_DELAY, line.show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.close()
        _speaking.release()
