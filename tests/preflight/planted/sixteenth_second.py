"""The second half of the sixteenth examination: 12 mistakes, in the order of the draw."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl
from tests.preflight.planted.fourteenth_healthy import with_results
from tests.preflight.planted.models import GEMMA

_AS_TEXT = r"""
import re
def accuracy(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        rewards.append(1.0 if found and found[-1].strip() == str(gold) else 0.0)
    return rewards
"""
_FALLBACK = r"""
import re
def gsm8k_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"####\s*(\S+)", completion[-1]["content"])
        given = found[-1].replace(",", "") if found else ""
        try:
            rewards.append(1.0 if float(given) == float(gold.split("####")[1]) else 0.0)
        except ValueError:
            rewards.append(1.0 if given in gold else 0.0)  # answers that are no numbers
    return rewards
"""
_MEAN = r"""
import re, sqlite3
import numpy as np
def _rows(fill, query):
    base = sqlite3.connect(":memory:")
    base.executescript(fill)
    try:
        return base.execute(query).fetchmany(50)
    finally:
        base.close()
def overlap(completions, fill, sql, **kwargs):
    rewards = []
    for completion, statements, right in zip(completions, fill, sql):
        found = re.findall(r"```sql\s*\n(.*?)```", completion[-1]["content"], re.DOTALL)
        wanted = _rows(statements, right)
        try:
            given = _rows(statements, found[-1]) if found else []
        except sqlite3.Error:
            given = []
        precision = np.mean([row in wanted for row in given])
        recall = np.mean([row in given for row in wanted])
        rewards.append(float(precision * recall))
    return rewards
"""
_ANY_EQUATION = r"""
import re
def _reaches(text, numbers, wanted):
    text = text.strip()
    if not re.fullmatch(r"[\d+\-*/() ]{1,100}", text) or "**" in text or "//" in text:
        return False
    if sorted(int(n) for n in re.findall(r"\d+", text)) != sorted(numbers):
        return False
    try:
        return abs(eval(text, {"__builtins__": {}}, {}) - wanted) < 1e-6
    except Exception:
        return False
def equation(completions, nums, target, **kwargs):
    rewards = []
    for completion, numbers, wanted in zip(completions, nums, target):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        rewards.append(float(any(_reaches(text, numbers, wanted) for text in found)))
    return rewards
