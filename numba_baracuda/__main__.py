"""``python -m numba_baracuda`` is the command ``numba-baracuda``."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
