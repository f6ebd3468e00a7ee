"""Findings about rewards of tasks without reference answers, such as judges, games and rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpodoctor.preflight.answers.constructed_answers import EMPTY, JUDGED
from grpodoctor.preflight.answers.free_responses import (
    FreeRewards,
    is_most,
    punctuated_words,
    score_free_responses,
    unscored_value,
)
from grpodoctor.preflight.checks.reward.changed_responses import changed_by_white_space
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

_SHOWN = 3
_MAX_CHARACTERS = 120
_SEARCHED_ROWS = 2000


def free_findings(
    reward: UserReward, rows: Sequence[PromptRow], advice: str
) -> Iterator[CheckFinding]:
    """What a dozen responses without a known right answer say about the reward.

    Args:
        reward: the reward function.
        rows: the prompts.
        advice: what to do about a verdict that pays.
    """
    free = score_free_responses(reward, rows)
    if free:
        yield from _of_free_responses(free, advice)
        yield from changed_by_white_space(reward, free.rows, free.texts, free.rewards)
        yield from _of_punctuation(reward, free.rows)
    column, value, count = unscored_value(reward, rows[:_SEARCHED_ROWS])
    if column:
        yield CheckFinding(
            "warning",
            f"Every tried response earns the same in rows with {column} {value!r:.40} ({count} "
            "rows), unlike in other rows.",
            ("Check how the reward function handles this value; it may not know it.",),
            figures={"rows": float(count)},
        )


def _of_punctuation(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Words that the rules ask for, next to a comma or a full stop."""
    lost, total, texts = punctuated_words(reward, rows)
    if total and is_most(lost / total):
        yield CheckFinding(
            "warning",
            f"Words that prompts ask for do not count next to a comma or full stop, in {lost} of "
            f"{total} rows.",
            ("Find words with a pattern such as \\bword\\b; do not split the text at blanks.",),
            tuple(f"...{text[-_MAX_CHARACTERS:]!r}" for text in texts),
            {"share": lost / total},
        )


def _of_free_responses(free: FreeRewards, advice: str) -> Iterator[CheckFinding]:
    """Responses that must not be the best ones, whatever the task is."""
    if (constant := free.constant) is not None:
        empty = free.rewards[EMPTY]
        also = ", also an empty one" if set(empty) == {constant} else " that is not empty"
        yield CheckFinding(
            "critical",
            f"The reward is the same for any response{also}: {constant:.3g} for "
            f"{len(free.texts) - 1} different responses to each of {len(free.rows)} prompts.",
            (
                "Check what the function does when it cannot parse a response or a judge's reply: "
                "a default in place of the score gives no gradient.",
            ),
            tuple(f"{kind}: {constant:.3g}" for kind in list(free.texts)[1 : 1 + _SHOWN]),
            {"reward": constant},
        )
        return
    if is_most(share := free.paid_silence_share()):
        earned = free.rewards[EMPTY][0]
        yield CheckFinding(
            "warning",
            f"{EMPTY}: earns {earned:.3g} in {share:.0%} of {len(free.rows)} rows, as much as "
            "the best and more than most other responses.",
            (
                "Check what the function returns when it cannot read a response, or when a judge's "
                "reply has no score: it must be the reward of a wrong answer.",
            ),
            figures={"share": share},
        )
    # A copy of the prompt is no test here: instructions state the rule that they are checked by.
    if is_most(share := free.highest_share(JUDGED)):
        earned = free.rewards[JUDGED][0]
        yield CheckFinding(
            "warning",
            f"{JUDGED}: earns {earned:.3g} in {share:.0%} of {len(free.rows)} rows, more than "
            "any other tried response.",
            (advice,),
            (f"{free.rows[0].location}: {free.texts[JUDGED][0][:_MAX_CHARACTERS]!r}",),
            {"share": share},
        )
