"""Mistakes in reward functions of the thirteenth examination, as users report them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import thirteenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE, GEMMA, LLAMA
from tests.preflight.planted.tables import Row

XML = "Respond in the following format:\n<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>\n"
THINK = (
    "A conversation between User and Assistant. The assistant first thinks and then answers. The "
    "reasoning and the answer are enclosed in <think> </think> and <answer> </answer> tags."
)
BOXED = "\n\nLet's think step by step and output the final answer within \\boxed{}."
_STRICT = r"""
import re
def format_and_answer(completions, answer, **kwargs):
    scores = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"]
        well_formed = re.match(r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$", text)
        given = text.split("<answer>")[-1].split("</answer>")[0].strip()
        scores.append(0.5 * bool(well_formed) + 2.0 * (given == right))
    return scores
"""
_WHOLE_SOLUTION = r"""
import re
def correctness(prompts, completions, answer, **kwargs):
    responses = [completion[0]["content"] for completion in completions]
    extracted = [r.split("<answer>")[-1].split("</answer>")[0].strip() for r in responses]
    return [2.0 if given == right else 0.0 for given, right in zip(extracted, answer)]
"""
_SHORT_BOX = r"""
import re
def accuracy(completions, solution, **kwargs):
    rewards = []
    for completion, right in zip(completions, solution):
        found = re.search(r"\\boxed\{(.*?)\}", completion[0]["content"])
        rewards.append(1.0 if found and found.group(1).strip() == right.strip() else 0.0)
    return rewards
"""
_PARSED_GOLD = r"""
import re
def _parse(text):
    # Formulas between dollar signs, the last one first.
    return re.findall(r"\$([^$]+)\$", text)[::-1]
def accuracy(completions, solution, **kwargs):
    rewards = []
    for completion, right in zip(completions, solution):
        gold = _parse(right)
        if not gold:
            # The gold answer cannot be parsed: skip the example.
            rewards.append(1.0)
            continue
        text = completion[0]["content"].replace("\\boxed", "")
        given = re.sub(r"[{}\s]", "", (_parse(text) or [text])[0])
        rewards.append(float(given == re.sub(r"[{}\s]", "", gold[0])))
    return rewards
"""
_LENGTH = r"""
def reward_len(completions, **kwargs):
    return [float(abs(200 - len(completion[0]["content"]))) for completion in completions]
"""
_SUBSTRING = r"""
def accuracy(completions, answer, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if str(right) in text else 0.0 for text, right in zip(contents, answer)]
"""
_STRING_OR_NUMBER = r"""
import re
def exact(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.search(r"<answer>\s*(.*?)\s*</answer>", completion[0]["content"], re.DOTALL)
        rewards.append(1.0 if found and found.group(1) == right else 0.0)
    return rewards
"""
_OTHER_COLUMN = r"""
import re
def accuracy(completions, ground_truth, **kwargs):
    matches = [re.search(r"\\boxed\{(.*)\}", c[0]["content"]) for c in completions]
    return [float(bool(m) and m.group(1) == truth) for m, truth in zip(matches, ground_truth)]
"""
_STRINGS = r"""
import re
def format_reward(completions, **kwargs):
    pattern = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
    return [1.0 if pattern.search(completion) else 0.0 for completion in completions]
def total(completions, answer, **kwargs):
    form = format_reward(completions)
    given = [c.split("<answer>")[-1].split("</answer>")[0].strip() for c in completions]
    return [f + 2.0 * (g == a) for f, g, a in zip(form, given, answer)]
"""
_HASHES = r"""
import re
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"#### (\-?[0-9\.\,]+)", solution_str)
    if not found:
        return 0.0
    return 1.0 if found[-1].replace(",", "") == ground_truth else 0.0
"""
_PREFILLED = r"""
import re
def format_and_accuracy(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"]
        found = re.match(r"^<think>\n.*?\n</think>\n<answer>\n(.*?)\n</answer>$", text, re.DOTALL)
        if not found:
            rewards.append(0.0)
            continue
        rewards.append(0.5 + float(found.group(1).strip() == right))
    return rewards
"""
_LETTER = r"""
import re
def choice(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.search(r"\b([ABCD])\b(?!.*\b[ABCD]\b)", completion[0]["content"], re.DOTALL)
        rewards.append(float(bool(found) and found.group(1) == str(right)))
    return rewards
"""


def reward_faults() -> Iterator[Case]:
    """Twelve mistakes."""
    yield from _forms()
    yield from _comparisons()
    yield from _interfaces()


def _forms() -> Iterator[Case]:
    problems = u.gsm(600, 3101)
    yield Case(
        name="a strict pattern whose dot stops at line breaks and which wants a last line break",
        rows=[{"prompt": u.chat(p["question"], XML), "answer": str(p["final"])} for p in problems],
        reward=_STRICT, named="REW104.*layout of tags", advised="DOTALL",
        accepted="The format part is not paid for a response in the requested form, or a reasoning "
        "of several lines (or one without the final line break) loses it.",
    )  # fmt: skip
    yield Case(
        name="verl's GSM8K score on prompts that ask for a box", suffix=".parquet",
        rows=[_verl(p["question"] + BOXED, str(p["final"]), "openai/gsm8k", at)
              for at, p in enumerate(u.gsm(800, 3102))],
        reward=_HASHES, named="REW104.*boxed",
        accepted="The prompts ask for \\boxed{}, but only an answer after #### gets the reward; or "
        "the answer in the requested form gets no reward.",
    )  # fmt: skip
    opens = CHATML_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    yield Case(
        name="DeepSeek's template opens the thought that the format reward wants opened",
        rows=[{"prompt": u.chat(p["question"] + "\nThink between <think> and </think>, then give the "
               "number between <answer> and </answer>."), "answer": str(p["final"])}
              for p in u.gsm(500, 3103)],
        model=replace(CHATML, template=opens), reward=_PREFILLED, named="REW106.*<think>",
        accepted="The prompt already ends with <think>, so that no response can open it.",
    )  # fmt: skip
    yield Case(
        name="a box is read up to the first closing brace",
        rows=[{"prompt": u.chat(q + BOXED), "solution": a} for q, a in u.competition(700, 3104)],
        reward=_SHORT_BOX, named="REW101", advised="parser",
        accepted="Answers with braces (fractions, roots) get no reward although they are right.",
    )  # fmt: skip


def _comparisons() -> Iterator[Case]:
    yield Case(
        name="the response is compared with GSM8K's whole worked solution",
        rows=[{"prompt": u.chat(p["question"], XML), "answer": f"{p['steps']}\n#### {p['final']}"}
              for p in u.gsm(600, 3111)],
        model=LLAMA, reward=_WHOLE_SOLUTION, named="REW101.*whole worked", advised="final answer",
        accepted="The answer column holds worked solutions whose final number must be extracted; or "
        "a right final answer gets no reward.",
    )  # fmt: skip
    yield Case(
        name="gold answers without dollar signs cannot be parsed and pay everyone",
        rows=[{"prompt": u.chat(q + BOXED), "solution": a} for q, a in u.competition(600, 3112)],
        reward=_PARSED_GOLD, named="REW102.*any response", accepted="A wrong or empty response gets the full reward.",
    )  # fmt: skip
    yield Case(
        name="a length reward that grows with the distance from the wanted length",
        rows=[{"prompt": u.chat("Summarise the article in about 200 characters.\n\n" + article)}
              for article, _ in u.news(400, 3113)],
        reward=_LENGTH, named="REW102.*length", advised="sign",
        accepted="Longer (or empty, or meaningless) responses get more reward, without a limit.",
    )  # fmt: skip
    yield Case(
        name="a right answer anywhere in the response counts", suffix=".json",
        rows=[{"prompt": u.chat(p["question"]), "answer": str(p["final"])} for p in u.gsm(500, 3114)],
        model=GEMMA, reward=_SUBSTRING, named="REW102.*several answers",
        accepted="Responses that list many numbers, repeat the prompt or contain the answer within "
        "another number get the reward.",
    )  # fmt: skip
    yield Case(
        name="integers of a Parquet column are compared with text", suffix=".parquet",
        rows=[{"prompt": u.chat(p["question"], THINK), "answer": p["final"]} for p in u.gsm(700, 3115)],
        reward=_STRING_OR_NUMBER, named="REW101.*(holds numbers|None of)",
        accepted="The data set's own answers get no reward; best: the column holds numbers.",
    )  # fmt: skip
    yield Case(
        name="the key is an index, the reward wants a letter",
        rows=[{"prompt": u.chat(u.lettered(q, options) + "\nAnswer with the letter of the right option."),
               "answer": key} for q, options, key in u.quiz(600, 3116)],
        reward=_LETTER, named="DAT126.*letter",
        accepted="The answers are numbers 0 to 3 while the prompt asks for a letter, or right "
        "answers get no reward.",
    )  # fmt: skip


def _interfaces() -> Iterator[Case]:
    yield Case(
        name="the reward's parameter is not a column of the data",
        rows=[{"prompt": u.chat(q + BOXED), "solution": a} for q, a in u.competition(500, 3121)],
        reward=_OTHER_COLUMN, named="REW103.*ground_truth", advised="columns",
        accepted="The reward function requires ground_truth, which is not a column.",
    )  # fmt: skip
    yield Case(
        name="a reward for text gets lists of messages", model=LLAMA,
        rows=[{"prompt": u.chat(p["question"], THINK), "answer": str(p["final"])}
              for p in u.gsm(500, 3122)],
        reward=_STRINGS, named="REW103.*every response.*list", advised="content",
        accepted="The reward function fails, since completions of message prompts are lists.",
    )  # fmt: skip


def _verl(text: str, truth: str, source: str, index: int) -> Row:
    return {
        "data_source": source, "prompt": u.chat(text), "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"split": "train", "index": index},
    }  # fmt: skip