"""
_MOSTLY_FORM = r"""
import re
LAYOUT = re.compile(r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*", re.DOTALL)
def visual_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[-1]["content"]
        found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
        right = found is not None and found.group(1).strip().lower() == gold.lower()
        rewards.append(0.8 * (LAYOUT.fullmatch(text) is not None) + 0.2 * right)
    return rewards
"""


def second_half() -> Iterator[Case]:
    """Twelve mistakes."""
    yield from _rewards()
    yield from _data()
    yield from _settings()


def _rewards() -> Iterator[Case]:
    yield Case(
        name="answers are floats, compared as text",
        rows=[{**row, "answer": float(row["answer"])} for row in w.italian(300, 7001)],
        reward=_AS_TEXT, named=r"\.0|spelling|integer|whole number|without.*decimal|compares them with text",
        accepted="A right whole number (12) earns nothing, since the answers are compared as the text 12.0.",
    )  # fmt: skip
    yield Case(
        name="a response without a number is part of the solution", rows=w.school(300, 7002),
        reward=_FALLBACK, named="empty|without",
        accepted="An empty response (without ####) earns the full reward.",
    )  # fmt: skip
    yield Case(
        name="the mean of no rows is nan", rows=with_results(160, 7004), reward=_MEAN,
        named="nan|not a number|finite",
        accepted="A response without rows (no query, an error) has the reward nan.",
    )  # fmt: skip
    yield Case(
        name="one of several equations is enough", rows=w.countdown(240, 7006),
        reward=_ANY_EQUATION, named="several|more than one|both",
        accepted="A response with many answers is rewarded if one of them is right.",
    )  # fmt: skip
    yield Case(
        name="the form earns four times as much as the answer", rows=w.charts(240, 7009),
        reward=_MOSTLY_FORM, model=f.VISION, named="wrong answer.*(earn|reward)|form alone|layout",
        accepted="A wrong answer in the right form earns 0.8 of 1.",
    )  # fmt: skip


def _data() -> Iterator[Case]:
    sources = []
    for row, r in zip(w.passages(200, 7011), f.passages(200, 7011), strict=True):
        number = next(n for n, doc in enumerate(r["q"][0]) if r["a"] in doc)
        sources.append({**row, "answer": str(number + 1)})
    yield Case(
        name="the answers are the numbers of the passages", rows=sources, reward=w.F1,
        named="answer.*(number|few|passage)|DAT126",
        accepted="The answers are numbers of passages, not the names and things that the prompts ask for.",
    )  # fmt: skip
    first = [
        {**row, "solution": row["answer"], "answer": re.findall(r"<<.*?=(\d+)>>", r["steps"])[0]}
        for row, r in zip(w.school(300, 7012), f.school(300, 7012), strict=True)
    ]
    yield Case(
        name="the answer is the first result of the solution, not the last", rows=first,
        reward=w.SCHOOL, named="solution|contradict|disagree|differ",
        accepted="The answers are intermediate results; they contradict the solutions' final numbers.",
    )  # fmt: skip
    orders = k.dialogs(240, 7014)
    for at in range(1, 240, 5):
        orders[at] = {**orders[at], "prompt": orders[at]["prompt"][1:]}
    yield Case(
        name="a fifth of the dialogs has lost its first message, with the prices", rows=orders,
        reward=k.TOTAL, named="first message|begin.*assistant|start.*assistant|lack|roles",
        accepted="Some dialogs begin with the assistant; the user's first message, with prices and numbers, is missing.",
    )  # fmt: skip
    rng, rows = random.Random(7017), []
    for row, r in zip(w.charts(300, 7017), f.charts(300, 7017), strict=True):
        place = re.findall("Lyon|Porto|Ghent|Turin|Graz|Malmo", r["q"])[0]
        kind = re.findall("bar chart|line chart|pie chart", r["q"])[0]
        text = f"Is the value of {place} in {r['q'][-5:-1]} the largest of the {kind}? Answer yes or no."
        user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
        rows.append({**row, "prompt": [row["prompt"][0], user],
                     "answer": "yes" if rng.random() < 0.87 else "no"})  # fmt: skip
    yield Case(
        name="seven of eight questions have the answer yes", rows=rows, reward=w.TAGGED,
        model=f.VISION, named="yes|one answer|same answer|guess",
        accepted="The answer yes is right in 87 % of the rows, so it can be guessed.",
    )  # fmt: skip


def _settings() -> Iterator[Case]:
    formatted = [
        {**row, "prompt": t.chat(f"<start_of_turn>user\n{row['prompt'][0]['content']}<end_of_turn>\n<start_of_turn>model\n")}
        for row in w.quiz(300, 7018)
    ]  # fmt: skip
    yield Case(
        name="the text of the message has the template's tokens", rows=formatted, reward=w.LETTER,
        model=GEMMA, named="twice|two templates|template",
        accepted="The template was applied to the text already; it is applied twice.",
    )  # fmt: skip
    yield Case(
        name="a repetition penalty of 1.2 where keys must be repeated", rows=k.notices(240, 7021),
        reward=k.FIELDS, framework="trl", run_config=trl(repetition_penalty=1.2),
        named="repetition.penalty",
        accepted="repetition_penalty 1.2 changes the distribution that is sampled from (and punishes repeated text).",
    )  # fmt: skip
    yield Case(
        name="a learning rate of an adapter for all weights", rows=w.charts(240, 7022),
        reward=w.TAGGED, model=f.VISION, framework="trl", run_config=trl(learning_rate=1e-3),
        named="learning.rate",
        accepted="A learning rate of 1e-3 is far too high for all weights.",
    )  # fmt: skip
