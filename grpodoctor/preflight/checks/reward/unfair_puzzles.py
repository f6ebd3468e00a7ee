"""Findings about number puzzles whose rules the reward does not check."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.kinds.number_puzzles import (
    LEFT_OUT,
    NOT_GIVEN,
    TWICE,
    posed_puzzles,
    unfair_solutions,
)
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

_MIN_ROWS = 5
_MOST = 0.5
"""Share of the expressions of a kind that must earn the reward."""
_ONCE = re.compile(r"\b(?:once|one time|a single time)\b", re.IGNORECASE)
_ALL = re.compile(
    r"\b(?:each|every|all)\b[^.\n]{0,40}\bnumbers?\b|"
    r"\bnumbers?\b[^.\n]{0,20}\b(?:exactly|only)? ?once\b",
    re.IGNORECASE,
)
_SOME = re.compile(
    r"\bat most once\b|\bsome (?:or all )?of\b|\ba subset\b|\bnot (?:have to|need to)\b|"
    r"\b(?:once|all) or not at all\b",
    re.IGNORECASE,
)
"""Rules that allow numbers to be left out."""


def unfair_puzzles(reward: UserReward, answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """Expressions that reach the target against the prompt's rules, and earn the reward."""
    tried: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for at, puzzle in enumerate(posed_puzzles(answers.rows)):
        if puzzle is None or answers.missed[at]:
            continue
        text = "\n".join(answers.rows[at].texts())
        for kind, expression in unfair_solutions(puzzle):
            if _forbids(text, kind):
                tried[kind].append((at, expression))
    paid: dict[str, str] = {}
    for kind, each in tried.items():
        texts = [format_answer(answers.answer_format, expression) for _, expression in each]
        try:
            rewards = reward([answers.rows[at] for at, _ in each], texts).total
        except DataError:  # REW103 reports it
            continue
        full = [
            expression
            for (at, expression), value in zip(each, rewards, strict=True)
            if value >= answers.rewards[at]
        ]
        if len(each) >= _MIN_ROWS and len(full) > _MOST * len(each):
            paid[kind] = full[0]
    if paid:
        yield CheckFinding(
            "warning",
            f"Expressions with {' or '.join(paid)} earn the full reward.",
            (
                "Compare the sorted numbers of the expression with the given ones, so that each "
                "counts as often as it is given.",
            ),
            tuple(f"{kind}: {expression!r}" for kind, expression in paid.items()),
        )


def _forbids(prompt: str, kind: str) -> bool:
    if kind == NOT_GIVEN:
        return True
    if kind == TWICE:
        return bool(_ONCE.search(prompt))
    return kind == LEFT_OUT and bool(_ALL.search(prompt)) and not _SOME.search(prompt)
