"""Eight sound sets of the nineteenth examination that look odd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import nineteenth_rewards as w
from tests.preflight.planted import nineteenth_sets as s
from tests.preflight.planted import nineteenth_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import CHATML, GEMMA, LLAMA
from tests.preflight.planted.nineteenth_rewards import changed

_KEPT = r"""
import re
from functools import lru_cache

@lru_cache(maxsize=None)
def _grade(prompt, text, gold):
    found = re.findall(r"Verdict:\s*(yes|no)\b", text, re.IGNORECASE)
    return 1.0 if found and found[-1].lower() == gold else 0.0

def verdict_reward(prompts, completions, verdict, **kwargs):
    return [_grade(str(prompt), completion[0]["content"], gold) for prompt, completion, gold in zip(prompts, completions, verdict)]
"""
_RESTORED = changed(
    w.HEADLINE,
    ("    rewards = []\n    for completion, gold in zip(completions, headline):\n", "    order = sorted(range(len(completions)), key=lambda at: len(completions[at][0][\"content\"]))\n    rewards = [0.0] * len(completions)\n    for at in order:\n        completion, gold = completions[at], headline[at]\n"),
    ("rewards.append(_f1(found[-1], gold) if found else 0.0)", "rewards[at] = _f1(found[-1], gold) if found else 0.0"),
)  # fmt: skip
_SHOT = "Example\nQuestion: A baker sells 12 loaves a day for 3 euros each. How much does he earn in 5 days?\nSolution: 12 * 5 = 60 loaves, 60 * 3 = 180. \\boxed{180}\n\nQuestion: "


def nineteenth_healthy() -> tuple[Case, ...]:
    """Eight sets without a mistake; those at even places are of the first half."""
    return tuple(_all())


def healthy_first() -> tuple[Case, ...]:
    """Four sound sets of the first half."""
    return nineteenth_healthy()[::2]


def healthy_second() -> tuple[Case, ...]:
    """Four sound sets of the second half."""
    return nineteenth_healthy()[1::2]


def _all() -> Iterator[Case]:
    yield Case(
        name="grades are kept by prompt, response and answer", rows=s.claim_rows(300, 9351), reward=_KEPT, framework="trl", run_config=trl(),
    )  # fmt: skip
    yield Case(
        name="responses are sorted by length, rewards are not", rows=s.headline_rows(300, 9352), reward=_RESTORED, model=LLAMA,
    )  # fmt: skip
    yield Case(
        name="tiny quantities with a relative tolerance", rows=s.charge_rows(300, 9353), reward=w.CHARGE,
    )  # fmt: skip
    yield Case(
        name="answers in three scripts", rows=s.travel_rows(300, 9354), held_out=s.travel_rows(60, 9454), reward=w.CITY, model=GEMMA,
    )  # fmt: skip
    yield Case(
        name="topics in any order, or none", rows=s.topic_rows(300, 9355, empty=True), reward=w.TOPICS, framework="trl", run_config=trl(),
    )  # fmt: skip
    yield Case(
        name="a fifth of the questions is unknown", rows=s.passage_rows(300, 9356), reward=w.TAG,
    )  # fmt: skip
    yield Case(
        name="answers None and inf of lines of Python",
        rows=t.verl_rows(t.functions(300, 9357), "Think, then end with 'Answer: ' and what is printed.", "printed", "python"),
        reward=w.VERL_LINE, suffix=".parquet", framework="verl", run_config=verl(("truncation: error", "truncation: error\n  shuffle: false")),
    )  # fmt: skip
    polite = "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    yield Case(
        name="an example in the prompts and a system message of the template",
        rows=[{**row, "prompt": t.chat(f"{_SHOT}{row['prompt'][1]['content']} {s.ASK_BOX}\nSolution:")} for row in s.story_rows(300, 9358)],
        reward=w.BOX, model=replace(CHATML, template=polite + str(CHATML.template)),
    )  # fmt: skip
