"""Ends a process that hangs, and prints what hangs: for programs that run unattended."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from typing import Any


class Watchdog:
    """A context manager. ``seconds`` after :meth:`pat`, without another :meth:`pat` or :meth:`rest`, it prints all stacks and exits with 1."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._busy: dict[str, tuple[float, str]] = {}
        self._over = threading.Event()

    def pat(self, doing: str, who: str = "main") -> None:
        """Restarts the clock of ``who``; ``doing`` is the work that begins."""
        self._busy[who] = time.monotonic(), doing

    def rest(self, who: str = "main") -> None:
        """Stops the clock of ``who``."""
        self._busy.pop(who, None)

    def late(self) -> list[str]:
        """Names and work of those whose clocks ran out."""
        end = time.monotonic() - self.seconds
        return [f"{who}: {doing}" for who, (start, doing) in list(self._busy.items()) if start < end]

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self.seconds / 4)):
            late = self.late()
            if late:
                print(f"HANGS: not done after {self.seconds:g} s: {'; '.join(late)}", flush=True)
                faulthandler.dump_traceback(sys.stdout, all_threads=True)
                sys.stdout.flush()
                os._exit(1)

    def __enter__(self) -> Watchdog:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
