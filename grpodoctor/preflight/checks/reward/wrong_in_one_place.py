"""Findings about answers that are wrong in one place and earn the full reward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer, wrong_answer
from grpodoctor.preflight.answers.near_misses import MORE_THAN_RIGHT, near_misses
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

THOUGHT = "the right answer in the thought, and a wrong one behind it"
_MIN_LETTERS = 4
"""Letters of an answer that no text contains by accident."""
_MAX_ROWS = 24
_MIN_ROWS = 5
_SHOWN = 3
_MAX_CHARACTERS = 160
_MIN_SHARE = 0.5
"""Share of rows in which a wrong place is not seen: some changes give an equal answer by chance."""


def ignored_places(
    reward: UserReward, answers: ReferenceAnswers, *, thinks: bool
) -> Iterator[CheckFinding]:
    """Places of the answers that do not count, one finding for all of them.

    Args:
        reward: the reward function.
        answers: the data's answers.
        thinks: whether prompts or the function know a thought in tags.
    """
    survivors = dict(_survivors(reward, answers, thinks=thinks))
    for kind in MORE_THAN_RIGHT.intersection(survivors):
        share, example = survivors.pop(kind)
        yield CheckFinding(
            "warning",
            f"{kind}: earns more than the right answer in {share:.0%} of the rows.",
            ("Subtract reward for what no prompt asks for, or ignore it; check the sign.",),
            (example,),
            {"share": share},
        )
    if not survivors:
        return
    kinds = sorted(survivors, key=lambda kind: -survivors[kind][0])
    share, _ = survivors[kinds[0]]
    named = "; ".join(kinds[:_SHOWN])
    yield CheckFinding(
        "warning",
        f"Wrong in one place: {named}: the full reward in {share:.0%} of the rows.",
        (
            "Compare the whole answer: this place of it does not count. If an answer is run or "
            "looked up, give it data on which right and wrong ones differ.",
        ),
        tuple(f"{kind}: {survivors[kind][1]!r:.200}" for kind in kinds[:_SHOWN]),
        {"share": share},
    )


def _survivors(
    reward: UserReward, answers: ReferenceAnswers, *, thinks: bool
) -> Iterator[tuple[str, tuple[float, str]]]:
    """Kinds of wrong answers that most rows pay like the right one; their share and an example."""
    right = [
        at
        for at, missed in enumerate(answers.missed)
        if not missed and answers.rewards[at] > max(answers.wrong[at], answers.empty[at])
    ][:_MAX_ROWS]
    by_kind: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for turn, at in enumerate(right):
        answer, prompt = answers.answers[at], answers.rows[at].prompt
        for kind, text in near_misses(answer, answers.answers, prompt, turn):
            by_kind[kind].append((at, format_answer(answers.answer_format, text)))
        if thinks and "<think>" not in answers.answer_format and len(answer) >= _MIN_LETTERS:
            wrong = format_answer(answers.answer_format, wrong_answer(answer, answers.answers))
            by_kind[THOUGHT].append((at, f"<think>\n{answer}\n</think>\n{wrong}"))
    for kind, tried in by_kind.items():
        if len(tried) < _MIN_ROWS:
            continue
        try:
            rewards = reward([answers.rows[at] for at, _ in tried], [text for _, text in tried])
        except DataError:  # REW103 reports it
            continue
        paid = [
            text
            for (at, text), value in zip(tried, rewards.total, strict=True)
            if value > answers.rewards[at]
            or (value == answers.rewards[at] and kind not in MORE_THAN_RIGHT)
        ]
        if len(paid) >= _MIN_SHARE * len(tried):
            yield kind, (len(paid) / len(tried), paid[0][:_MAX_CHARACTERS])
