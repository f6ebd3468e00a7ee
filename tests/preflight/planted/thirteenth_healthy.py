"""Ten healthy sets of the thirteenth examination."""

from __future__ import annotations

import json
import random

from tests.preflight.planted import thirteenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.tables import Row
from tests.preflight.planted.thirteenth_data import BOX, CALL, TESTS, boxed
from tests.preflight.planted.thirteenth_rewards import BOXED
from tests.preflight.planted.thirteenth_settings import VERL, trl

_VERL_BOX = (
    BOX[: BOX.index("def accuracy")]
    + r"""
def _normal(text):
    text = re.sub(r"\\text\{.*?\}|\\left|\\right|\\[,;!]|\s|\$", "", (text or "").replace("dfrac", "frac"))
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text.replace("tfrac", "frac"))
    text = re.sub(r"(-?)\\frac\{(-?\d+)\}\{(\d+)\}", r"\1\2/\3", text)
    return re.sub(r"\\sqrt\{?(\w+)\}?", r"sqrt(\1)", text).rstrip(".")
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0 if _normal(_box(solution_str)) == _normal(ground_truth) else 0.0
"""
)
"""The first run compared the texts as they are; its alarm was right, as verl's own score compares
normal forms."""
_NUMBER = r"""
import re
def _value(text):
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    number = re.search(r"-?\d+(?:\.\d+)?", found.group(1).replace(",", "")) if found else None
    return float(number.group()) if number else None
def score(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"]
        well_formed = re.fullmatch(r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*", text, re.DOTALL)
        rewards.append(0.2 * bool(well_formed) + 1.0 * (_value(text) == float(right)))
    return rewards
"""
_LETTER = r"""
import re
def choice(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"] if isinstance(completion, list) else completion
        found = re.findall(r"[Aa]nswer(?: is)?:?\s*\(?([ABCD])\b", text)
        rewards.append(float(bool(found) and found[-1] == right))
    return rewards
"""
_EQUATION = r"""
import re
def equation(completions, target, nums, **kwargs):
    rewards = []
    for completion, wanted, numbers in zip(completions, target, nums):
        found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.DOTALL)
        formula = found[-1].split("=")[0].strip() if found else ""
        used = sorted(int(n) for n in re.findall(r"\d+", formula))
        if used != sorted(numbers) or "**" in formula or not re.fullmatch(r"[\d+\-*/() ]+", formula):
            rewards.append(0.0)
            continue
        try:
            value = eval(formula, {"__builtins__": {}}, {})
        except Exception:
            rewards.append(0.0)
            continue
        rewards.append(float(abs(value - wanted) < 1e-5))
    return rewards
"""
_ROUGE = r"""
def _words(text):
    return [word.strip(".,;:!?'\"").lower() for word in text.split()]
def rouge(completions, summary, **kwargs):
    scores = []
    for completion, reference in zip(completions, summary):
        given, wanted = _words(completion[0]["content"]), _words(reference)
        rows = [0] * (len(wanted) + 1)
        for word in given:
            last = 0
            for at, other in enumerate(wanted):
                last, rows[at + 1] = rows[at + 1], last + 1 if word == other else max(rows[at], rows[at + 1])
        common = rows[-1]
        scores.append(2 * common / (len(given) + len(wanted)) if common else 0.0)
    return scores
"""
_CONSTRAINTS = r"""
import json, re
def follows(completions, constraints, **kwargs):
    rewards = []
    for completion, text in zip(completions, constraints):
        rules, response = json.loads(text), completion[0]["content"]
        kept = []
        for rule in rules:
            if rule["kind"] == "keyword":
                kept.append(rule["value"].lower() in response.lower())
            elif rule["kind"] == "sentences":
                kept.append(len(re.findall(r"[.!?](?:\s|$)", response)) == rule["value"])
            elif rule["kind"] == "no_commas":
                kept.append("," not in response and len(response.split()) > 5)
        rewards.append(sum(kept) / len(kept))
    return rewards
"""
_LABEL = r"""
def label(completions, sentiment, **kwargs):
    rewards = []
    for completion, right in zip(completions, sentiment):
        words = completion[0]["content"].strip().strip(".").lower().split()
        rewards.append(float(len(words) == 1 and words[0] == right))
    return rewards
"""


def thirteenth_healthy() -> tuple[Case, ...]:
    """Ten sets without a fault."""
    return (*_mathematics(), *_checked(), *_texts())


