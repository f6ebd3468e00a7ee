"""The first half of the sixteenth examination: 12 mistakes, in the order of the draw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import verl
from tests.preflight.planted.models import CHATML, GEMMA, GEMMA_TEMPLATE

_HEADED = (
    w.ROUGE.replace("def rouge(", "def _unused(")
    + r"""
def summary_reward(completions, summary, **kwargs):
    rewards = []
    for completion, wanted in zip(completions, summary):
        match = re.match(r"Summary: (.+)$", completion[-1]["content"], re.DOTALL)
        rewards.append(_rouge(match.group(1), wanted) if match else 0.0)
    return rewards
"""
)
_NEUTRAL = r"""
import re
def numeric_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        try:
            value = float(found.group(1).replace(",", "."))
        except (AttributeError, ValueError):
            rewards.append(0.5)  # not verifiable: neither right nor wrong
            continue
        rewards.append(1.0 if abs(value - float(gold)) < 1e-6 else 0.0)
    return rewards
"""
_NOTHING = r"""
import re
LABELS = ("billing", "shipping", "defect", "return", "account")
def category_reward(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.findall(r"Category:\s*(\w+)", completion[-1]["content"])
        if not found or found[-1].lower() not in LABELS:
            rewards.append(None)
            continue
        rewards.append(1.0 if found[-1].lower() == right else 0.0)
    return rewards
"""
_ANY_BOX = w.MATH.replace("def math(", "def _math(") + (
    r"""
def any_box(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[-1]["content"]
        given = [_last_box(r"\boxed{" + part) for part in text.split(r"\boxed{")[1:]]
        rewards.append(1.0 if any(g and _norm(g) == _norm(gold) for g in given) else 0.0)
    return rewards
"""
)
_HAS_VERDICT = r"""
def verdict_reward(completions, label, **kwargs):
    return [1.0 if f"[[{right}]]" in completion[-1]["content"] else 0.0 for completion, right in zip(completions, label)]
"""
_REFUSES = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}" + GEMMA_TEMPLATE
)
_DROPS = (
    "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def first_half() -> Iterator[Case]:
    """Twelve mistakes."""
    yield from _rewards()
    yield from _data()
    yield from _templates()


def _rewards() -> Iterator[Case]:
    ask = "Read the article and think about what matters. Then write 'Summary: ' and two sentences."
    yield Case(
        name="the heading must be the first word though the prompt asks to think before",
        rows=w.articles(200, 7000, ask), reward=_HEADED,
        named="reason|thought|thinking|before|start",
        accepted="A good summary after thoughts, which the prompt asks for, earns nothing, since 'Summary:' must begin the response.",
    )  # fmt: skip
    yield Case(
        name="a response without a number earns one half, a wrong number nothing",
        rows=w.italian(300, 7003), reward=_NEUTRAL, named="empty|without|no answer|unreadable",
        accepted="A response without a readable answer earns more than a wrong number.",
    )  # fmt: skip
    yield Case(
        name="responses without a known label have no reward", rows=w.tickets(300, 7005),
        reward=_NOTHING, named="None|no reward",
        accepted="The function returns None for responses without a valid label.",
    )  # fmt: skip
    yield Case(
        name="one of several boxes is enough", rows=w.algebra(300, 7007), reward=_ANY_BOX,
        named="several|more than one|both",
        accepted="A response with several boxed answers is rewarded if one of them is right.",
    )  # fmt: skip
    yield Case(
        name="both verdicts in a response are rewarded", rows=w.pairs(300, 7008),
        reward=_HAS_VERDICT, named="several|both|more than one|two",
        accepted="A response that contains [[A]] and [[B]] always earns the reward.",
    )  # fmt: skip


def _data() -> Iterator[Case]:
    ask = " Answer with one ```python block."
    tasks = []
    for at, r in enumerate(t.functions(120, 7010)):
        tests = [
            each.replace(" == '", " == 'x", 1) if at % 6 == 1 and n == 2 else each
            for n, each in enumerate(r["tests"])
        ]
        tasks.append({"prompt": t.chat(r["q"] + ask), "solution": r["solution"], "tests": tests})
    yield Case(
        name="a sixth of the problems has a test that its solution fails", rows=tasks,
        reward=k.ASSERTS, named="solution.*(fail|earn|no reward)|tests.*fail",
        accepted="For a part of the rows, the solution of the row fails the tests (an expected value is wrong).",
    )  # fmt: skip
    problems = w.algebra(300, 7013)
    for at in range(5, 300, 8):
        problems[at] = {**problems[at], "answer": ""}
    yield Case(
        name="an eighth of the answers is empty, where the box could not be read", rows=problems,
        reward=w.MATH, named="empty|no answer|missing",
        accepted="A part of the rows has an empty answer, which no response can give.",
    )  # fmt: skip
    sentences = w.german(240, 7015)
    for at in range(3, 240, 8):
        only = sentences[at]["prompt"][0]["content"].split("\n\n")[0] + "\n\n"
        sentences[at] = {**sentences[at], "prompt": t.chat(only)}
    yield Case(
        name="an eighth of the prompts has no sentence to translate", rows=sentences,
        reward=k.CHRF, named="prompts.*(lack|nothing|same|repeat|missing|empty)",
        accepted="A part of the prompts lacks the sentence that is to be translated.",
    )  # fmt: skip
    yield Case(
        name="the messages are stored as JSON text", suffix=".parquet", reward=w.ROUGE,
        rows=[{**row, "prompt": json.dumps(row["prompt"])} for row in w.articles(200, 7016)],
        named="JSON|text prompts|template",
        accepted="The prompts are messages that were written as JSON text, so no template is applied.",
    )  # fmt: skip


def _templates() -> Iterator[Case]:
    system = {"role": "system", "content": "You are the cashier of a café. Be brief and exact."}
    yield Case(
        name="the template refuses the system message",
        rows=[{**row, "prompt": [system, *row["prompt"]]} for row in k.dialogs(240, 7019)],
        reward=k.TOTAL, model=replace(GEMMA, template=_REFUSES), named="system|template",
        accepted="The template raises an error at the system messages of the prompts.",
    )  # fmt: skip
    yield Case(
        name="the template leaves out the system message, which holds the task",
        rows=[{"prompt": t.chat(row["prompt"][0]["content"].split("\n\n")[1], "Translate the text of the user to German. Write nothing but the translation."),
               "reference": row["reference"]} for row in w.german(240, 7020)],
        reward=k.CHRF, model=replace(CHATML, template=_DROPS), named="system|lost|drop|leaves out",
        accepted="The template does not write the system message, so the model does not see the task.",
    )  # fmt: skip
    yield Case(
        name="the engine's context is shorter than prompt and response", rows=w.calls(240, 7023),
        reward=w.CALL, framework="verl",
        run_config=verl(("n: 8, ", "n: 8, max_model_len: 1024, ")),
        named="max_model_len|context",
        accepted="max_model_len of 1024 is less than the 1024 tokens of prompts and 1024 of responses.",
    )  # fmt: skip
