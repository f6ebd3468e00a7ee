"""Columns whose values are those of other tokens or of other responses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from grpodoctor.probe.attribution.columns.column_changes import (
    NEARLY_WHOLE,
    Recognized,
    by_response,
    changed,
    distance,
    each_response,
    same_change,
)
from grpodoctor.probe.attribution.columns.row_orders import by_rule
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
    if not _agrees(tokens, changed_N, other_N):
        rules = [
            _shifted_by(tokens, words, shifts, changed_N, other_N)
            for words, shifts in _by_lengths(tokens)
        ]
        rules = [each for each in rules if _agrees(tokens, each.changed_N, other_N)]
        if rules:
            yield min(rules, key=lambda each: distance(each.changed_N, other_N))
            return
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
    padding = _padding(parts)
    rule = by_rule(
        tokens,
        lambda order_B: _distance_in(order_B, padding, tokens, changed_N, other_N),
    )
    order_B = _matched(parts, others, padding) if rule is None else rule.order_B
    moved = int((order_B != np.arange(order_B.size)).sum())
    if moved:
        where = f"in {moved} of {len(parts)} responses" if rule is None else f"({rule.words})"
        what = f"those of other responses {where}"
        made = ColumnMap(partial(_in_order, order_B, padding), needs_all=True)
        found = same_change(tokens, "shuffled", what, changed_N, other_N, made)
        yield replace(found, is_conclusive=rule is not None)


def _distance_in(
    order_B: Integers, padding: float, tokens: Tokens, changed_N: Floats, other_N: Floats
) -> float:
    """The distance of a column from the other one in another order of rows."""
    made_N = _in_order(order_B, padding, tokens.lengths_B, other_N)
    at_N = tokens.counted_N
    return distance(changed_N[at_N], made_N[at_N])


def _in_order(order_B: Integers, padding: float, lengths_B: Integers, column_N: Floats) -> Floats:
    """The column with other responses' values, cut or padded to each response's length."""
    parts = np.split(column_N, np.cumsum(lengths_B)[:-1])
    fitted = np.full(column_N.size, padding)
    starts_B = np.cumsum(lengths_B) - lengths_B
    for start, length, row in zip(starts_B, lengths_B, order_B, strict=True):
        kept = parts[row][:length]
        fitted[start : start + kept.size] = kept
    return fitted


def _by_lengths(tokens: Tokens) -> Iterator[tuple[str, Integers]]:
    """Shifts of each response that follow from lengths, in tokens.

    A batch is cut at one place: at the end of its shortest or longest prompt, or of its shortest or
    longest sequence. A batch has all rows, or some that follow each other.
    """
    prompts_B = tokens.prompt_lengths_B
    if prompts_B.size != tokens.lengths_B.size or not prompts_B.size:
        return
    for rows in (prompts_B.size, *(size for size in _BATCHES if size < prompts_B.size)):
        starts = np.arange(0, prompts_B.size, rows)
        of = "" if rows == prompts_B.size else f" of {rows} rows"
        for what, sizes_B in (("prompt", prompts_B), ("sequence", prompts_B + tokens.lengths_B)):
            for limit, words in ((np.minimum, "shortest"), (np.maximum, "longest")):
                ends_B = np.repeat(limit.reduceat(sizes_B, starts), rows)[: sizes_B.size]
                shifts_B = sizes_B - ends_B
                if shifts_B.any():
                    yield f"as if each {what} ended with the {words} one{of}", shifts_B


def _agrees(tokens: Tokens, one_N: Floats, other_N: Floats) -> bool:
    """Whether the typical value of two columns is the same, and enough tokens have both."""
    at_N = np.isfinite(one_N) & np.isfinite(other_N) & tokens.counted_N
    if at_N.sum() < _FEWEST * tokens.counted_N.sum():
        return False
    apart_N = np.abs(one_N - other_N)[at_N]
    spread = float(np.median(np.abs(other_N[at_N] - np.median(other_N[at_N]))))
    return bool(np.median(apart_N) < _SAME * spread)


_BATCHES = (64, 32, 16, 8, 4, 2)
_FEWEST = 0.3
"""Share of the tokens that a shift by lengths must leave."""
_SAME = 0.1
"""Largest typical distance of a column from itself, relative to its spread: next to another fault
both differ a little, and values of unrelated tokens differ by more than their spread."""


def _shifted_by(
    tokens: Tokens, words: str, shifts: Integers, changed_N: Floats, other_N: Floats
) -> Recognized:
    made = ColumnMap(partial(_moved_each, shifts), needs_all=True)
    return changed(tokens, "off-by-one", f"shifted {words}", changed_N, other_N, made)


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


def _matched(parts: list[Floats], others: list[Floats], padding: float) -> Integers:
    """The other column's response that fits each response, shape (B,).

    Each response is matched by itself: two can have the values of the same one, as after a
    preemption. Values of a longer response are cut, those of a shorter one are padded. Errors of
    the model leave a response closest to its own values, so one that is clearly closer to
    another's has them.
    """
    order = np.arange(len(parts))
    if order.size > _MOST_RESPONSES:
        return order
    sizes_B = np.array([part.size for part in others])
    table_BT = np.full((len(others), min(_COMPARED, int(sizes_B.max(initial=0)))), np.nan)
    for row, part in enumerate(others):
        table_BT[row, : part.size] = part[: table_BT.shape[1]]
    for row, part in enumerate(parts):
        fits_B = sizes_B >= max(_length_of(part, padding), _LONG_ENOUGH)
        if part.size < _LONG_ENOUGH or not fits_B[np.arange(order.size) != row].any():
            continue
        apart_BT = np.abs(table_BT[:, : part.size] - part[: table_BT.shape[1]])
        known_BT = np.isfinite(apart_BT)
        sums_B = np.where(known_BT, apart_BT, 0.0).sum(axis=1)
        costs_B = np.where(fits_B, sums_B / np.maximum(known_BT.sum(axis=1), 1), np.inf)
        costs_B[~known_BT.any(axis=1)] = np.inf
        nearest = int(costs_B.argmin())
        own = sums_B[row] / max(int(known_BT[row].sum()), 1)
        if costs_B[nearest] < _CLOSER * own:
            order[row] = nearest
    return order


def _padding(parts: list[Floats]) -> float:
    """The number with which values are padded: one at the end of several responses; else NaN."""
    ends = np.array([part[-1] for part in parts if part.size])
    numbers, counts = np.unique(ends[np.isfinite(ends)], return_counts=True)
    is_padding = numbers.size > 0 and counts.max() >= _ENDS
    return float(numbers[np.argmax(counts)]) if is_padding else np.nan


def _length_of(part: Floats, padding: float) -> int:
    """The tokens of a response before its padding."""
    values = np.flatnonzero(np.isfinite(part) & (part != padding))
    return int(values[-1]) + 1 if values.size else 0


_LONG_ENOUGH = 8
"""Tokens from which a response's values tell it from others."""
_COMPARED = 512
"""Tokens of a response that are compared."""
_ENDS = 3
"""Responses that end with exactly the same number: their last tokens' values are not equal."""
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
