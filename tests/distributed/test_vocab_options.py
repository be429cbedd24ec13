"""Each option of the loss where classes are divided among ranks; all at once are in test_vocab_parallel.py."""

from __future__ import annotations

import pytest
from loss_cases import OPTIONS, problem
from rank_losses import SHARDS, check


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str) -> None:
    check(*problem(), "f32", SHARDS["uneven"], **OPTIONS[name])
