"""The first half of the fifteenth examination: 24 mistakes, in the order of the draw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import CHATML
from tests.preflight.planted.tables import Row

_GATED_PROGRAM = (
    k.STDIN.replace("def accepted(", "def _accepted(")
    + r"""
LAYOUT = re.compile(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", re.DOTALL)
def code_reward(completions, inputs, outputs, **kwargs):
    passed = _accepted(completions, inputs, outputs)
    return [p if LAYOUT.match(c[-1]["content"]) else 0.0 for p, c in zip(passed, completions)]
"""
)
_ONE_LINE = r"""
import re
def accuracy_and_format(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.fullmatch(r"<think>.*?</think>\s*<answer>(.*?)</answer>", completion[0]["content"].strip())
        if not found:
            rewards.append(0.0)
            continue
        rewards.append(1.0 if found.group(1).strip().lower() == right.lower() else 0.1)
    return rewards
"""
_BEFORE_THE_END = (
    w.ROUGE.replace("def rouge(", "def _unused(")
    + r"""
def rouge_of_summary(completions, summary, **kwargs):
    scores = []
    for completion, wanted in zip(completions, summary):
        text = completion[-1]["content"]
        if "</think>" in text:
            text = text.split("</think>")[0]  # drop the reasoning
        scores.append(_rouge(text, wanted))
    return scores
"""
)
_SPLIT_WORDS = r"""
def follows(completions, bullets, keyword, ending, **kwargs):
    rewards = []
    for completion, count, word, last in zip(completions, bullets, keyword, ending):
        text = completion[-1]["content"].strip()
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        score = 0.0
        score += 0.4 if sum(line.startswith("* ") for line in lines) == count else 0.0
        score += 0.3 if text.lower().split().count(word) >= 2 else 0.0
        score += 0.3 if text.endswith(last) else 0.0
        rewards.append(score)
    return rewards
"""
_EXACT_EDIT = r"""
def exact(completions, answer, **kwargs):
    return [1.0 if completion[0]["content"] == gold else 0.0 for completion, gold in zip(completions, answer)]
"""
_COMMA_GOLD = r"""
import re
def correctness(prompts, completions, answer, **kwargs):
    responses = [completion[0]["content"] for completion in completions]
    found = [re.findall(r"####\s*(-?[\d,.]+)", r) for r in responses]
    given = [x[-1].replace(",", "").rstrip(".") if x else "" for x in found]
    return [2.0 if g == a else 0.0 for g, a in zip(given, answer)]
"""
_FILTERED = r"""
import re
def total_reward(completions, answer, **kwargs):
    found = [re.search(r"Total:\s*(-?\d+)", completion[-1]["content"]) for completion in completions]
    return [1.0 if int(match.group(1)) == right else 0.0 for match, right in zip(found, answer) if match]
"""
_CONTAINS = r"""
def accuracy(completions, answer, **kwargs):
    return [1.0 if str(gold) in completion[-1]["content"] else 0.0 for completion, gold in zip(completions, answer)]
"""
_EXTRA_KEYS = r"""
import json, re
def extraction_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"\{.*\}", completion[-1]["content"], re.DOTALL)
        try:
            given, right = json.loads(found.group(0)), json.loads(gold)
        except (AttributeError, ValueError):
            rewards.append(0.0)
            continue
        if not isinstance(given, dict):
            rewards.append(0.0)
            continue
        score = sum(given.get(key) == value for key, value in right.items()) / len(right)
        invented = [key for key in given if key not in right]
        score += 0.25 * len(invented)  # penalty for invented keys
        rewards.append(score)
    return rewards
"""
_COSINE = (
    w.MATH.replace("def math(", "def _right(")
    + r"""
from math import cos, pi
def cosine_scaled(completions, answer, max_len=2000, min_right=1.0, max_right=0.5, min_wrong=-0.5, max_wrong=-1.0, **kwargs):
    # Shorter right answers and longer wrong answers are preferred.
    rewards = []
    for completion, right in zip(completions, _right(completions, answer)):
        length = min(len(completion[-1]["content"]), max_len)
        scale = cos(length / max_len * pi)
        low, high = (min_right, max_right) if right else (max_wrong, min_wrong)
        rewards.append(low + 0.5 * (high - low) * (1.0 + scale))
    return rewards
"""
)
_MOVE = w.UCI.replace(
    "completion[-1]",
    "(completion if isinstance(completion, list) else [{'content': completion}])[-1]",
)


def first_half() -> Iterator[Case]:
    """Twenty-four mistakes."""
    yield from _rewards()
    yield from _scales()
    yield from _data()
    yield from _templates()
    yield from _settings()


def _rewards() -> Iterator[Case]:
    yield Case(
        name="programs count only between tags that the prompt does not ask for",
        rows=w.counters(90, 6001), reward=_GATED_PROGRAM, named="REW106.*only within <think> and <answer>",
        accepted="A right program without <think>/<answer> tags, which no prompt asks for, earns nothing.",
    )  # fmt: skip
    yield Case(
        name="the dot of the format stops at the line breaks of a thought", model=f.VISION,
        rows=w.charts(240, 6002), reward=_ONE_LINE, named="REW104.*with a line break",
        accepted="A right answer whose thought has several lines earns nothing.",
    )  # fmt: skip
    yield Case(
        name="prompts ask for 'Answer: X', the reward reads answer tags", model=f.VISION,
        rows=w.charts(240, 6003, "\nThink, then end with a line 'Answer: X'.", ""), reward=w.TAGGED,
        named="REW104.*ask for Answer",
        accepted="The format that the prompts ask for is not read; only <answer> tags are.",
    )  # fmt: skip
    yield Case(
        name="the thought is scored in place of the summary",
        rows=w.articles(200, 6004, "Think in <think></think>, then summarize the article in two sentences."),
        reward=_BEFORE_THE_END, named="REW104.*behind a thought",
        accepted="A good summary after a thought is not rewarded, since the text before </think> is scored.",
    )  # fmt: skip
    yield Case(
        name="keywords next to a full stop or comma are not counted", rows=w.notes(200, 6005),
        reward=_SPLIT_WORDS, named="REW102.*comma or full stop",
        accepted="A text that keeps the rules loses reward if the keyword stands next to punctuation.",
    )  # fmt: skip
    yield Case(
        name="results are compared as they are", rows=w.edits(300, 6007), reward=_EXACT_EDIT,
        named="REW104.*white space",
        accepted="A right result with other white space, a full stop or quotation marks earns nothing.",
    )  # fmt: skip
    yield Case(
        name="gold numbers keep their commas, those of responses lose them",
        rows=[{"prompt": row["prompt"], "answer": f"{r['a']:,}"} for row, r in zip(w.school(360, 6008), f.school(360, 6008), strict=True)],
        reward=_COMMA_GOLD, named="REW101.*comma",
        accepted="Correct answers of rows with a comma (1,234) are never rewarded.",
    )  # fmt: skip
    yield Case(
        name="responses without a total are left out of the list", rows=k.dialogs(240, 6011),
        reward=_FILTERED, named="REW103.*0 rewards for 1",
        accepted="The function returns fewer rewards than responses if one has no total.",
    )  # fmt: skip
    yield Case(
        name="the number anywhere in the response counts", rows=w.physics(240, 6013),
        reward=_CONTAINS, named="REW102.*several answers",
        accepted="A response with many numbers, or a longer number that contains the answer, is rewarded.",
    )  # fmt: skip


def _scales() -> Iterator[Case]:
    yield Case(
        name="the penalty for invented keys is added", rows=k.notices(240, 6018), reward=_EXTRA_KEYS,
        named="REW102.*further fields.*earn", accepted="A response with invented keys earns more than the right one.",
    )  # fmt: skip
    yield Case(
        name="the ends of the cosine are exchanged", rows=w.algebra(300, 6019), reward=_COSINE,
        named="REW102.*filler", accepted="Longer right answers earn more than short ones.",
    )  # fmt: skip


def _data() -> Iterator[Case]:
    ask = " Reason first, then write only the number, without the unit, in <answer></answer>."
    yield Case(
        name="the last word of the solution is the unit",
        rows=[{"prompt": t.chat(r["q"] + ask), "solution": r["steps"], "answer": r["steps"].split()[-1]} for r in f.physics(240, 6025)],
        reward=w.TAGGED, named="DAT126.*a number",
        accepted="The answers are a few units, not the numbers that the prompts ask for.",
    )  # fmt: skip
    programs = w.counters(90, 6027)
    for at in range(3, 90, 8):
        programs[at] = {**programs[at], "inputs": [], "outputs": []}
    yield Case(
        name="an eighth of the problems has no tests", rows=programs, reward=k.STDIN,
        named="REW102.*inputs empty", accepted="Some rows have empty lists of tests (any program passes).",
    )  # fmt: skip
    yield Case(
        name="prompts contain the reference translation",
        rows=[{"prompt": t.chat(f"Translate to German.\n\nEnglish: {r['q']}\nGerman: {r['a']}"), "reference": r["a"]} for r in f.german(240, 6028)],
        reward=k.CHRF, named="DAT111.*contain their answer", accepted="The prompts state their reference.",
    )  # fmt: skip
    yield Case(
        name="numbers in TeX were removed from a third of the prompts",
        rows=[{"prompt": t.chat((re.sub(r"\$[^$]*\$", "", r["q_tex"]) if at % 3 == 1 else r["q"]) + ask), "answer": r["a"]}
              for at, r in enumerate(f.physics(240, 6029))],
        reward=w.TAGGED, named="DAT117.*lack numbers",
        accepted="A part of the prompts has lost its numbers (empty places).",
    )  # fmt: skip
    yield Case(
        name="prompts are cut at the left by a limit of 64 tokens", rows=w.countdown(300, 6032),
        reward=w.COUNTDOWN, framework="verl", run_config=verl(
            ("max_prompt_length: 1024", "max_prompt_length: 64"),
            ("filter_overlong_prompts: true", "filter_overlong_prompts: false"),
            ("truncation: error", "truncation: left")),
        named="DAT106.*longest prompt of 64", accepted="The prompts are longer than max_prompt_length and are cut.",
    )  # fmt: skip
    cut = [{"prompt": t.chat(r["q"][:128] + "\nEnd with '#### ' and the final number."), "answer": str(r["a"])} for r in f.school(360, 6033)]  # fmt: skip
    yield Case(
        name="questions are cut at 128 characters", rows=cut, reward=w.SCHOOL, suffix=".parquet",
        named="DAT115.*were cut", accepted="Many questions end in the middle, at one length.",
    )  # fmt: skip


def _templates() -> Iterator[Case]:
    yield Case(
        name="the processor was saved without its chat template", rows=w.charts(240, 6036),
        model=replace(f.VISION, template=None), reward=w.TAGGED, named="DAT119.*no chat template",
        accepted="The model has no chat template for the conversations.",
    )  # fmt: skip
    yield Case(
        name="text prompts for an instruct model",
        rows=[{"prompt": row["prompt"][0]["content"], "move": row["move"]} for row in w.positions(240, 6037)],
        reward=_MOVE, named="DAT116", accepted="Text prompts get no chat template.",
    )  # fmt: skip
    formatted: list[Row] = []
    for row in w.pairs(240, 6038):
        text = "".join(
            f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in row["prompt"]
        )
        formatted.append({**row, "prompt": t.chat(text + "<|im_start|>assistant\n")})
    yield Case(
        name="a message contains the formatted conversation", rows=formatted, reward=w.VERDICT,
        named="DAT105.*applied twice", accepted="The template was applied already; it is applied twice.",
    )  # fmt: skip
    yield Case(
        name="the base model's end token is kept", rows=w.calls(240, 6040), reward=w.CALL,
        model=replace(CHATML, eos="<|endoftext|>", ends=("<|endoftext|>",)), named="DAT103.*not declared as EOS",
        accepted="<|im_end|>, which ends a turn, is no EOS token, so responses do not end.",
    )  # fmt: skip


def _settings() -> Iterator[Case]:
    yield Case(
        name="the mini-batch is larger than the batch", rows=k.notices(300, 6041), reward=k.FIELDS,
        framework="verl", run_config=verl(("ppo_mini_batch_size: 64", "ppo_mini_batch_size: 256")),
        named="CFG017", accepted="ppo_mini_batch_size is larger than train_batch_size.",
    )  # fmt: skip
    essays = [
        {"prompt": t.chat(re.sub("exactly . bullet points that start with '. '", "an essay of at least 400 words", r["q"])), "keyword": r["keyword"], "ending": r["ending"]}
        for r in f.notes(150, 6043)
    ]  # fmt: skip
    essays = list({row["prompt"][0]["content"]: row for row in essays}.values())
    yield Case(
        name="essays of 400 words with TRL's 256 tokens", rows=essays, reward=_ESSAY, framework="trl",
        run_config=trl(max_completion_length=256), named="DAT106.*400 words",
        accepted="Responses may have 256 tokens, but 400 words need more, so no response can be right.",
    )  # fmt: skip
    yield Case(
        name="the temperature of the evaluation, zero", rows=w.edits(300, 6045), reward=w.EDIT,
        framework="trl", run_config=trl(temperature=0.0), named="CFG022",
        accepted="At temperature 0 all responses of a group are equal (or the loss divides by zero).",
    )  # fmt: skip


_ESSAY = r"""
def essay(completions, keyword, ending, **kwargs):
    rewards = []
    for completion, word, last in zip(completions, keyword, ending):
        text = completion[-1]["content"].strip()
        words = text.lower().split()
        varied = len(set(words)) > len(words) / 4
        rewards.append(float(len(words) >= 400 and varied and text.lower().count(word) >= 2 and text.endswith(last)))
    return rewards
"""
