"""Counts in text: the verb agrees with the part that is counted."""

from __future__ import annotations

import pytest

from grpodoctor.support.numbers import part_of


@pytest.mark.parametrize(
    ("count", "predicate", "text"),
    [
        (1, "have no answer", "1 of 8,000 prompts has no answer"),
        (2, "have no answer", "2 of 8,000 prompts have no answer"),
        (1, "do not fit", "1 of 8,000 prompts does not fit"),
        (1, "are text", "1 of 8,000 prompts is text"),
        (1, "switch thinking off", "1 of 8,000 prompts switches thinking off"),
        (1, "contain it", "1 of 8,000 prompts contains it"),
        (8000, "contain it", "8,000 of 8,000 prompts contain it"),
    ],
)
def test_the_verb_of_a_part_is_singular_for_one(count: int, predicate: str, text: str) -> None:
    assert part_of(count, 8000, "prompts", predicate) == text