def _mathematics() -> tuple[Case, ...]:
    verl = [
        {"data_source": "math", "prompt": u.chat(q + BOXED), "ability": "math",
         "reward_model": {"style": "rule", "ground_truth": a}, "extra_info": {"index": at}}
        for at, (q, a) in enumerate(u.competition(700, 3401))
    ]  # fmt: skip
    think = (
        "First think about the problem inside <think> </think>. Then give the final number inside "
        "<answer> </answer>."
    )
    gsm = [
        {"prompt": u.chat(p["question"], think), "answer": str(p["final"]),
         "solution": f"{p['steps']}\n#### {p['final']}"} for p in u.gsm(900, 3402)
    ]  # fmt: skip
    held_out = [
        {"prompt": u.chat(p["question"], think), "answer": str(p["final"]),
         "solution": f"{p['steps']}\n#### {p['final']}"} for p in u.gsm(150, 3502) if p["question"] not in {row["prompt"][1]["content"] for row in gsm}
    ]  # fmt: skip
    many = [(text, str(answer)) for _, text, answer in u.languages(540, 3403)]
    return (
        Case(name="verl, competition problems", rows=verl, suffix=".parquet",
             reward=_VERL_BOX, run_config=VERL, settings={"max_tokens": 1024}),
        Case(name="word problems with thoughts and evaluation prompts", rows=gsm,
             held_out=held_out, model=LLAMA, reward=_NUMBER, run_config=trl(),
             settings={"max_tokens": 1024}),
        Case(name="word problems in six languages", rows=boxed(list(many)), suffix=".json",
             model=GEMMA, reward=BOX),
    )  # fmt: skip


def _checked() -> tuple[Case, ...]:
    exam = [
        {"question": u.lettered(q, options) + "\nThink briefly, then write 'Answer: X' where X is the letter.",
         "answer": "ABCD"[key]} for q, options, key in u.quiz(700, 3411)
    ]  # fmt: skip
    tasks = [
        {"prompt": u.chat(f"{row['text']} The function must be called {row['name']}. Put the code into "
                          "a ```python block."), "tests": row["tests"]} for row in u.code(160, 3412)
    ]  # fmt: skip
    numbers = [
        {"prompt": u.chat(f"Using the numbers {nums}, write an equation that equals {target}. Use each "
                          "number once, with +, -, * and /. Put the equation inside <answer> </answer>, "
                          "for example <answer>(1 + 2) / 3</answer>."), "nums": nums, "target": target}
        for nums, target in u.countdown(600, 3413)
    ]  # fmt: skip
    return (
        Case(name="multiple choice as a CSV", rows=exam, suffix=".csv", reward=_LETTER),
        Case(name="code with assertions", rows=tasks, suffix=".parquet", reward=TESTS),
        Case(name="tool calls", rows=u.tool_rows(500, 3414), reward=CALL, model=LLAMA),
        Case(name="countdown, without an answer", rows=numbers, reward=_EQUATION, run_config=trl(),
             settings={"max_tokens": 1024}),
    )  # fmt: skip


def _texts() -> tuple[Case, ...]:
    rng = random.Random(3421)
    articles = [
        {"prompt": u.chat(f"Summarise this article in one sentence.\n\n{article}"), "summary": summary}
        for article, summary in u.news(400, 3421)
    ]  # fmt: skip
    reviews = []
    for _ in range(500):
        label = rng.choices(["positive", "negative", "neutral"], (70, 20, 10))[0]
        said = {
            "positive": ["I would buy it again", "works better than expected", "a joy to use"],
            "negative": ["it broke within days", "the refund never came", "far too loud"],
            "neutral": ["it is what the picture shows", "it arrived on the date given"],
        }[label]
        text = (f"I bought this {rng.choice(['kettle', 'drill', 'tent', 'headset', 'blender'])} for "
                f"{rng.choice(u._PEOPLE)} and used it for {rng.randint(2, 90)} days. Verdict: "
                f"{rng.choice(said)}.")  # fmt: skip
        reviews.append({"prompt": u.chat(f"Classify the review as positive, negative or neutral. "
                                         f"Reply with one word.\n\nReview: {text}"), "sentiment": label})  # fmt: skip
    return (
        Case(name="summaries with references", rows=articles, reward=_ROUGE, model=LLAMA),
        Case(name="instructions with constraints", rows=_constraints(300), reward=_CONSTRAINTS),
        Case(name="unequal labels of reviews", rows=reviews, suffix=".parquet", reward=_LABEL,
             model=GEMMA),
    )  # fmt: skip


def _constraints(count: int) -> list[Row]:
    """Instructions in the style of IFEval, with what a program checks of them."""
    rng, rows = random.Random(3422), []
    while len(rows) < count:
        topic = rng.choice(["tidal power", "sourdough", "chess openings", "night trains", "beekeeping",
                            "volcanoes", "origami", "the history of zero", "coral reefs"])  # fmt: skip
        word, number = rng.choice(["because", "remember", "tomorrow", "measure"]), rng.randint(2, 6)
        rules, text = [], [rng.choice([f"Explain {topic} to a child.", f"Write a note about {topic}.",
                                       f"Advertise a course on {topic}."])]  # fmt: skip
        for kind in rng.sample(["keyword", "sentences", "no_commas"], rng.randint(1, 2)):
            rules.append({"kind": kind, **({"value": word} if kind == "keyword" else {"value": number}
                          if kind == "sentences" else {})})  # fmt: skip
            text.append({"keyword": f"Use the word '{word}'.", "sentences": f"Write exactly {number} sentences.",
                         "no_commas": "Do not use any commas."}[kind])  # fmt: skip
        if any(row["prompt"][0]["content"] == " ".join(text) for row in rows):
            continue
        rows.append({"prompt": u.chat(" ".join(text)), "constraints": json.dumps(rules)})
    return rows
