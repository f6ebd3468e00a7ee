"""Times as labels of a step axis: the steps stay where they are, and pauses do not take space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from grpodoctor.monitor.downsampled_series import Point

TIME_TITLE = "time (UTC)"
_DAY = 86_400
_INTERVALS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
              _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY)  # fmt: skip
"""Seconds between two labels."""
_MOST_LABELS = 6
_CLOSEST = 0.07
"""Labels closer than this share of the axis would overlap; the first one stays."""


@dataclass(frozen=True, slots=True)
class TimeLabels:
    """Labels of a step axis."""

    steps: tuple[float, ...]
    texts: tuple[str, ...]


def time_labels(times: Sequence[Point], steps: tuple[int, int]) -> TimeLabels | None:
    """The labels of a part of the steps; None if the run does not tell the time of two of them.

    Args:
        times: Unix time at the end of some steps.
        steps: first and last step of the axis.
    """
    known = [point for point in times if steps[0] <= point.step <= steps[1]]
    if len(known) < 2:
        return None
    numbers = np.array([point.step for point in known], float)
    # A resumed run on a machine with another clock may go back.
    moments = np.maximum.accumulate([point.value for point in known])
    first, last = float(moments[0]), float(moments[-1])
    interval = next((each for each in _INTERVALS if (last - first) / each <= _MOST_LABELS),
                    _INTERVALS[-1])  # fmt: skip
    at = np.arange(np.ceil(first / interval), np.floor(last / interval) + 1) * interval
    places = np.interp(at, moments, numbers)
    closest = _CLOSEST * (steps[1] - steps[0])
    kept: list[tuple[float, float]] = []
    for place, moment in zip(places.tolist(), at.tolist(), strict=True):
        if not kept or place - kept[-1][0] >= closest:
            kept.append((place, moment))
    if not kept:
        kept = [(float(numbers[0]), first)]
    texts = _texts([moment for _, moment in kept], interval)
    return TimeLabels(tuple(place for place, _ in kept), texts)


def _texts(moments: Sequence[float], interval: int) -> tuple[str, ...]:
    """Times of day; the date stands where it changes."""
    texts, date = [], ""
    for moment in moments:
        time = datetime.fromtimestamp(moment, UTC)
        today = f"{time:%b} {time.day}"
        clock = f"{time:%H:%M}" if interval % 60 == 0 else f"{time:%H:%M:%S}"
        texts.append(today if interval % _DAY == 0 else f"{clock}<br>{today}" if today != date
                     else clock)  # fmt: skip
        date = today
    return tuple(texts)
