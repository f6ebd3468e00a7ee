"""What a reward function pays if its judge's reply cannot be read.

The judge is replaced by a stub: replies with a score show the scale, and a refusal shows the
default. A function without a judge has nothing to replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import UNRELATED
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.trainer.rewards.user_reward import UserReward

REFUSAL = "I am sorry, but I cannot grade this response."
_CUT = "The response begins well. Let me compare it with"
_FORMS = (
    "Score: {score}", "[[{score}]]", '{{"score": {score}}}', "<score>{score}</score>", "{score}",
    "Rating: {score}/10", "\\boxed{{{score}}}",
)  # fmt: skip
_VERDICTS = (("no", "yes"), ("NO", "YES"), ("incorrect", "correct"), ("INCORRECT", "CORRECT"),
             ("FAIL", "PASS"), ("Verdict: no", "Verdict: yes"), ("false", "true"))  # fmt: skip
_SCORES = (0, 1, 10, 100)
_ROWS = 4
_FAIR_PART = 0.4
"""Part of a good score that a reply without one may not earn: a default of one half is usual."""


@dataclass(frozen=True, slots=True)
class PaidRefusal:
    """Rewards of replies with a score, and of a reply without one."""

    reply: str
    default: float
    low: float
    """Reward of the worst reply that is read."""
    high: float
    """That of the best one."""
    high_reply: str


def paid_refusal(reward: UserReward, rows: Sequence[PromptRow]) -> PaidRefusal | None:
    """A reply without a score that is paid; None if it is not.

    It earns as much as a good one, or at least a fair part of it: on a scale from zero, each such
    reply beats a bad score. On a scale with penalties, nothing may mean neither good nor bad.
    None too if the function has no judge, or reads no reply of the usual forms.
    """
    chosen = rows[:_ROWS]
    if not chosen or _earned(reward, chosen, REFUSAL) is None:
        return None
    scale = _scale(reward, chosen)
    if scale is None:
        return None
    low, high, high_reply = scale
    for reply in (REFUSAL, _CUT, ""):
        default = _earned(reward, chosen, reply)
        if default is None or not low < high:
            continue
        is_fair = low >= 0 and default - low >= _FAIR_PART * (high - low)
        if default >= high or is_fair:
            return PaidRefusal(reply, default, low, high, high_reply)
    return None


def _scale(reward: UserReward, rows: Sequence[PromptRow]) -> tuple[float, float, str] | None:
    """Rewards of the worst and of a good reply, and the latter.

    If every higher number earns more, the good reply is the one that earns 1, as scores are
    usually divided by the best one; or a 1, if numbers are the reward.
    """
    for form in _FORMS:
        earned = [_earned(reward, rows, form.format(score=score)) for score in _SCORES]
        low, one, ten, hundred = (value if value is not None else 0.0 for value in earned)
        if None in earned[:2] or low >= max(one, ten):
            continue
        if one < ten < hundred:
            if one <= 0:  # a scale with penalties: the first score that is none
                above = ((ten, 10), (hundred, 100))
                high, score = next((pair for pair in above if pair[0] > 0), (one, 1))
            else:
                high, score = (one, 1) if one >= 1 else (1.0, round(1 / one))
        else:
            high, score = (ten, 10) if ten > one else (one, 1)
        if high > low:
            return low, high, form.format(score=score)
    for bad, good in _VERDICTS:
        low_reward, high_reward = _earned(reward, rows, bad), _earned(reward, rows, good)
        if low_reward is not None and high_reward is not None and low_reward < high_reward:
            return low_reward, high_reward, good
    return None


def _earned(reward: UserReward, rows: Sequence[PromptRow], reply: str) -> float | None:
    """Median reward of a sentence if the judge replies so; None without a judge or if it fails."""
    try:
        values = reward.with_reply(rows, [UNRELATED] * len(rows), reply)
    except DataError:
        return None
    return None if values is None else median(values.total)
