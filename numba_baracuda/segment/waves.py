"""How many steps blocks take, so that waves of them are full. Imports no Numba."""

from __future__ import annotations

from ..core.axes import ceil_div


def even_steps(blocks: int, fewest: int, resident: int, most: int, others: int = 0, longer: bool = False) -> int:
    """Steps of each block, ``most`` at most, where there would be so many ``blocks`` of one step: about as many as leave ``fewest`` blocks.

    There may be fewer steps, down to half, if there are less than two and a half waves of ``resident`` blocks; and more where blocks may take
    ``longer``, up to one and a half waves: as many as take the least time, if each wave takes that of its steps and of an eighth of one, and blocks
    that do not end together take a sixteenth of a wave. There are so many ``others`` in the first wave, and the last blocks must not miss the last
    wave by a few. Where it is not known how many are ``resident``, which is then 0, there are about as many steps.
    """
    usual = min(most, max(1, blocks // fewest))
    if not resident:
        return usual
    least = ceil_div(usual, 2) if 2 * blocks < 5 * resident * usual else usual
    greatest = max(usual, min(most, usual + 7, 2 * blocks // (3 * resident))) if longer else usual
    # plain arithmetic, which a call of new sizes waits for
    found, shortest, behind = usual, 0, others + resident // 64 + resident - 1
    for steps in range(least, greatest + 1):
        time = (16 * (((blocks + steps - 1) // steps + behind) // resident) + 1) * (8 * steps + 1)
        if time < shortest or not shortest:
            found, shortest = steps, time
    return found
