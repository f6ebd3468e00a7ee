"""A length limit that is not in the settings, and responses that grew to it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.series import WINDOW, Series, once_per_reading

SHORTEST_LIMIT = 32
"""Tokens of the shortest limit that is inferred: shorter responses, such as sums, all have one
length anyway."""

ALL_BATCHES = 0.9
"""Share of the latest batches that counts as all of them."""

_RECURRENCES = 3
"""Readings whose mean is the same, largest whole number that make it the limit. A public run with a
limit of 200 had it nine times in 250."""

_AT_LIMIT = 0.995
"""Mean length divided by the limit that counts as equal to it: rounding, and one early end in a
batch."""

_GROWN_FROM = 0.5
"""Starting mean divided by the limit below which a mean at the limit has grown to it. A public
distillation run went from 860 to 4,096 of 4,096 tokens while its entropy fell to .005 nats."""


@once_per_reading
def recurring_mean(means: Series) -> float:
    """The limit that the mean length reached several times; 0 if there is none."""
    values = means.tail(WINDOW)
    top = max(values, default=0.0)
    is_limit = top >= SHORTEST_LIMIT and top == int(top)
    return top if is_limit and values.count(top) >= _RECURRENCES else 0.0


def share_at(means: Sequence[float], limit: float) -> float:
    """Share of mean lengths that are at the limit themselves: every response is then cut."""
    return sum(value >= _AT_LIMIT * limit for value in means) / len(means)


def grew_to(means: Series, limit: float) -> bool:
    """Whether responses that were far shorter at the start are all at the limit now."""
    start, latest = means.start, means.tail(RECENT)
    if not limit or start is None or len(latest) < RECENT:
        return False
    return start.level < _GROWN_FROM * limit and share_at(latest, limit) >= ALL_BATCHES


_LOWERED = 0.75
"""A lowered limit, as a part of the longest response in the batches before it."""
_SURE = 10
"""Batches in a row whose longest response has one length, which only a limit gives."""


@once_per_reading
def lowered_limit(longest: Series) -> tuple[float, int]:
    """A length that no response exceeds any more since a step, and that each batch reaches.

    Returns:
        The length and the number of readings since then; zeros without one.
    """
    latest = longest.tail(_SURE)
    if len(latest) < _SURE or latest[0] != latest[-1]:
        return 0.0, 0  # the usual case
    limit = latest[-1]
    if latest.count(limit) < _SURE or longest.window_max() == limit:
        return 0.0, 0
    values = longest.tail(WINDOW)
    since = next(at for at, value in enumerate(reversed(values)) if value != limit)
    nearby = values[-since - 2 * _SURE : -since]
    is_lower = len(nearby) == 2 * _SURE and limit <= _LOWERED * statistics.median(nearby)
    return (limit, since) if is_lower else (0.0, 0)
