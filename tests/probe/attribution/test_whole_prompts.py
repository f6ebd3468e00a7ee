"""Prompts of which one side reads a part only, or which belong to other rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.causes.tokens.whole_prompts import WholePrompts
from tests.probe.attribution.test_other_prompts import found_in_learner

PART = "each prompt without part 2 of 3 of its tokens"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("left_kept:9", "the last 9 tokens of each prompt"),
        ("rows_joined:3", "the prompts of other rows in 4 of 12 rows"),
        pytest.param("thinking_stripped", PART, marks=pytest.mark.slow),
    ],
)
def test_prompts_that_are_cut_or_of_another_row_are_found(
    tmp_path: Path, fault: str, words: str
) -> None:
    result = found_in_learner(WholePrompts(), tmp_path, fault)
    assert result is not None
    assert result.details == (words,)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
def test_no_whole_prompt_explains_another_fault_of_the_learner(tmp_path: Path) -> None:
    assert found_in_learner(WholePrompts(), tmp_path, "attention_scale:1.3") is None
