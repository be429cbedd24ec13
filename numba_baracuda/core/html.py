"""What objects show of themselves in notebooks: tables and histograms as HTML, all text in them escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_LEFT = "text-align:left;vertical-align:top"
#: of a histogram, in pixels
_WIDTH, _HEIGHT, _MARGIN = 480, 120, 18


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def _cell(value: Any) -> str:
    return value if isinstance(value, Html) else escape(str(value))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], caption: str = "") -> Html:
    """A table; ``head`` may be empty."""
    above = f'<caption style="{_LEFT}"><b>{escape(caption)}</b></caption>' if caption else ""
    titles = "".join(f'<th style="{_LEFT}">{_cell(each)}</th>' for each in head)
    lines = "".join("<tr>" + "".join(f'<td style="{_LEFT}">{_cell(each)}</td>' for each in row) + "</tr>" for row in rows)
    return Html(f"<table>{above}{f'<thead><tr>{titles}</tr></thead>' if titles else ''}<tbody>{lines}</tbody></table>")


def histogram(counts: Sequence[int], labels: Sequence[str], title: str) -> Html:
    """Bars with their counts above and their labels below, as inline SVG in the colour of the text around."""
    step, most = _WIDTH / max(len(counts), 1), max([*counts, 1])
    parts = []
    for k, (count, label) in enumerate(zip(counts, labels, strict=True)):
        height, middle = _HEIGHT * count / most, (k + 0.5) * step
        top = _MARGIN + _HEIGHT - height
        parts.append(f'<rect x="{k * step + 1:.1f}" y="{top:.1f}" width="{step - 2:.1f}" height="{height:.1f}" fill-opacity="0.5"/>')
        for y, text in ((top - 3, f"{count:,}" if count else ""), (2 * _MARGIN + _HEIGHT - 4, label)):
            parts.append(f'<text x="{middle:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>')
    size = f'width="{_WIDTH}" height="{_HEIGHT + 2 * _MARGIN}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} fill="currentColor" font-size="10"><title>{escape(title)}</title>'
    return Html(head + "".join(parts) + "</svg>")
