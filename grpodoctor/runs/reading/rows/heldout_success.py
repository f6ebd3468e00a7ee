"""The held-out accuracy of a log that has the parts of the held-out reward only.

TRL logs the value of each reward function on held-out prompts. One that is named for success, and
is 1 for a right response and 0 for a wrong one, measures the accuracy, whatever the others pay for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from grpodoctor.vocabulary.component_names import is_about_task, pays_for_form
from grpodoctor.vocabulary.values import Reading, scalar, single

_ACCURACY, _HELDOUT = "accuracy/heldout", "reward/heldout"
_PART = re.compile(r"reward/heldout/component/(.+)/mean")
_TRAINED = re.compile(r"reward/component/(.+)/mean")
_LEAST, _MOST = 0.8, 1.5
"""Variance of a batch as a multiple of m (1 - m), at the mean m. It is n / (n - 1) for n responses
that are 0 or 1, and at most half of that if they are 0 or one half. It is at least twice as much if
they are 0 or 2. Values in [0, 1] never have more (Bhatia and Davis 2000)."""
_VARIED = 0.05
"""Mean that is so far from 0 and 1 that a batch has both kinds of responses."""


class HeldOutSuccess:
    """Adds the accuracy to the steps at which a held-out component measures it."""

    def __init__(self) -> None:
        self._is_share: dict[str, bool] = {}
        """Whether a component is 0 or 1 in training, as far as its batches show."""

    def add_accuracy(self, values: MutableMapping[str, Reading]) -> None:
        """Add the held-out accuracy to the readings of a step, in place."""
        self._learn(values)
        if _HELDOUT not in values or _ACCURACY in values:
            return
        parts = [match[1] for name in values if (match := _PART.fullmatch(name))]
        tasks = [name for name in parts if is_about_task(name) and not pays_for_form(name)]
        tasks = [name for name in tasks if self._is_share.get(name)]
        if len(parts) < 2 or len(tasks) != 1:
            return  # a single component is the reward itself
        level = scalar(values[f"{_HELDOUT}/component/{tasks[0]}/mean"])
        if level is not None and 0 <= level <= 1:
            values[_ACCURACY] = single(level)

    def _learn(self, values: Mapping[str, Reading]) -> None:
        for name in values:
            match = _TRAINED.fullmatch(name) if name.startswith("reward/component/") else None
            if match is None or self._is_share.get(match[1]) is False:
                continue
            mean, std = scalar(values[name]), _number(values, f"{name.removesuffix('mean')}std")
            if mean is None or std is None:
                continue
            if not 0 <= mean <= 1:
                self._is_share[match[1]] = False
            elif _VARIED <= mean <= 1 - _VARIED:
                spread = std * std / (mean * (1 - mean))
                self._is_share[match[1]] = _LEAST <= spread <= _MOST


def _number(values: Mapping[str, Reading], name: str) -> float | None:
    return scalar(values[name]) if name in values else None
