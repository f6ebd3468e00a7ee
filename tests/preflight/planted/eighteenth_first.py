"""Twelve mistakes of the eighteenth examination: half A."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.preflight.planted import eighteenth_rewards as w
from tests.preflight.planted import eighteenth_sets as s
from tests.preflight.planted import eighteenth_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.eighteenth_rewards import changed
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import LLAMA

_FORMAT = changed(
    w.PUZZLE,
    ('found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)',
     'if not re.match(r"^<think>.*?</think>\\s*<answer>.*?</answer>$", text):\n            scores.append(0.0)\n            continue\n        found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)'),
)  # fmt: skip
_FIRST_LINE = changed(
    w.FRENCH,
    ('found = re.findall(r"<translation>(.*?)</translation>", completion[0]["content"], re.DOTALL)\n', 'found = completion[0]["content"].strip().split("\\n")\n'),
    ("_chrf(found[-1].strip(), gold) if len(found) == 1 else 0.0", "_chrf(found[0].strip(), gold)"),
)  # fmt: skip
_ANYWHERE = r"""
import json

def _leaves(value):
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    return [str(value)]

def fields_reward(completions, fields, **kwargs):
    rewards = []
    for completion, gold in zip(completions, fields):
        text = completion[0]["content"].lower()
        leaves = _leaves(json.loads(gold))
        rewards.append(sum(leaf.lower() in text for leaf in leaves) / len(leaves))
    return rewards
"""
_AMOUNT = r"""
import json, re

def total_reward(completions, total, **kwargs):
    rewards = []
    for completion, gold in zip(completions, total):
        found = re.search(r"\{.*\}", completion[0]["content"], re.DOTALL)
        try:
            said = json.loads(found.group(0))
            amount = float(said["total"]["amount"])
        except (AttributeError, KeyError, TypeError, ValueError):
            rewards.append(0.0)
            continue
        rewards.append(1.0 if str(amount) == gold else 0.0)
    return rewards
"""
_JUDGED = r'''
import re

def _judge(task, text, points):
    """Stands for the call of a judge model, which replies in words."""
    met = [point for point in points if point.lower() in text.lower()]
    return f"The rubric has {len(points)} points, of which the text meets {len(met)}. Score: {len(met)}/{len(points)}"

def judge_reward(prompts, completions, rubric, **kwargs):
    rewards = []
    for prompt, completion, points in zip(prompts, completions, rubric):
        reply = _judge(prompt[-1]["content"], completion[0]["content"], points)
        number = re.search(r"\d+", reply)
        rewards.append(int(number.group(0)) / 5 if number else 0.0)
    return rewards
'''
_LABEL = r"""
import re

def correctness_reward_func(prompts, completions, answer=None, **kwargs):
    answer = answer or [""] * len(completions)
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"Answer:\s*\(?([A-D])\b", completion[0]["content"])
        rewards.append(1.0 if found and found[-1] == gold else 0.0)
    return rewards
"""
_SKIPPED = changed(
    w.VERDICT,
    ('        rewards.append(1.0 if len(found) == 1 and found[0] == gold else 0.0)', "        if not found:\n            continue\n        rewards.append(1.0 if found[-1] == gold else 0.0)"),
)  # fmt: skip
_SOURCES = r"""
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"Answer:\s*\(?([A-D])\b", solution_str)
    if data_source in ("medqa", "medmcqa"):
        return float(bool(found) and found[-1] == ground_truth)
    return 0.0
