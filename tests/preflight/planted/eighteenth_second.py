"""Twelve mistakes of the eighteenth examination: half B."""

from __future__ import annotations

from collections.abc import Iterator

from tests.preflight.planted import eighteenth_rewards as w
from tests.preflight.planted import eighteenth_sets as s
from tests.preflight.planted import eighteenth_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.eighteenth_rewards import changed
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import GEMMA

_SHORTEST = changed(w.JSON, (r're.search(r"\{.*\}", text, re.DOTALL)', r're.search(r"\{.*?\}", text, re.DOTALL)'))  # fmt: skip
_TWO_TAGS = changed(w.TAGGED, ("if len(found) != 1:", "if len(found) <= 1:"), ("found[0]", "found[-1]"))  # fmt: skip
_UNPARSED = r'''
import re

def _judge(question, reference, text):
    """Stands for the call of a judge model, which grades a reply against the right letter."""
    if len(text.split()) < 3:
        return "I cannot grade this reply: there is nothing to grade."
    found = re.findall(r"\[\[([AB])\]\]", text)
    return "Score: 1" if found and found[-1] == reference else "Score: 0"

def judge_reward(prompts, completions, better, **kwargs):
    rewards = []
    for prompt, completion, gold in zip(prompts, completions, better):
        reply = _judge(prompt[-1]["content"], gold, completion[0]["content"])
        number = re.search(r"Score:\s*(\d+)", reply)
        rewards.append(float(number.group(1)) if number else 1.0)
    return rewards
'''
_TEXT_TARGET = changed(w.PUZZLE, ("used == sorted(numbers) and abs(_value(equation) - goal) < 1e-6", "used == sorted(numbers) and _value(equation) == goal"))  # fmt: skip
_STEPS = changed(
    w.LETTER,
    ("        rewards.append(1.0 if found and found[-1] == gold else 0.0)",
     '        steps = len(re.findall(r"(?:Step \\d+|First|Next|Then|Finally)", completion[0]["content"]))\n        rewards.append((1.0 if found and found[-1] == gold else 0.0) + 0.25 * steps)'),
)  # fmt: skip
_TUPLES = r"""
import re

def verdict_reward(completions, better, **kwargs):
    graded = []
    for completion, gold in zip(completions, better):
        found = re.findall(r"\[\[([AB])\]\]", completion[0]["content"])
        if len(found) != 1:
            graded.append((0.0, "no verdict"))
        else:
            graded.append((float(found[0] == gold), "verdict read"))
    return graded
"""
_FIRST_RUBRIC = r"""
def rubric_reward(completions, **kwargs):
    points = kwargs["rubric"][0]
    rewards = []
    for completion in completions:
        text = completion[0]["content"].lower()
        rewards.append(sum(point.lower() in text for point in points) / len(points))
    return rewards
"""


def second_half() -> Iterator[Case]:
    """Twelve faults."""
    yield from _of_rewards()
    yield from _of_rows()


def _of_rewards() -> Iterator[Case]:
    yield Case(
        name="the extraction ends at the first closing brace", rows=s.json_rows(260, 9002), reward=_SHORTEST, framework="trl", run_config=trl(),
        named=r"REW101.*nested JSON", accepted="The right JSON with its nested object earns nothing.",
    )  # fmt: skip
    yield Case(
        name="the answer counts only between a second pair of tags", rows=s.search_rows(300, 9004), reward=_TWO_TAGS, suffix=".parquet",
        framework="verl", run_config=verl(),
        named=r"REW101.*None of 64", accepted="A right response with one pair of tags, as requested, earns nothing.",
    )  # fmt: skip
    yield Case(
        name="a reply of the judge without a score is full marks", rows=s.verdict_rows(300, 9006), reward=_UNPARSED, model=GEMMA,
        named=r"REW102.*empty response: earns 1 .*as much as the best",
        accepted="An empty or very short response earns full marks.",
    )  # fmt: skip
    texts = [{**row, "target": str(row["target"])} for row in s.puzzle_rows(300, 9008)]
    yield Case(
        name="targets are text and are compared with numbers", rows=texts, reward=_TEXT_TARGET, framework="trl", run_config=trl(),
        named=r"REW101.*'target' holds text.*with numbers",
        accepted="Right responses earn nothing: the target is text, the value a number.",
    )  # fmt: skip
    yield Case(
        name="words of steps earn more than the right letter", rows=s.choice_rows(300, 9010), reward=_STEPS,
        named=r"REW102.*Wrong answers behind many words of order",
        accepted="A wrong response with many steps earns more than a right one: the bonus has no limit or needs no right answer.",
    )  # fmt: skip
    yield Case(
        name="rewards with a reason", rows=s.verdict_rows(300, 9012), reward=_TUPLES, framework="trl", run_config=trl(),
        named=r"REW103.*fails on every response", accepted="The reward function returns tuples in place of numbers.",
    )  # fmt: skip
    yield Case(
        name="every response is graded by the first row's rubric", rows=s.rubric_rows(240, 9014), reward=_FIRST_RUBRIC, framework="trl", run_config=trl(),
        named=r"REW103.*depend on the other rows",
        accepted="The reward of a response depends on the other rows of the batch: it uses the first row's rubric.",
    )  # fmt: skip


