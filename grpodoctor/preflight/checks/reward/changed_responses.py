"""Findings about changes of a response that a reward must not notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.completions.harmless_changes import (
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
from grpodoctor.preflight.answers.constructed_answers import (
    FORMATS,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.support.numbers import part_of
from grpodoctor.trainer.rewards.user_reward import RewardInput, UserReward

_THOUGHT = "<think>\nFirst I read the question.\n</think>"
_DRAFT = "At first I think the answer is {}. But that does not fit, so I work it out again."
_LABELS = ("answer line", "sentence")
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


def is_read_in(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int], form: str
) -> bool:
    """Whether right answers in a format earn more than wrong ones in it, by half of the usual gap.

    A sum of rewards may pay less for the layout and still read the answer.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded, and more than a wrong one.
        form: the format.
    """
    chosen = rows[:_MAX_ROWS]
    right = [format_answer(form, answers.answers[at]) for at in chosen]
    wrong = [
        format_answer(form, wrong_answer(answers.answers[at], answers.answers)) for at in chosen
    ]
    inputs = [answers.rows[at] for at in chosen]
    try:
        gains = [
            one - other
            for one, other in zip(
                reward(inputs, right).total, reward(inputs, wrong).total, strict=True
            )
        ]
    except DataError:  # REW103 reports it
        return False
    usual = [answers.rewards[at] - answers.wrong[at] for at in chosen]
    read = [gain >= gap / 2 for gain, gap in zip(gains, usual, strict=True)]
    return sum(read) > _MIN_SHARE * len(chosen)


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


def first_mention(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> Iterator[CheckFinding]:
    """A draft in the reasoning that is read in place of the answer behind it.

    A function that refuses two answers is strict; one that pays the right one before a wrong one,
    and not behind a draft, reads the first.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded, and more than a wrong one.
    """
    chosen = rows[:_MAX_ROWS]
    form = _paid_label(reward, answers, chosen) if len(chosen) >= _MIN_ROWS else ""
    if not form:
        return
    right = [format_answer(form, answers.answers[at]) for at in chosen]
    wrong = [wrong_answer(answers.answers[at], answers.answers) for at in chosen]
    drafts = [f"{_DRAFT.format(each)}\n{text}" for each, text in zip(wrong, right, strict=True)]
    plain = [f"{NEUTRAL}\n{text}" for text in right]
    behind = [
        f"{text}\n{format_answer(form, each)}" for each, text in zip(wrong, right, strict=True)
    ]
    inputs = [answers.rows[at] for at in chosen]
    try:
        lost, kept, first = (
            answers.lost_parts(chosen, reward(inputs, texts).total)
            for texts in (drafts, plain, behind)
        )
    except DataError:  # REW103 reports it
        return
    losing = [
        part
        for part, without, before in zip(lost, kept, first, strict=True)
        if part > _MAX_LOST >= max(without, before)
    ]
    if len(losing) > _MIN_SHARE * len(chosen):
        yield CheckFinding(
            "warning",
            f"The first mention of an answer counts: a draft in the reasoning costs the right "
            f"answer behind it {sum(losing) / len(losing):.0%} of its reward.",
            ("Read the last match of the pattern, such as re.findall(...)[-1].",),
            (f"full reward: {right[0]!r:.120}", f"less: {drafts[0]!r:.160}"),
            {"lost": sum(losing) / len(losing)},
        )


def _paid_label(reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]) -> str:
    """A format without tags and fences whose answers earn the full reward; empty if none does."""
    forms = (*answers.requested, answers.answer_format, *(FORMATS[name] for name in _LABELS))
    for form in dict.fromkeys(forms):
        if "</" in form or "```" in form or form.startswith("{"):
            continue
        texts = [format_answer(form, answers.answers[at]) for at in rows]
        try:
            lost = answers.lost_parts(rows, reward([answers.rows[at] for at in rows], texts).total)
        except DataError:  # REW103 reports it
            continue
        if sum(part <= _MAX_LOST for part in lost) > _MIN_SHARE * len(rows):
            return form
    return ""


def lost_before_label(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> Iterator[CheckFinding]:
    """A label that must begin the response, for rewards that measure the similarity to a reference.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded, and whose prompts ask for reasoning.
    """
    chosen, form = rows[:_MAX_ROWS], answers.answer_format
    label = form.partition("{answer}")[0].strip()
    if len(chosen) < _MIN_ROWS or not label:
        return
    texts = [f"{NEUTRAL}\n\n{format_answer(form, answers.answers[at])}" for at in chosen]
    try:
        rewards = reward([answers.rows[at] for at in chosen], texts).total
    except DataError:  # REW103 reports it
        return
    nothing = [
        value <= answers.empty[at] < answers.rewards[at]
        for at, value in zip(chosen, rewards, strict=True)
    ]
    if sum(nothing) > _MIN_SHARE * len(chosen):
        yield CheckFinding(
            "warning",
            f"Reasoning before {label!r:.40}, which the prompts ask for, costs the whole reward.",
            ("Search for the label in the response; do not require it at the beginning.",),
            (f"full reward: {form!r:.120}", f"none: {texts[0]!r:.120}"),
            {"share": sum(nothing) / len(chosen)},
        )


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
            f"{part_of(changed, total, 'rewards', 'change')} "
            f"with {LAST_LINE_BREAK} (the response).",
            (_ADVICE[LAST_LINE_BREAK],),
            (f"for example: {example[-_MAX_CHARACTERS:]!r}",),
            {"share": changed / total},
        )
