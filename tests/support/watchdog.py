"""Ends a process in which something hangs, and says what: for programs that run unattended."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from typing import Any


class Watchdog:
    """Used as a context. Whoever calls :meth:`pat` has ``seconds`` to call it again, or :meth:`rest`; else it prints all stacks and exits with 1."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._busy: dict[str, tuple[float, str]] = {}
        self._over = threading.Event()

    def pat(self, doing: str, who: str = "main") -> None:
        """Starts the clock of ``who`` again; ``doing`` says what begins."""
        self._busy[who] = time.monotonic(), doing

    def rest(self, who: str = "main") -> None:
        """Stops it."""
        self._busy.pop(who, None)

    def late(self) -> list[str]:
        """Who is doing what for too long."""
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
