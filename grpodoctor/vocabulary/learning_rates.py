"""Learning rates of RL: the usual ones, those far above, and a starting value."""

from __future__ import annotations

from typing import NamedTuple


class UsualRates(NamedTuple):
    """The learning rates of one kind of training, for Adam and a pretrained model."""

    what: str
    usual: str
    """The range of published recipes."""
    far_above: float
    """The rate from which a run leaves the range by far."""
    above: float
    """The rate from which a third of it is still no ordinary rate."""
    start: float
    """A sane value to start at."""


FULL = UsualRates("full training", "5e-7 to 5e-6", 1e-4, 1e-5, 1e-6)
"""DAPO and DeepSeekMath train at 1e-6. `above` is ten times that, and `far_above` is twenty times
the highest usual rate."""

ADAPTERS = UsualRates("adapters", "1e-5 to 1e-4", 1e-2, 1e-2, 1e-5)
"""Published rates of adapters spread over two powers of ten, so `above` is `far_above`: a hundred
times the highest usual rate."""


def usual_rates(lora_rank: float) -> UsualRates:
    """The rates of a run by the rank of its adapters; 0 trains all weights."""
    return ADAPTERS if lora_rank else FULL
