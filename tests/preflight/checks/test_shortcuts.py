"""A rule of thumb that finds most answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.planted.models import CHATML
from tests.trainer.rewards.reward_sources import BOXED

Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Make = Callable[..., PreflightContext]

VALUE = (
    BOXED
    + """
def reward(completions, answer, **kwargs):
    return [float(read(text) == right) for text, right in zip(completions, answer)]
"""
)
EQUATION = """
def reward(completions, answer, **kwargs):
    return [float("+" in text and right in text) for text, right in zip(completions, answer)]
"""


def row(number: int, prompt: str, answer: str) -> PromptRow:
    return PromptRow(f"line {number}", prompt, answer=answer, columns={"answer": answer})


def choices(longest_is_right: float) -> list[PromptRow]:
    rng, rows = random.Random(1), []
    for at in range(60):
        texts = [f"{'very ' * rng.randint(0, 2)}small {at} {n}" for n in range(4)]
        right = rng.randrange(4)
        if rng.random() < longest_is_right:
            texts[right] += ", because of what the text says about it"
        lines = (f"{letter}) {text}" for letter, text in zip("ABCD", texts, strict=True))
        rows.append(
            row(at, "\n".join([f"Which of these is right in case {at}?", *lines]), "ABCD"[right])
        )
    return rows


def sums(last_is_right: float) -> list[PromptRow]:
    rng, rows = random.Random(2), []
    for at in range(60):
        one, two, three = (rng.randint(10, 99) for _ in range(3))
        answer = three if rng.random() < last_is_right else one + two
        rows.append(
            row(
                at,
                f"Ann has {one} and {two} pears. Later there are {three}. How many?",
                str(answer),
            )
        )
    return rows


@pytest.mark.parametrize(("share", "found"), [(0.9, True), (0.2, False)])
def test_the_longest_option(
    share: float, found: bool, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    findings = findings_of("DAT123", context_of(dense_model, choices(share)))
    assert [each.severity for each in findings] == ["warning"] * found
    if found:
        assert "the longest option" in findings[0].summary
        assert findings[0].figures["chance"] == pytest.approx(0.25)


@pytest.mark.parametrize("form", ["{0}", "({0})", "{0}.", "{0}) because", "({1})", "#### {0}"])
def test_a_letter_is_read_in_any_form(
    form: str, tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [
        row(at, each.prompt, form.format(each.answer, str(each.answer).lower()))
        for at, each in enumerate(choices(0.9))
    ]
    (finding,) = findings_of("DAT123", context_of(CHATML.save(tmp_path / "model"), rows))
    assert "of 59 rows" in finding.summary  # one row has options of equal length


@pytest.mark.parametrize(
    ("share", "source", "severities"),
    [
        (0.9, VALUE, ["warning"]),
        (0.9, "", ["info"]),
        (0.9, EQUATION, []),  # the number alone earns nothing
        (0.1, VALUE, []),
    ],
)
def test_the_last_number(
    share: float,
    source: str,
    severities: list[str],
    dense_model: Path,
    context_of: Make,
    findings_of: Findings,
    reward_of: Callable[..., UserReward],
) -> None:
    reward = reward_of(source) if source else None
    context = context_of(dense_model, sums(share), reward=reward)
    findings = findings_of("DAT123", context)
    assert [each.severity for each in findings] == severities
    assert all("the last number" in each.summary for each in findings)