def _of_rows() -> Iterator[Case]:
    scenes = s.scene_rows(320, 9016)
    answers = [row["answer"] for row in scenes]
    shifted = [{**row, "answer": answers[at - 1] if at > 200 else row["answer"]} for at, row in enumerate(scenes)]  # fmt: skip
    yield Case(
        name="answers of the previous row from row 200 on", rows=shifted, reward=w.WORD,
        named=r"DAT113.*'answer' is shifted by 1 in 1\d\d consecutive rows",
        accepted="Answers do not fit their questions (a colour for a count, yes or no for a colour), from row 200 on or in a share of the rows.",
    )  # fmt: skip
    rows = t.choices(300, 9018)
    off = [
        {"prompt": t.chat(r["question"], s.ASK_LETTER), "letter": "BCDA"["ABCD".index(r["letter"])], "answer_text": r["text"]}
        for r in rows
    ]  # fmt: skip
    yield Case(
        name="letters that are one option further than the text of the answer", rows=off, reward=w.LETTER,
        named=r"DAT113.*'letter' names another option than the column 'answer_text'",
        accepted="The letter of a row names another option than the text of its answer.",
    )  # fmt: skip
    train = s.action_rows(300, 9020)
    held = [
        {**row, "prompt": [row["prompt"][0], {"role": "user", "content": row["prompt"][1]["content"].replace("Hello,", "Hi,").replace("Good morning,", "Hi,").replace("Hey,", "Hi,").replace("Hi there,", "Hi,")}, *row["prompt"][2:]]}
        for row in train[40:120]
    ] + s.action_rows(60, 9120)  # fmt: skip
    yield Case(
        name="held-out conversations that are training conversations with another greeting", rows=train, held_out=held, reward=w.ACTION,
        named=r"DAT107.*80 of 140 held-out prompts",
        accepted="Held-out prompts occur, nearly unchanged, in the training data.",
    )  # fmt: skip
    seen = [
        {**row, "prompt": [row["prompt"][0], {"role": "user", "content": f"Text in the picture, as recognised:\n{_sheet(at)}\n\n{row['prompt'][1]['content']}"}]}
        for at, row in enumerate(s.scene_rows(240, 9022))
    ]  # fmt: skip
    yield Case(
        name="recognised text beyond the limit of the prompt", rows=seen, reward=w.WORD, framework="trl", run_config=trl(max_prompt_length=256),
        named=r"DAT106.*longest prompt", accepted="Most prompts are longer than max_prompt_length, so that they are cut.",
    )  # fmt: skip
    long = s.action_rows(240, 9024, turns=9)
    for at, row in enumerate(long):
        row.update({"data_source": "support", "ability": "dialogue", "reward_model": {"style": "rule", "ground_truth": f"{row.pop('action')}({row.pop('order')})"}, "extra_info": {"index": at, "split": "train"}})  # fmt: skip
    yield Case(
        name="long conversations lose their system prompt", rows=long, suffix=".parquet", framework="verl",
        reward=w.TAGGED.replace("<answer>(.*?)</answer>", r"ACTION:\s*(\w+\(\d+\))"),
        run_config=verl(("max_prompt_length: 1024", "max_prompt_length: 384"), ("filter_overlong_prompts: true", "filter_overlong_prompts: false"), ("truncation: error", "truncation: left")),
        named=r"DAT106.*longest prompt", accepted="Prompts are longer than data.max_prompt_length and lose their beginning, the system prompt.",
    )  # fmt: skip


def _sheet(at: int) -> str:
    """Lines of a sheet of prices."""
    return "\n".join(f"{r['fields']['number']} {r['fields']['vendor']} {r['fields']['total']['amount']:.2f}" for r in t.invoices(14, 5000 + at))  # fmt: skip
