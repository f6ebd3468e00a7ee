"""Prompts of one source that were cut shorter than the others are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from grpodoctor.preflight.checks.data.truncated_prompts import TruncatedPrompts, cut_within_a_word
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding


def _questions(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    names = ["Ann", "Bartholomew", "Cleopatra", "Daniel", "Eve"]
    things = ["apples", "pens", "watermelons", "postcards"]
    return [
        (
            f"{rng.choice(names)} has {rng.randint(3, 60)} {thing} and {rng.choice(names)} gives "
            f"{rng.randint(3, 60)} more. How many {thing} are there now?"
        )
        for thing in rng.choices(things, k=count)
    ]


def _findings(texts: list[str]) -> list[CheckFinding]:
    rows = tuple(PromptRow(f"line {at}", text, answer="1") for at, text in enumerate(texts))
    context = PreflightContext(files=None, rows=rows, settings=RunSettings(max_tokens=32))
    result: Any = TruncatedPrompts().examine(context)
    return list(result)


@pytest.mark.parametrize("limit", [33, 40, 47])
def test_a_part_that_was_cut_at_a_lower_length_is_found(limit: int) -> None:
    texts = [text if at % 6 else text[:limit] for at, text in enumerate(_questions(200, 3))]
    (finding,) = _findings(texts)
    assert (finding.severity, finding.figures["share"]) == ("warning", 34 / 200)
    assert f"{limit} characters" in finding.summary


def _code(number: int) -> str:
    return f"Return the checksum of the file with id {number:08x}"


@pytest.mark.parametrize(
    "other",
    [_code, lambda _: "Say what this word means: tree", lambda at: f"Compute {10 + at % 80} + 12"],
)
def test_prompts_without_a_full_stop_of_one_length_are_whole(other: Callable[[int], str]) -> None:
    texts = [text if at % 6 else other(at) for at, text in enumerate(_questions(200, 4))]
    assert _findings(texts) == []
    assert _findings(_questions(200, 5)) == []


def test_a_word_that_stands_within_a_text_is_whole() -> None:
    texts = ["How many pens are there?", "There are many ways.", "Tell me how man", "Say how many"]
    assert cut_within_a_word(texts) == [False, False, True, False]
