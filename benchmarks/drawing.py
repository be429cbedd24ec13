"""How plots look and are saved: light and dark, SVG and PNG, the same bytes for the same numbers. Needs matplotlib."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: colours of contestants that are told apart on light and on dark ground, of the palette of Okabe and Ito
COLOURS = {
    "light": {"numba_baracuda": "#0072b2", "torch": "#d55e00", "compile": "#7a3e9d", "jax": "#009e73", "cupy": "#cc79a7", "numba": "#b8860b"},
    "dark": {"numba_baracuda": "#56b4e9", "torch": "#ff8c42", "compile": "#b98ae0", "jax": "#2ed3a0", "cupy": "#e6a3c8", "numba": "#f0c14b"},
}
_INK = {"light": ("#ffffff", "#1f2328"), "dark": ("#0d1117", "#e6edf3")}
THEMES = tuple(_INK)
#: text that says where the numbers come from, with :func:`digest`, in both formats
NUMBERS = "numbers"

#: draws numbers on an empty figure, in the colours that it is given
Paint = Callable[[Any, Any, Mapping[str, str]], None]


def digest(numbers: Any) -> str:
    """SHA-256 of plotted numbers."""
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()


def style(theme: str) -> dict[str, Any]:
    """matplotlib's parameters of a theme."""
    ground, ink = _INK[theme]
    grounds = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor"), ground)
    inks = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color", "grid.color"), ink)
    sizes = {"font.size": 9, "axes.titlesize": 10, "legend.fontsize": 8, "grid.alpha": 0.2, "legend.framealpha": 0.7}
    return {**grounds, **inks, **sizes, "svg.hashsalt": "numba_baracuda", "axes.spines.top": False, "axes.spines.right": False}


def figure(paint: Paint, numbers: Any, size: tuple[float, float], theme: str) -> Any:
    """The figure of a theme."""
    made = importlib.import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    paint(made, numbers, COLOURS[theme])
    return made


def save(path: Path, paint: Paint, numbers: Any, size: tuple[float, float], theme: str = "light") -> None:
    """Draw into a file, SVG or PNG by its suffix."""
    text = f"{NUMBERS} {digest(numbers)}"
    metadata = {"Date": None, "Description": text} if path.suffix == ".svg" else {"Description": text}
    path.parent.mkdir(parents=True, exist_ok=True)
    with importlib.import_module("matplotlib").rc_context(style(theme)):
        figure(paint, numbers, size, theme).savefig(path, dpi=120, metadata=metadata)


def save_all(folder: Path, name: str, paint: Paint, numbers: Any, size: tuple[float, float]) -> list[Path]:
    """``name-light.svg``, ``name-light.png``, ``name-dark.svg`` and ``name-dark.png``."""
    made = [folder / f"{name}-{theme}.{suffix}" for theme in THEMES for suffix in ("svg", "png")]
    for path in made:
        save(path, paint, numbers, size, "dark" if "-dark" in path.stem else "light")
    return made
