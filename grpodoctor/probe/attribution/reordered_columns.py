"""Columns whose values are those of other tokens or of other responses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from grpodoctor.probe.attribution.column_changes import (
    NEARLY_WHOLE,
    Recognized,
    by_response,
    changed,
    distance,
    each_response,
    same_change,
)
from grpodoctor.probe.attribution.tokens import Floats, Integers, Tokens
from grpodoctor.probe.attribution.variant import ColumnMap

_MOST_SHIFT, _COMMON_SHIFT = 8, 3
_ALL = 0.9
"""Share of the responses from which a shift counts as one of all responses."""
_FITS = 0.4
"""Share of the mean |Δlogp| up to which the best shifts fit; shifts in a third of the responses
leave nearly nothing, the best of sixteen shifts of unrelated values leaves more than half."""
_MOST_RESPONSES = 512
"""Responses that are matched with each other."""


def reordered(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """Shifts, and only where no shift fits, other orders: a shift is an order, too."""
    parts, others = (by_response(tokens, column_N) for column_N in (changed_N, other_N))
    shifts = np.array([_best_shift(*each) for each in zip(parts, others, strict=True)])
    shifts = _with_short(shifts, tokens.lengths_B)
    moved_N = _moved_each(shifts, tokens.lengths_B, changed_N)
    if distance(moved_N, other_N) < _FITS * distance(changed_N, other_N):
        share, most = float((shifts != 0).mean()), int(np.abs(shifts).max())
        if share <= _ALL or most > _COMMON_SHIFT:  # the cause off-by-one finds the others
            yield _shifted(tokens, shifts, share, changed_N, other_N)
        return
    made = each_response(np.sort)
    one_N, other_sorted_N = (made.change(tokens.lengths_B, each) for each in (changed_N, other_N))
    what = "in another order within each response"
    yield Recognized("shuffled", what, one_N, other_sorted_N, NEARLY_WHOLE, made, made)
    order_B = _matched(parts, others)
    moved = int((order_B != np.arange(order_B.size)).sum())
    if moved:
        what = f"those of other responses in {moved} of {len(parts)} responses"
        made = ColumnMap(partial(_in_order, order_B), needs_all=True)
        yield same_change(tokens, "shuffled", what, changed_N, other_N, made)


def _in_order(order_B: Integers, lengths_B: Integers, column_N: Floats) -> Floats:
    """The column with other responses' values; all responses that change place are as long."""
    parts = np.split(column_N, np.cumsum(lengths_B)[:-1])
    return np.concatenate([parts[row] for row in order_B])


def _shifted(
    tokens: Tokens, shifts: Integers, share: float, changed_N: Floats, other_N: Floats
) -> Recognized:
    which = sorted(set(shifts[shifts != 0].tolist()))
    some = "" if share > _ALL else f" in {share:.0%} of the responses"
    what = f"shifted by {' or '.join(f'{far:+d}' for far in which[:4])} tokens{some}"
    made = ColumnMap(partial(_moved_each, shifts), needs_all=True)
    return changed(tokens, "off-by-one", what, changed_N, other_N, made)


def _moved_each(shifts: Integers, lengths_B: Integers, column_N: Floats) -> Floats:
    parts = np.split(column_N, np.cumsum(lengths_B)[:-1])
    return np.concatenate([_moved(*each) for each in zip(parts, shifts.tolist(), strict=True)])


def _matched(parts: list[Floats], others: list[Floats]) -> Integers:
    """The order in which the other column's responses fit, shape (B,).

    Each response is matched by itself: two can have the values of the same one, as after a
    preemption. Errors of the model leave a response closest to its own values, so one that is
    clearly closer to another's has them.
    """
    order = np.arange(len(parts))
    if order.size > _MOST_RESPONSES:
        return order
    for length in {part.size for part in parts if part.size >= _LONG_ENOUGH}:
        rows = np.flatnonzero([part.size == length for part in parts])
        if rows.size > 1:
            one, other = (np.stack([each[row] for row in rows]) for each in (parts, others))
            costs = np.abs(one[:, None] - other[None]).mean(axis=-1)
            costs = np.nan_to_num(costs, nan=1e3, posinf=1e3)
            nearest = costs.argmin(axis=1)
            clearly = costs.min(axis=1) < _CLOSER * costs.diagonal()
            order[rows[clearly]] = rows[nearest[clearly]]
    return order


_LONG_ENOUGH = 8
"""Tokens from which a response's values tell it from others."""
_CLOSER = 0.5
"""Largest distance to another response's values, relative to its own."""


def _with_short(shifts: Integers, lengths_B: Integers) -> Integers:
    """The shifts, with that of nearly all responses for those too short to have a shift."""
    values, counts = np.unique(shifts, return_counts=True)
    common = int(values[np.argmax(counts)])
    long_B = lengths_B > 2 * abs(common)
    if not long_B.any() or (shifts[long_B] == common).mean() <= _ALL:
        return shifts
    return np.where(long_B, shifts, common)


def _moved(part: Floats, far: int) -> Floats:
    """A response's column, shifted; NaN where there is no value."""
    moved = np.full(part.size, np.nan)
    if far >= part.size or -far >= part.size:
        return moved
    if far > 0:
        moved[:-far] = part[far:]
    elif far < 0:
        moved[-far:] = part[:far]
    else:
        moved[:] = part
    return moved


def _best_shift(part: Floats, other: Floats) -> int:
    """The shift of a response's column that fits best."""
    best, least = 0, distance(part, other)
    for far in range(-_MOST_SHIFT, _MOST_SHIFT + 1):
        if far == 0 or 2 * abs(far) >= part.size:
            continue
        apart = distance(_moved(part, far), other)
        if apart < 0.5 * least:
            best, least = far, apart
    return best
