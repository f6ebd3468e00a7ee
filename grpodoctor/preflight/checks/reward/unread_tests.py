"""Findings about unit tests of the data that the reward function does not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

_FAILING = "assert False"
_MAX_ROWS = 8
_MIN_ROWS = 3
_MIN_SHARE = 0.5


def unread_tests(reward: UserReward, answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """Columns of assertions whose last one does not count.

    Right programs are scored with a last test that no program passes, and must lose by it.
    """
    right = [
        at
        for at, missed in enumerate(answers.missed)
        if not missed and answers.rewards[at] > max(answers.wrong[at], answers.empty[at])
    ][:_MAX_ROWS]
    for name in dict.fromkeys((*reward.parameters, *reward.keywords)):
        failing = {at: _with_failing_test(answers.rows[at].columns.get(name)) for at in right}
        tried = [at for at, tests in failing.items() if tests is not None]
        if len(tried) < _MIN_ROWS:
            continue
        rows = [
            replace(answers.rows[at], columns={**answers.rows[at].columns, name: failing[at]})
            for at in tried
        ]
        texts = [format_answer(answers.answer_format, answers.answers[at]) for at in tried]
        try:
            rewards = reward(rows, texts).total
        except DataError:  # REW103 reports it
            continue
        paid = [
            at for at, value in zip(tried, rewards, strict=True) if value >= answers.rewards[at]
        ]
        if len(paid) >= _MIN_SHARE * len(tried):
            yield CheckFinding(
                "critical",
                f"The last test of the column {name!r} is not run: a test that no program passes "
                f"costs nothing in {len(paid)} of {len(tried)} rows.",
                ("Run all tests of a row, and count each of them.",),
                tuple(answers.rows[at].location for at in paid),
                {"share": len(paid) / len(tried)},
            )


def _with_failing_test(tests: Any) -> Any:
    """The tests with a last one that fails; None if they are no list of several assertions."""
    if isinstance(tests, list) and len(tests) > 1:
        is_test = all(
            isinstance(test, str) and test.lstrip().startswith("assert") for test in tests
        )
        return [*tests[:-1], _FAILING] if is_test else None
    if isinstance(tests, str):
        lines = [line for line in tests.strip().splitlines() if line.strip()]
        is_test = len(lines) > 1 and all(line.startswith("assert") for line in lines)
        return "\n".join([*lines[:-1], _FAILING]) if is_test else None
    return None
