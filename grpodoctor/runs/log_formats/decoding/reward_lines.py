"""Lines that only list the rewards of a batch: `rewards: tensor([-1., 0., 1., -1.])`."""

from __future__ import annotations

import re
from statistics import fmean, pstdev

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.support.numbers import parse_number

_LONGEST = 5000
_MIN_REWARDS = 4
"""Rewards that make a batch; fewer may be components."""
_MIN_LINES = 20
"""Lines that make a series: a verdict needs as many readings."""
_LIST = re.compile(r"\brewards?\s?[:=]\s{0,4}(?:tensor\()?\[([^\[\]]{1,4000})\]", re.IGNORECASE)


class RewardLines:
    """Counts such lines as steps, unless the log has rows of another kind."""

    def __init__(self) -> None:
        self._held: list[LogRow] = []
        self._lines = 0
        self._is_discarded = False

    def add_line(self, text: str) -> None:
        """Take a line that is no row in another notation."""
        if self._is_discarded or "[" not in text or len(text) > _LONGEST:
            return
        match = _LIST.search(text)
        items = match[1].split(",") if match else []
        rewards = [parse_number(item.strip(" '\"").removesuffix(".")) for item in items]
        numbers = [reward for reward in rewards if reward is not None]
        if len(numbers) < _MIN_REWARDS or len(numbers) < len(rewards):
            return
        self._lines += 1
        values = {"line/reward_mean": fmean(numbers), "line/batch_reward_std": pstdev(numbers)}
        self._held.append(LogRow(self._lines, values))

    def take(self) -> list[LogRow]:
        """Return the rows since the last call, once there are enough."""
        if self._lines < _MIN_LINES:
            return []
        rows, self._held = self._held, []
        return rows

    def discard(self) -> None:
        """Forget the lines: the log has rows in another notation."""
        self._is_discarded, self._held, self._lines = True, [], 0