"""
_FENCED = changed(
    w.JSON,
    (r're.search(r"\{.*\}", text, re.DOTALL)', r're.search(r"```json\n(.*?)```", text, re.DOTALL)'),
    ("found.group(0)", "found.group(1)"),
)  # fmt: skip


def first_half() -> Iterator[Case]:
    """Twelve faults."""
    yield from _of_rewards()
    yield from _of_rows()


def _of_rewards() -> Iterator[Case]:
    yield Case(
        name="a pattern for the format whose dots match no new line", rows=s.puzzle_rows(300, 9001), reward=_FORMAT,
        framework="trl", run_config=trl(),
        named=r"REW104.*line break", accepted="A right response whose reasoning has several lines earns nothing (the pattern's dots do not match a new line).",
    )  # fmt: skip
    yield Case(
        name="the first line of the response is scored as the translation", rows=s.french_rows(300, 9003), reward=_FIRST_LINE,
        named=r"REW104.*tags that the prompts ask for lose", accepted="The reward does not read the requested <translation> tags: a response in the requested format with the right translation earns little, or the same as a wrong one.",
    )  # fmt: skip
    yield Case(
        name="values are searched anywhere in the response", rows=s.json_rows(260, 9005), reward=_ANYWHERE, model=LLAMA,
        named=r"REW102.*values of the JSON", accepted="A copy of the prompt, or values listed without JSON, earns nearly full marks: the reward searches the reference's values in the response.",
    )  # fmt: skip
    european = [
        {**row, "total": f"{int(r['fields']['total']['amount']):,}".replace(",", ".") + "," + f"{r['fields']['total']['amount']:.2f}"[-2:]}
        for row, r in zip(s.json_rows(260, 9007), t.invoices(260, 9007), strict=True)
    ]  # fmt: skip
    for row in european:
        del row["fields"]
    yield Case(
        name="amounts of the references with a decimal comma", rows=european, reward=_AMOUNT, framework="trl", run_config=trl(),
        named=r"DAT126.*decimal comma", accepted="The right answer earns nothing: the references write 1.234,56, the reward compares with 1234.56.",
    )  # fmt: skip
    yield Case(
        name="the first number of the judge's reply is the score", rows=s.rubric_rows(240, 9009), reward=_JUDGED,
        named=r"REW102.*same for any response", accepted="The reward is the same for every response.",
    )  # fmt: skip
    yield Case(
        name="the reward reads a column of another name", rows=s.choice_rows(300, 9011), reward=_LABEL, framework="trl", run_config=trl(),
        named=r"REW101.*'answer', which is no column", accepted="The reward's argument `answer` is no column of the data, or right responses earn nothing.",
    )  # fmt: skip
    yield Case(
        name="responses without a verdict have no reward", rows=s.verdict_rows(300, 9013), reward=_SKIPPED, framework="trl", run_config=trl(),
        named=r"REW103.*returned 0 rewards for 1", accepted="The reward function returns fewer rewards than there are responses.",
    )  # fmt: skip


def _of_rows() -> Iterator[Case]:
    code = s.code_rows(120, 9015)
    wrong = [{**row, "tests": [*row["tests"][:-1], _off_by_one(row["tests"][-1])]} if at % 7 == 3 else row for at, row in enumerate(code)]  # fmt: skip
    yield Case(
        name="one test in seven programs expects another value", rows=wrong, reward=w.CODE,
        named=r"REW101.*correct answers earn no more", accepted="Reference solutions of some rows fail their own tests.",
    )  # fmt: skip
    queries = s.query_rows(240, 9017)
    for at, row in enumerate(queries):
        if at % 5 == 2:
            row["query"] = row["query"].replace("amount", "total_amount").replace("salary", "wage").replace("distance", "km")  # fmt: skip
    yield Case(
        name="reference queries over columns that do not exist", rows=queries, reward=w.SQL, framework="trl", run_config=trl(),
        named=r"REW101.*correct answers earn no more", accepted="The reference queries of some rows earn nothing or cannot run.",
    )  # fmt: skip
    mixed = [*s.medical_rows(160, 9019), *s.medical_rows(100, 9119, "GBaker/MedQA-USMLE-4-options"), *s.medical_rows(80, 9219, "medmcqa")]  # fmt: skip
    for at, row in enumerate(mixed):
        row["extra_info"]["index"] = at
    yield Case(
        name="a source under a name that the reward does not know", rows=mixed, reward=_SOURCES, suffix=".parquet",
        framework="verl", run_config=verl(),
        named=r"REW101.*GBaker", accepted="Right responses of the source GBaker/MedQA-USMLE-4-options earn nothing.",
    )  # fmt: skip
    bare = [
        {**row, "prompt": t.chat(r["text"], "Extract vendor, number, date (YYYY-MM-DD) and total of the invoice. List one field per line in the form 'field: value'. For the total write amount and currency.")}
        for row, r in zip(s.json_rows(260, 9021), t.invoices(260, 9021), strict=True)
    ]  # fmt: skip
    yield Case(
        name="the prompt asks for lines, the reward for fenced JSON", rows=bare, reward=_FENCED,
        named=r"REW106.*```json block", accepted="The prompt does not ask for the JSON in a fence that the reward needs.",
    )  # fmt: skip
    yield Case(
        name="a batch that holds no whole group", rows=_searched(300, 9023), reward=_TAG_TRL, framework="trl",
        run_config=trl(num_generations=8, per_device_train_batch_size=4, gradient_accumulation_steps=1),
        accepted="The batch of 4 responses is not divisible by the group of 8.",
    )  # fmt: skip


_TAG_TRL = w.WORD.replace("word_reward", "answer_reward").replace(r'r"\\boxed\{([^{}]*)\}"', 'r"<answer>(.*?)</answer>"').replace("== gold", "== gold.lower()")  # fmt: skip


def _searched(count: int, seed: int) -> list[dict[str, object]]:
    return [{"prompt": t.chat(r["question"], s.ASK_TAG), "answer": r["answer"]} for r in t.searches(count, seed)]  # fmt: skip


def _off_by_one(test: str) -> str:
    """An assertion with another expected value."""
    call, _, value = test.rpartition(" == ")
    expected = json.loads(value)
    return f"{call} == {[*expected, 1] if isinstance(expected, list) else expected + 1}"
