"""Rewards that count parts, pay silence, read the first row, or trust an unreadable judge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grpodoctor.preflight.answers.completions.judge_replies import paid_refusal
from grpodoctor.preflight.answers.completions.repeated_parts import counted_part
from grpodoctor.preflight.answers.data_repairs import helpful_repair
from grpodoctor.preflight.answers.free_responses import reversed_rewards, score_free_responses
from grpodoctor.preflight.answers.reference_answers import score_reference_answers
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.trainer.rewards.user_reward import UserReward

Rewards = Callable[..., UserReward]
ROWS = [
    PromptRow(f"line {at}", f"{at} + 1?", answer=str(at + 1), columns={"answer": str(at + 1)})
    for at in range(20, 40)
]
_COUNTED = r"""
import re
def reward(completions, answer, **kwargs):
    return [
        float(c.rsplit("Answer: ", 1)[-1].strip() == a) + BONUS
        for c, a in zip(completions, answer)
    ]
"""


@pytest.mark.parametrize(
    ("bonus", "part"),
    [
        ("0.1 * len(re.findall(r'Step \\d+:', c))", "numbered steps"),
        ("0.1 * c.count('<tool_call>')", "tool calls"),
        ("0.1 * c.count('```')", "code blocks"),
        ("min(0.9, 0.1 * len(re.findall(r'Step \\d+:', c)))", ""),
        ("0.0", ""),
    ],
)
def test_a_bonus_for_each_part_is_found(reward_of: Rewards, bonus: str, part: str) -> None:
    reward = reward_of(_COUNTED.replace("BONUS", bonus))
    answers = score_reference_answers(reward, ROWS, RunSettings())
    assert answers is not None
    assert answers.threshold is not None
    found = counted_part(reward, answers)
    assert (found.name if found else "") == part
    assert found is None or found.wrong >= found.right == 1.0


@pytest.mark.parametrize(
    ("value", "share"),
    [
        ("1.0 if len(c) < 3 or c.count(' ') == 200 else 0.0", 1.0),
        ("1.0 if len(c) < 200 else 0.0", 0.0),  # a limit of the length
        ("0.0 if len(c) < 3 else -1.0", 0.0),  # a penalty
        ("len(c)", 0.0),
    ],
)
def test_silence_among_the_best_responses(reward_of: Rewards, value: str, share: float) -> None:
    reward = reward_of(
        f"def reward(completions, **kw):\n    return [{value} for c in completions]\n"
    )
    free = score_free_responses(reward, ROWS)
    assert free is not None
    assert free.paid_silence_share() == share


@pytest.mark.parametrize(("column", "depends"), [("word[0]", True), ("word[at]", False)])
def test_rewards_by_the_first_row(reward_of: Rewards, column: str, *, depends: bool) -> None:
    words = ("river", "castle", "harbour", "garden")
    rows = [
        PromptRow(f"line {at}", f"Write about {at}.", columns={"word": words[at % 4]})
        for at in range(12)
    ]
    reward = reward_of(
        "def reward(completions, word, **kw):\n"
        f"    return [float({column} in c) for at, c in enumerate(completions)]\n"
    )
    free = score_free_responses(reward, rows)
    assert free is not None
    assert (reversed_rewards(reward, free)[0] > 0) is depends


def test_numbers_stored_as_text_are_named(reward_of: Rewards) -> None:
    rows = [
        PromptRow(
            f"line {at}", f"Use [{at}, 3] to make {at + 3}.", answer=str(at + 3),
            columns={"nums": [at, 3], "target": str(at + 3)},
        )
        for at in range(20, 40)
    ]  # fmt: skip
    reward = reward_of(
        "import re\ndef reward(completions, target, nums, **kw):\n"
        "    said = [re.findall(r'<answer>([-+* 0-9()]+)</answer>', c) for c in completions]\n"
        "    return [float(bool(s) and eval(s[-1]) == t and '+' in s[-1])"
        " for s, t in zip(said, target)]\n"
    )
    repair = helpful_repair(reward, rows, RunSettings())
    assert repair is not None
    assert "'target' holds text" in repair.summary


_HELPER = r"""
import re
def ask_judge(text):
    raise ConnectionError("no server")
def reward(completions, **kw):
    found = [re.search(r"Score: (\d+)", ask_judge(c)) for c in completions]
    return [float(f.group(1)) / 10 if f else DEFAULT for f in found]
"""
_CLIENT = r"""
import sys, types
sys.modules["openai"] = types.ModuleType("openai")
class OpenAI:
    def __init__(self, **kw):
        raise ConnectionError("no server")
OpenAI.__module__ = "openai"
async def grade(text):
    reply = await OpenAI(base_url="x").chat.completions.create(messages=[text])
    said = reply.choices[0].message.content.strip().lower()
    return DEFAULT if said not in ("yes", "no") else float(said == "yes")
async def reward(completions, **kw):
    return [await grade(c) for c in completions]
"""


@pytest.mark.parametrize("source", [_HELPER, _CLIENT])
@pytest.mark.parametrize(
    ("default", "paid"), [("1.0", True), ("0.0", False), ("0.5", True), ("0.2", False)]
)
def test_a_reply_without_a_score(
    reward_of: Rewards, source: str, default: str, *, paid: bool
) -> None:
    found = paid_refusal(reward_of(source.replace("DEFAULT", default)), ROWS)
    assert (found is not None) is paid
    assert found is None or (found.low, found.default) == (0.0, float(default))


def test_nothing_between_a_penalty_and_a_reward_is_no_fault(reward_of: Rewards) -> None:
    source = _HELPER.replace("float(f.group(1)) / 10", "float(f.group(1)) / 5 - 1")
    assert paid_refusal(reward_of(source.replace("DEFAULT", "0.0")), ROWS) is None


def test_a_function_without_a_judge_has_nothing_to_replace(reward_of: Rewards) -> None:
    source = (
        "def score(text):\n    return 'Score: 1'\n"
        "def reward(completions, **kw):\n    return [1.0 for c in completions]\n"
    )
    reward = reward_of(source)
    assert reward.with_reply(ROWS[:2], ["a", "b"], "no") is None
    assert paid_refusal(reward, ROWS) is None
