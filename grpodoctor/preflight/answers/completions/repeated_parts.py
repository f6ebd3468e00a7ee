"""Rewards that count parts of a response: steps, lines, tags, calls, headings.

A part without any content is repeated before the answer. A right answer must not earn more and more
with it, and a wrong one must not earn as much as a right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import (
    THOUGHT,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.trainer.rewards.user_reward import UserReward

PARTS = {
    "numbered steps": "Step {at}: I look at this again.\n",
    "words of order": "First I look at this. Next I look again. Then I wait. Finally I look.\n",
    "words of reflection": "Wait, let me check this again. However, I verify it. Therefore so.\n",
    "items of a list": "{at}. I look at this again.\n- and again\n",
    "headings": "## Part {at}\n**Again**\n",
    "thoughts in tags": "<think>\nI look at this again.\n</think>\n",
    "steps in tags": "<step>I look at this again.</step>\n",
    "tool calls": '<tool_call>\n{{"name": "search", "arguments": {{}}}}\n</tool_call>\n',
    "searches": "<search>again</search>\n",
    "code blocks": "```python\npass\n```\n",
}
"""Texts that say nothing, by the name of what a reward may count in them."""
_FEW, _MANY = 8, 40
"""Repetitions: a bonus with a usual limit has reached it at the first number."""
_MAX_ROWS, _MIN_ROWS = 12, 5
_FEW_ROWS = 16
"""Rows of reference answers up to which the function is slow, so that the fewest are tried."""


@dataclass(frozen=True, slots=True)
class CountedPart:
    """A part whose number counts."""

    name: str
    right: float
    """Median reward of right answers."""
    wrong: float
    """That of wrong answers behind many such parts."""
    growth: float
    """How many times as much right answers earn behind many such parts."""


def counted_part(reward: UserReward, answers: ReferenceAnswers) -> CountedPart | None:
    """The part whose number raises the reward on and on, or above that of a right answer.

    All parts are tried together first: two calls tell that none of them counts.
    """
    chosen = [
        at
        for at, missed in enumerate(answers.missed)
        if not missed and answers.rewards[at] > max(answers.wrong[at], answers.empty[at])
    ][: _MIN_ROWS if len(answers.rows) <= _FEW_ROWS else _MAX_ROWS]
    if len(chosen) < _MIN_ROWS or not any(
        _counts(reward, answers, chosen, parts) for parts in _halves()
    ):
        return None
    counted = (_counts(reward, answers, chosen, [name]) for name in PARTS)
    return max(filter(None, counted), key=lambda part: part.growth, default=None)


def _halves() -> tuple[list[str], list[str]]:
    """Parts that may stand together: those in tags may cost the format, and the others not."""
    in_tags = [name for name, part in PARTS.items() if part.startswith(("<", "`"))]
    return [name for name in PARTS if name not in in_tags], in_tags


def _counts(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int], names: Sequence[str]
) -> CountedPart | None:
    """Whether parts raise the reward with their number."""
    texts = [answers.answers[at] for at in rows]
    others = [wrong_answer(text, answers.answers) for text in texts]
    try:
        few, many, wrong = (
            median(_scored(reward, answers, rows, each, names, count))
            for each, count in ((texts, _FEW), (texts, _MANY), (others, _MANY))
        )
    except DataError:  # REW103 reports it
        return None
    right = median(answers.rewards[at] for at in rows)
    name, growth = " and ".join(names), many / right if right > 0 else 1.0
    is_growing = right < few < many
    is_above = wrong >= right > median(answers.wrong[at] for at in rows)
    if not (is_growing or is_above):
        return None
    return CountedPart(name, right, wrong, growth)


def _scored(
    reward: UserReward,
    answers: ReferenceAnswers,
    rows: Sequence[int],
    texts: Sequence[str],
    names: Sequence[str],
    count: int,
) -> tuple[float, ...]:
    """Rewards of answers behind repeated parts.

    Raises:
        DataError: if the function fails.
    """
    filler = "".join(PARTS[name].format(at=at) for at in range(1, count + 1) for name in names)
    form = answers.answer_format
    is_in_tags = any(PARTS[name].startswith("<") for name in names)
    # A thought within tags is the place for steps; further tags stand before the layout.
    form = (
        form.replace(THOUGHT, filler.strip())
        if THOUGHT in form and not is_in_tags
        else filler + form
    )
    responses = [format_answer(form, text) for text in texts]
    return tuple(reward([answers.rows[at] for at in rows], responses).total)
