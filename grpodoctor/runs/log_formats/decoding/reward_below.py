"""A mean reward on a separate line, right below the line with the step and the losses.

DeepSpeed-Chat prints `epoch: 0|step: 5|ppo_ep: 1|act_loss: 0.2|cri_loss: 0.1` and, below it,
`average reward score: 0.56`.
"""

from __future__ import annotations

import re

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.printed_numbers import NUMBER, to_number

_REACH = 3
"""Lines below a row within which a reward belongs to it."""
_REWARD = re.compile(
    rf"\s{{0,9}}(?:average|avg|mean)[ _]reward(?:[ _]score)?\s{{0,3}}[:=]\s{{0,9}}({NUMBER})\s*",
    re.IGNORECASE,
)


class RewardBelow:
    """Gives such a reward the step of the row above it, once."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._lines_since = 0

    def add_row(self, step: int | None) -> None:
        """Take the step of a row that has no outcome."""
        self._step, self._lines_since = step, 0

    def take(self, text: str) -> LogRow | None:
        """The row of a line that only states the mean reward; None for other lines."""
        if self._step is None:
            return None
        self._lines_since += 1
        match = _REWARD.fullmatch(text) if len(text) < 200 else None
        step = self._step
        if match or self._lines_since >= _REACH:
            self._step = None
        return LogRow(step, {"line/average_reward": to_number(match[1])}) if match else None
