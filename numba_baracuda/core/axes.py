"""Extents and strides of operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def power_of_two(number: int) -> int:
    """The least power of two that is ``number`` or more."""
    return 1 << max(number - 1, 0).bit_length()


def busy_lanes(vectors: int, lanes: int, least: int, max_idle_percent: int) -> int:
    """The most adjacent lanes, ``lanes`` halved down to ``least``, of which rows of ``vectors`` leave at most so many percent idle, if any do."""
    while lanes > least and (100 - max_idle_percent) * ceil_div(vectors, lanes) * lanes > 100 * vectors:
        lanes //= 2
    return lanes


def fitting(vector: int, steps: Iterable[int]) -> int:
    """The greatest power of two that divides all steps and is ``vector`` at most; ``vector`` is a power of two."""
    steps = list(steps)
    while any(step % vector for step in steps):
        vector //= 2
    return vector


def c_strides(shape: tuple[int, ...], itemsize: int = 1) -> tuple[int, ...]:
    """Strides of a C-contiguous array: in elements, or in bytes with ``itemsize``."""
    strides = [itemsize]
    for extent in shape[:0:-1]:
        strides.append(strides[-1] * extent)
    return tuple(strides[::-1]) if shape else ()


def merge_axes(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The shape and each operand's strides with neighbouring axes merged where every operand walks them as one, and without axes of extent 1.

    At least one axis is left.
    """
    extents: list[int] = []
    kept: list[list[int]] = []
    for k, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = [each[k] for each in strides]
        if extents and all(before == step * extent for before, step in zip(kept[-1], steps, strict=True)):
            extents[-1] *= extent
            kept[-1] = steps
        else:
            extents.append(extent)
            kept.append(steps)
    if not extents:
        extents, kept = [1], [[1] * len(strides)]
    return tuple(extents), [tuple(steps[k] for steps in kept) for k in range(len(strides))]
