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
from grpodoctor.preflight.texts.normal_form import number_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_MIN_ROWS = 5
_MOST = 0.5
"""Share of the expressions of a kind that must earn the reward."""
_MOST_PAID = 0.9
"""Share of puzzles whose target is paid: a rule of the reward, and no accident."""
_EXPRESSION = re.compile(
    r"\b(?:expression|equation|formula)\b|[+\-*/](?:[ ,]+[+\-*/]){2}", re.IGNORECASE
)
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


def paid_targets(answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """Puzzles that ask for an expression, and whose target earns the full reward alone."""
    posed = [
        at
        for at, (row, answer) in enumerate(zip(answers.rows, answers.answers, strict=True))
        if number_of(answer) is not None and _poses(row.prompt, answer)
    ]
    paid = [at for at in posed if not answers.missed[at]]
    if len(paid) > _MOST_PAID * len(answers.rows):
        form = format_answer(answers.answer_format, answers.answers[paid[0]])
        yield CheckFinding(
            "critical",
            f"the target of the puzzle: earns the full reward in {len(paid)} of "
            f"{len(answers.rows)} rows.",
            ("Require an expression that uses the given numbers, each as often as it is given.",),
            (f"{answers.rows[paid[0]].location}: {form!r:.120}",),
            {"share": len(paid) / len(answers.rows)},
        )


def _poses(prompt: str, target: str) -> bool:
    """Whether a prompt asks for an expression that makes a number."""
    number = rf"(?<![\w.]){re.escape(target)}(?![\w]|\.\d)"
    return bool(
        _EXPRESSION.search(prompt)
        and re.search(
            rf"\b(?:make|reach|get|give|equal|equals|obtain)\b[^.\n]{{0,40}}{number}", prompt
        )
    )
