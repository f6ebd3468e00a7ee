"""Findings about changes of a response that a reward must not notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer, wrong_answer
from grpodoctor.preflight.answers.harmless_changes import (
    DRAFT,
    FENCED,
    GIVEN,
    INDENTED,
    LAST_LINE_BREAK,
    NEUTRAL,
    REJECTED,
    TEXT_BEHIND,
    harmless_changes,
)
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import RewardInput, UserReward

_THOUGHT = "<think>\nFirst I read the question.\n</think>"
_MAX_ROWS = 16
_MIN_ROWS = 5
_MAX_LOST = 0.1
"""Part of a reward that a change may cost: a reward may prefer short responses."""
_MIN_SHARE = 0.5
_MIN_CHANGED = 0.25
"""Share of the tried responses whose reward a change of white space changes."""
_MAX_CHARACTERS = 120
_ADVICE: Mapping[str, str] = {
    LAST_LINE_BREAK: "Strip the response before it is matched; do not count what is behind it.",
    TEXT_BEHIND: "Search for the answer in the response; do not require it at the very end.",
    REJECTED: "Read the final answer: the one behind the label or tag, or the last one.",
    GIVEN: "Read the last number, or the one behind a label: solutions begin with those of the "
    "question.",
    FENCED: "Remove the code fence before the JSON is parsed; models write it without being asked.",
    INDENTED: "Parse the JSON of the whole response, also over several lines.",
    DRAFT: "Read the last code block: an example or a draft may come before the final one.",
}


def lost_by_changes(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int], *, reasons: bool
) -> Iterator[CheckFinding]:
    """Changes that cost correct responses a part of their reward.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded, and more than a wrong one.
        reasons: whether the prompts ask for reasoning before the answer.
    """
    by_kind: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for at in rows[:_MAX_ROWS]:
        answer = answers.answers[at]
        changes = harmless_changes(
            answers.answer_format, answer, wrong_answer(answer, answers.answers),
            "\n".join(answers.rows[at].texts()), reasons=reasons,
        )  # fmt: skip
        for kind, text in changes:
            by_kind[kind].append((at, text))
    lost: dict[str, tuple[float, str]] = {}
    for kind, each in by_kind.items():
        tried = _also_right(reward, answers, each) if kind == GIVEN else each
        if len(tried) < _MIN_ROWS:
            continue
        chosen = [at for at, _ in tried]
        try:
            rewards = reward([answers.rows[at] for at in chosen], [text for _, text in tried])
        except DataError:  # REW103 reports it
            continue
        parts = answers.lost_parts(chosen, rewards.total)
        losing = [part for part in parts if part > _MAX_LOST]
        if len(losing) > _MIN_SHARE * len(tried):
            lost[kind] = (sum(losing) / len(losing), tried[0][1])
    if lost:
        worst = max(part for part, _ in lost.values())
        is_unasked = set(lost) == {DRAFT} and not reasons
        yield CheckFinding(
            "info" if is_unasked else "warning",
            f"Correct responses lose {worst:.0%} of their reward with {' or '.join(lost)}.",
            tuple(_ADVICE[kind] for kind in lost),
            (
                f"full reward: {answers.answer_format!r:.120}",
                *(f"{kind}: {text[-_MAX_CHARACTERS:]!r}" for kind, (_, text) in lost.items()),
            ),
            {"lost": worst},
        )


def _also_right(
    reward: UserReward, answers: ReferenceAnswers, tried: list[tuple[int, str]]
) -> list[tuple[int, str]]:
    """The responses that keep their reward behind a line without numbers."""
    chosen = [at for at, _ in tried]
    texts = [
        f"{NEUTRAL}\n{format_answer(answers.answer_format, answers.answers[at])}" for at in chosen
    ]
    try:
        rewards = reward([answers.rows[at] for at in chosen], texts).total
    except DataError:  # REW103 reports it
        return []
    lost = dict(zip(chosen, rewards, strict=True))
    return [(at, text) for at, text in tried if lost[at] >= answers.rewards[at]]


def lost_behind_thought(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> Iterator[CheckFinding]:
    """A thought in tags that costs the answer behind it, also where a part is earned.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded.
    """
    chosen = rows[:_MAX_ROWS]
    if len(chosen) < _MIN_ROWS or "<think>" in answers.answer_format:
        return
    texts = [
        f"{_THOUGHT}\n{format_answer(answers.answer_format, answers.answers[at])}" for at in chosen
    ]
    try:
        rewards = reward([answers.rows[at] for at in chosen], texts)
    except DataError:  # REW103 reports it
        return
    losing = [part for part in answers.lost_parts(chosen, rewards.total) if part > _MAX_LOST]
    if len(losing) > _MIN_SHARE * len(chosen):
        lost = sum(losing) / len(losing)
        yield CheckFinding(
            "warning",
            f"Correct answers behind a thought in <think> lose {lost:.0%} of their reward.",
            ("Score what follows </think>, such as text.split('</think>')[-1].",),
            (f"full reward: {answers.answer_format!r:.120}", f"less: {texts[0][:120]!r}"),
            {"lost": lost},
        )


def changed_by_white_space(
    reward: UserReward,
    rows: Sequence[RewardInput],
    texts: Mapping[str, Sequence[str]],
    rewards: Mapping[str, Sequence[float]],
) -> Iterator[CheckFinding]:
    """White space around responses that changes their reward, in a task without answers.

    Args:
        reward: the reward function.
        rows: the prompts.
        texts: responses to each of them, by kind.
        rewards: their rewards.
    """
    values = [value for each in rewards.values() for value in each]
    least = _MAX_LOST * (max(values) - min(values))
    tried = {kind: each for kind, each in texts.items() if any(text.strip() for text in each)}
    changed = total = 0
    example = ""
    for kind, each in tried.items():
        try:
            again = reward(rows, [f"{text}\n" for text in each]).total
        except DataError:  # REW103 reports it
            return
        pairs = list(zip(rewards[kind], again, strict=True))
        count = sum(abs(one - other) > least for one, other in pairs)
        changed, total = changed + count, total + len(pairs)
        example = example or (each[0] if count else "")
    if least > 0 and changed > _MIN_CHANGED * total:
        yield CheckFinding(
            "warning",
            f"{changed} of {total} rewards change with {LAST_LINE_BREAK} (the response).",
            (_ADVICE[LAST_LINE_BREAK],),
            (f"for example: {example[-_MAX_CHARACTERS:]!r}",),
            {"share": changed / total},
        )
