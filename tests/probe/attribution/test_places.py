"""Where a gap is: effects of blocks that resemble each other."""

from __future__ import annotations

import numpy as np
import pytest

from grpodoctor.probe.attribution.search.edit_gaps import contributions


def test_of_similar_effects_the_one_that_contributes_is_first() -> None:
    """Alone, the effect of the block before it explains a third of the gap, too."""
    draws = np.random.default_rng(0).normal(size=(3, 400))
    first, second = draws[0], 0.6 * draws[0] + 0.8 * draws[1]
    missing_N = 0.5 * second + 0.02 * draws[2]
    missing_N[7] = np.nan
    shares = contributions([first, second, None], missing_N)
    assert shares[1] == pytest.approx(0.5, abs=0.05)
    assert max(shares[0], shares[2]) < 0.02


def test_too_few_tokens_or_no_effects_place_nothing() -> None:
    effects = list(np.eye(4))
    assert contributions(effects, np.ones(4)) == [0.0] * 4
    assert contributions([], np.ones(4)) == []
