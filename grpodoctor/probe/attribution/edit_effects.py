"""Effects of edits that were measured in one setup of the learner, as estimates for another.

Hundreds of edits are tried on the first remainder of a gap. On a later one the learner has another
temperature, other tensors or one more edit, and most of these edits move the tokens nearly as they
did before. So only those are computed again whose effect can have enough in common with the gap.

How far an effect turns between the two setups is measured: the edits with the most promising
effects are computed in both. An edit is left out if its effect would have to turn further than any
of these did. If effects turn much, as next to a large change, no edit is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.attribution.variant import Setup

CLIP = 3.0
"""Upper bound on |Δlogp| per token."""
CALIBRATED = 24
"""Edits whose effect is measured in both setups. A further one turns more than all of them with a
probability of 1 / 25, if it is like them."""
_MOST_TOKENS = 8192
"""Tokens of a sub-sample up to which effects are kept."""
Item = TypeVar("Item")


@dataclass
class SetupEffects:
    """The effects of edits in one setup, on the same tokens."""

    setup: Setup
    effects: dict[Edit, Floats] = field(default_factory=dict)
    """The change of each token's log-probability, NaN where it is not known."""


class EffectMemory:
    """The first setup in which edits were tried on each sample of tokens."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, Path], SetupEffects] = {}

    def of(self, setup: Setup, folder: Path | None) -> SetupEffects | None:
        """The first setup's effects on the same tokens, if this is not the first one."""
        if folder is None:
            return None
        first = self._first.get(_key(setup, folder))
        return first if first is not None and first.setup != setup else None

    def in_first(self, setup: Setup, folder: Path | None) -> SetupEffects | None:
        """The effects of the first setup, if this is it."""
        first = None if folder is None else self._first.get(_key(setup, folder))
        return first if first is not None and first.setup == setup else None

    def note(self, setup: Setup, folder: Path | None, edit: Edit, moved_N: Floats) -> None:
        """Keep an effect, if this is the first setup in which edits are tried on these tokens."""
        if folder is None or moved_N.size > _MOST_TOKENS:
            return
        first = self._first.setdefault(_key(setup, folder), SetupEffects(setup))
        if first.setup == setup:
            first.effects[edit] = moved_N.astype(np.float32)


def _key(setup: Setup, folder: Path) -> tuple[str, str, Path]:
    return setup.learner.key, setup.transform, folder


def angle(moved_N: Floats, missing_N: Floats, *, either: bool = False) -> float:
    """The angle between an effect and a gap, in radians; π/2 if one of them is nothing.

    The square of its cosine is the share of the gap's variance that the effect explains.

    Args:
        moved_N: the effect.
        missing_N: the gap, or another effect.
        either: whether the opposite effect counts, too.
    """
    at = np.isfinite(moved_N) & np.isfinite(missing_N)
    one, other = (
        np.clip(each[at].astype(np.float64), -CLIP, CLIP) for each in (moved_N, missing_N)
    )
    size = math.sqrt(float(one @ one) * float(other @ other))
    cosine = float(one @ other) / size if size > 0 else 0.0
    return math.acos(min(1.0, abs(cosine) if either else max(-1.0, cosine)))


def angle_of(explained: float) -> float:
    """The angle at which an effect explains a share of a gap's variance."""
    return math.acos(math.sqrt(explained))


def screened(
    items: Sequence[Item],
    estimated: Callable[[Item], Floats],
    measured: Callable[[Sequence[Item]], Sequence[Floats | None]],
    missing_N: Floats,
    *,
    explained: float,
    either: Callable[[Item], bool] = lambda _: False,
) -> list[Item]:
    """Compute the items that can explain a share of a gap, the most promising first.

    Args:
        items: with an estimated effect.
        estimated: the estimate of an item's effect.
        measured: computes items; returns their effects.
        missing_N: the gap.
        explained: share of the gap's variance that an item has to explain to be of use.
        either: whether an item's opposite effect is of use, too.

    Returns:
        the items that were left out.
    """
    angles = [angle(estimated(item), missing_N, either=either(item)) for item in items]
    order = sorted(range(len(items)), key=angles.__getitem__)
    first, rest = order[:CALIBRATED], order[CALIBRATED:]
    effects = measured([items[n] for n in first])
    turns = [
        angle(effect, estimated(items[n]))
        for n, effect in zip(first, effects, strict=True)
        if effect is not None
    ]
    if not rest:
        return []
    most = angle_of(explained) + (max(turns) if len(turns) == CALIBRATED else math.pi)
    measured([items[n] for n in rest if angles[n] <= most])
    return [items[n] for n in rest if angles[n] > most]
