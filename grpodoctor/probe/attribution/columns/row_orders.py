"""Orders in which batches return the rows of responses, to tell short rows' values apart, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.tokens import Integers, Tokens

_FARTHEST = 8
_CLEARLY = 0.7
"""Largest distance of the columns under a rule, relative to that under each other rule."""
_ALIKE = 0.5
"""Share of the rows in which two rules agree that are not compared."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows by a rule."""

    order_B: Integers
    """The row whose values each row has."""
    words: str
    """What it does, in words."""


def by_rule(tokens: Tokens, distance_of: Callable[[Integers], float]) -> RowOrder | None:
    """The rule under which both columns are closest; None if no rule is clearly the closest.

    Values of unrelated rows are equally far apart under any wrong rule. So the right one stands
    out even next to a fault of the model, and short rows, which cannot be told apart by
    themselves, follow from it.

    Args:
        tokens: of the responses.
        distance_of: the distance of the columns in an order of rows.
    """
    rows_B = np.arange(tokens.lengths_B.size)
    rules = [RowOrder(rows_B, ""), *_rules(tokens)]
    apart = [distance_of(rule.order_B) for rule in rules]
    best = int(np.argmin(apart))
    others = [
        each
        for rule, each in zip(rules, apart, strict=True)
        if (rule.order_B == rules[best].order_B).mean() < _ALIKE
    ]
    is_clear = apart[best] < _CLEARLY * min(others, default=np.inf)
    return rules[best] if best and is_clear and len(others) > 1 else None


def _rules(tokens: Tokens) -> Iterator[RowOrder]:
    """Rotations of samples and rows, sorted rows, rows by sample instead of by prompt."""
    count = tokens.lengths_B.size
    rows_B = np.arange(count)
    samples = int(tokens.sample_B.max(initial=0)) + 1
    place = {
        (prompt, sample): row
        for row, (prompt, sample) in enumerate(
            zip(tokens.prompt_B.tolist(), tokens.sample_B.tolist(), strict=True)
        )
    }
    for far in range(1, samples):
        moved = [
            place.get((prompt, (sample + far) % samples), row)
            for (prompt, sample), row in place.items()
        ]
        if len(moved) == count:
            words = "the next sample" if far == 1 else f"the sample {far} further on"
            yield RowOrder(np.array(moved), f"{words} of each prompt")
    for far in range(1, min(_FARTHEST, count - 1) + 1):
        for step, words in ((far, "after"), (-far, "before")):
            moved_B = (rows_B + step) % count
            yield RowOrder(moved_B, f"the one {far} rows {words} each")
    for sign, words in ((-1, "longest"), (1, "shortest")):
        order_B = np.argsort(sign * tokens.lengths_B, kind="stable")
        for each_B in (order_B, np.argsort(order_B)):
            yield RowOrder(each_B, f"sorted, {words} first")
    yield RowOrder(rows_B[::-1], "in reverse order")
    if samples > 1 and count % samples == 0:
        turned_B = rows_B.reshape(-1, samples).T.ravel()
        for each_B in (turned_B, np.argsort(turned_B)):
            yield RowOrder(each_B, "in the order of samples, not of prompts")
