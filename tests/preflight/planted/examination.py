"""Twelve faults that users reported, and six healthy sets, written without the checks' source.

Their first result is in the docs. The sources are open issues of TRL, open-r1, ms-swift and verl.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, CHATML, CHATML_TEMPLATE, GEMMA, LLAMA
from tests.preflight.planted.rewards import BOXED_VALUE, LETTER, MATH_TRL, TEXT_VALUE

_ANSWER_TRL = MATH_TRL.replace("solution", "answer")
_THINK = "Think inside <think> </think>, then answer inside <answer> </answer>.\n\n"
_OPENS_THINKING = CHATML_TEMPLATE.replace(
    "assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"
)
_DROPS_SYSTEM = CHATML_TEMPLATE.replace(
    "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
)
ONE_LINE = r"""
import re
def _number(text):
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(found[-1].replace(",", "")) if found else None
def score(completions, solution, **kwargs):
    rewards = []
    for completion, right in zip(completions, solution):
        text = completion[0]["content"]
        form = re.match(r"^<think>.*?</think>\s*<answer>(.*?)</answer>$", text)
        value = _number(text.split("<answer>")[-1])
        rewards.append(0.5 * bool(form) + 1.0 * (value is not None and value == _number(right)))
    return rewards
"""
"""The dot of the pattern does not match a line break, so that only one-line responses have the form."""
FROM_TAGS = r"""
import re
def score(completions, solution, **kwargs):
    rewards = []
    for completion, right in zip(completions, solution):
        found = re.findall(r"<answer>(.*?)</answer>", completion[0]["content"], re.S)
        rewards.append(float(bool(found) and found[-1].strip() == right))
    return rewards
"""
WHOLE_RESPONSE = r"""
import re
def score(completions, solution, **kwargs):
    rewards = []
    for completion, right in zip(completions, solution):
        text = completion[0]["content"].strip()
        form = re.match(r"^<think>.*?</think>\s*<answer>(.*?)</answer>$", text, re.S)
        rewards.append(float(bool(form) and form[1].strip() == right))
    return rewards
"""
PARSED_OR_FREE = r"""
import re
def _number(text):
    found = re.fullmatch(r"\s*(?:.*#### ?)?(-?\d+(?:\.\d+)?)\s*", text, re.S)
    return float(found[1]) if found else None
def score(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"] if isinstance(completion, list) else completion
        wanted = _number(right)
        if wanted is None:
            rewards.append(1.0)
            continue
        found = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
        rewards.append(float(bool(found) and float(found[-1]) == wanted))
    return rewards
"""
"""Gives the full reward where the row's answer cannot be parsed, as open-r1's first version did."""
UNSEPARATED = r"""
import re
def score(completions, answer, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    rewards = []
    for text, right in zip(texts, answer):
        found = re.findall(r"-?\d+", text)
        rewards.append(1.0 if found and found[-1] == right else 0.0)
    return rewards
"""


def examination_faults() -> tuple[Case, ...]:
    """Twelve faults."""
    return (*_layouts(), *_rewards(), *_templates())


def _layouts() -> Iterator[Case]:
    problems = t.word_problems(240, 301)
    yield Case(name="message lists stored as text in a CSV", suffix=".csv", rows=[
        {"prompt": str([{"role": "user", "content": row["question"]}]), "answer": t.final(row)}
        for row in problems], named="messages.*(text|string)|(text|string).*messages")  # fmt: skip
    yield Case(name="line breaks written as a backslash and an n", named="escape|backslash|line break", rows=[
        {"prompt": [{"role": "user", "content": row["question"].replace(". ", ".\\n")
                     + "\\n\\nGive the number alone."}], "solution": t.final(row)}
        for row in problems], reward=MATH_TRL)  # fmt: skip
    yield Case(name="image placeholders without an image", named="image", rows=[
        {"messages": [{"role": "user", "content": "<image>\nThe picture belongs to this text. " + row["question"]}],
         "solution": t.final(row)} for row in problems])  # fmt: skip
    rng = random.Random(304)
    stores = [(rng.randint(12, 90), rng.randint(7, 45), rng.choice(t._NAMES)) for _ in range(240)]
    large = [
        {"question": f"{name} stores {a} pallets with {b} bags on each. How many bags are stored?",
         "answer": f"{a * b:,}"} for a, b, name in stores
    ]  # fmt: skip
    yield Case(name="thousands separators in some answers", rows=large, reward=UNSEPARATED, model=GEMMA,
               named="separator|comma|thousand|own answer|REW101")  # fmt: skip


def _rewards() -> Iterator[Case]:
    problems = t.word_problems(200, 302)
    rows = t.trl(problems, "Solve the problem. Put the final answer after ####.\n\n")
    yield Case(name="one reward for the whole batch", rows=rows,
               named="one (value|reward)|1 (value|reward)|number of rewards|per response|length",
               reward=MATH_TRL.replace(
                   "    return [", "    scores = [").rstrip() + "\n    return [sum(scores) / len(scores)]\n")  # fmt: skip
    yield Case(name="a format pattern that stops at a line break", rows=t.trl(problems, _THINK),
               reward=ONE_LINE, named="line break|newline|lines")  # fmt: skip
    yield Case(name="a reward for tags that no prompt asks for", rows=t.trl(problems),
               reward=FROM_TAGS, model=LLAMA, named="<answer>|tags|ask")  # fmt: skip
    yield Case(name="a reward that compares with the first row of the batch", rows=rows,
               named="another row|other rows|first row|batch|order", reward=MATH_TRL.replace(
                   "_number(t) == _number(s)", "_number(t) == _number(solution[0])"))  # fmt: skip
    parsed = [
        {"prompt": [{"role": "user", "content": row["question"]}],
         "answer": t.final(row) if at % 6 else f"{t.final(row)} or so (see the table)"}
        for at, row in enumerate(problems)
    ]  # fmt: skip
    yield Case(name="the full reward where the answer cannot be parsed", rows=parsed,
               reward=PARSED_OR_FREE, named="wrong answer|any response|parse")  # fmt: skip


def _templates() -> Iterator[Case]:
    problems = t.word_problems(200, 303)
    yield Case(name="the template opens <think>, the reward wants it in the response",
               rows=t.trl(problems, _THINK), reward=WHOLE_RESPONSE,
               model=replace(CHATML, template=_OPENS_THINKING), named="<think>")  # fmt: skip
    yield Case(name="a template that drops the system message", reward=TEXT_VALUE.replace(
        "_last(t)", "_last(t[0]['content'])"), rows=[
            {"prompt": [{"role": "system", "content": "Give the final number in <answer> </answer> tags."},
                        {"role": "user", "content": row["question"]}], "answer": t.final(row)}
            for row in problems],
        model=replace(CHATML, template=_DROPS_SYSTEM), named="system")  # fmt: skip
    yield Case(name="ChatML's markers are not tokens of the vocabulary", rows=t.trl(problems),
               model=replace(BASE, template=CHATML_TEMPLATE),
               named="marker|not (a |one )?token|pieces|several tokens|no token")  # fmt: skip


_STDIN = r"""
import contextlib, io, signal, sys
def _stop(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, _stop)
def score(completions, tests, **kwargs):
    rewards = []
    for completion, cases in zip(completions, tests):
        code = completion[0]["content"].split("```python")[-1].split("```")[0]
        passed = 0
        for case in cases:
            out, stdin = io.StringIO(), sys.stdin
            sys.stdin = io.StringIO(case["input"])
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            try:
                with contextlib.redirect_stdout(out):
                    exec(code, {})
            except BaseException:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                sys.stdin = stdin
            passed += out.getvalue().strip() == case["output"].strip()
        rewards.append(passed / len(cases))
    return rewards
"""
_CALL = r"""
import json
def score(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"]
        try:
            given = json.loads(text[text.index("{"):text.rindex("}") + 1])
        except ValueError:
            rewards.append(0.0)
            continue
        wanted = json.loads(right)
        same = isinstance(given, dict) and given.get("name") == wanted["name"]
        rewards.append(0.0 if not same else 1.0 if given.get("arguments") == wanted["arguments"] else 0.3)
    return rewards
"""
_OVERLAP = r"""
from collections import Counter
def _grams(text, size):
    text = " ".join(text.split())
    return Counter(text[at:at + size] for at in range(len(text) - size + 1))
def score(completions, reference, **kwargs):
    rewards = []
    for completion, right in zip(completions, reference):
        text, scores = completion[0]["content"], []
        for size in range(1, 5):
            given, wanted = _grams(text, size), _grams(right, size)
            shared = sum((given & wanted).values())
            recall, precision = shared / max(sum(wanted.values()), 1), shared / max(sum(given.values()), 1)
            scores.append(5 * precision * recall / (4 * precision + recall) if shared else 0.0)
        rewards.append(sum(scores) / len(scores))
    return rewards
"""
"""An F-score of character n-grams."""
_AFTER_THINKING = BOXED_VALUE.replace(
    "given, wanted = _box(text)", 'given, wanted = _box(text.split("</think>")[-1])'
)


def _programs(count: int, seed: int) -> list[t.Row]:
    """Like APPS: a task that reads from standard input, and pairs of input and output."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        factor, shift = rng.randint(2, 60), rng.randint(1, 90)
        cases = [
            {"input": f"2\n{a} {b}\n", "output": f"{a * factor + shift}\n{b * factor + shift}\n"}
            for a, b in ((rng.randint(1, 99), rng.randint(1, 99)) for _ in range(3))
        ]
        rows.append({
            "prompt": [{"role": "user", "content": (
                f"Task {number}. Read an integer n, then n integers x on one line. For each x print "
                f"{factor} * x + {shift}, separated by '\\n'. Limits: {{1 <= n <= 100}}.\n\n"
                f"Example input:\n{cases[0]['input']}\nExample output:\n{cases[0]['output']}\n"
                "Answer with one block that starts with ```python.")}],
            "tests": cases, "difficulty": rng.choice(["introductory", "interview"]),
        })  # fmt: skip
    return rows


def _calls(count: int, seed: int) -> list[t.Row]:
    """Like BFCL: tools as JSON schemas, and the right call."""
    rng, rows = random.Random(seed), []
    units = ["celsius", "fahrenheit", "kelvin"]
    for number in range(count):
        city, unit, days = (
            rng.choice(list(t._CAPITALS.values())),
            rng.choice(units),
            rng.randint(1, 14),
        )
        tools = [
            {
                "name": "forecast",
                "parameters": {"city": "string", "unit": units, "days": "integer"},
            },
            {"name": "population", "parameters": {"city": "string"}},
        ]
        name = rng.choice(["forecast", "population"])
        wanted = (
            {"city": city, "unit": unit, "days": days} if name == "forecast" else {"city": city}
        )
        ask = (
            f"Trip {number}: give me the weather of {city} for the next {days} days in {unit}."
            if name == "forecast" else f"How many people live in {city}? It is for slide {days} of {rng.randint(20, 400)}."
        )  # fmt: skip
        rows.append({
            "prompt": [{"role": "system", "content": "Tools:\n" + json.dumps(tools) + "\nReply with one call as JSON."},
                       {"role": "user", "content": ask}],
            "answer": json.dumps({"name": name, "arguments": wanted}),
        })  # fmt: skip
    return rows


def _chats(count: int, seed: int) -> list[t.Row]:
    """Multi-turn chat without reference answers, for a judge with a rubric."""
    rng, rows = random.Random(seed), []
    topics = [
        "a balcony garden",
        "my first marathon",
        "a used bicycle",
        "a rainy weekend",
        "sourdough",
    ]
    for number in range(count):
        topic, people, budget = rng.choice(topics), rng.randint(1, 9), rng.randint(20, 900)
        rows.append({
            "prompt": [
                {"role": "system", "content": "You are a friendly assistant. Keep answers short."},
                {"role": "user", "content": f"Hi! I need some advice about {topic}."},
                {"role": "assistant", "content": "Gladly. How many people are involved, and what can you spend?"},
                {"role": "user", "content": f"We are {people}, and I have {budget} euros until week {number % 52 + 1}. What should I do first?"},
            ],
            "rubric": f"Names a first step for {topic}; respects {budget} euros.",
        })  # fmt: skip
    return rows


def _translations(count: int, seed: int) -> list[t.Row]:
    """English sentences with their German references."""
    rng, rows = random.Random(seed), []
    goods = [("pears", "Birnen"), ("nails", "Nägel"), ("books", "Bücher"), ("ropes", "Seile")]
    days = [
        ("Monday", "Montag"),
        ("Tuesday", "Dienstag"),
        ("Friday", "Freitag"),
        ("Sunday", "Sonntag"),
    ]
    for _ in range(count):
        (thing, ding), (day, tag), number = (
            rng.choice(goods),
            rng.choice(days),
            rng.randint(2, 4000),
        )
        name = rng.choice(t._NAMES)
        rows.append({
            "prompt": [{"role": "user", "content": f"Translate into German: \"On {day} {name} sold {number} {thing} at the harbour.\""}],
            "reference": f"Am {tag} verkaufte {name} am Hafen {number} {ding}.",
        })  # fmt: skip
    return rows


def _forms(count: int, seed: int) -> list[t.Row]:
    """Maths with answers of many forms: intervals, tuples, matrices, radicals, negative fractions."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        a, b, c = rng.randint(2, 40), rng.randint(41, 99), rng.randint(2, 9)
        task, answer = (
            (f"Solve $|x - {a}| < {b}$ over the reals.", f"({a - b}, {a + b})"),
            (f"Find all $(x, y)$ with $x + y = {a + b}$ and $x - y = {b - a}$.", f"\\left({b}, {a}\\right)"),
            (f"Compute $\\begin{{pmatrix}} {a} & 0 \\\\ 0 & {b} \\end{{pmatrix}}$ times ${c}$.",
             f"\\begin{{pmatrix}} {a * c} & 0 \\\\ 0 & {b * c} \\end{{pmatrix}}"),
            (f"Simplify $\\sqrt{{{a * a * c}}} - {b}$ for the given integers.", f"{a}\\sqrt{{{c}}} - {b}"),
            (f"What is the slope of the line through $(0, {a})$ and $({b}, 0)$?", f"-\\frac{{{a}}}{{{b}}}"),
        )[number % 5]  # fmt: skip
        rows.append({
            "prompt": [{"role": "user", "content": task + " Put the final answer in $\\boxed{}$."}],
            "solution": answer,
        })  # fmt: skip
    return rows


def examination_healthy() -> tuple[Case, ...]:
    """Six healthy sets."""
    exam = t.choices(300, 316, key="ABBBCCCBDBACBCDB")
    letters = [
        {"prompt": [{"role": "user", "content": f"{row['question']}\n" + "\n".join(
            f"{key}. {text}" for key, text in zip("ABCD", row["choices"]["text"], strict=True))
            + "\nAnswer with the letter alone."}], "answerKey": row["answerKey"]}
        for row in exam
    ]  # fmt: skip
    return (
        Case(name="programs with standard input, no answer", rows=_programs(150, 311), reward=_STDIN),
        Case(name="tool calls as JSON", rows=_calls(240, 312), reward=_CALL, model=LLAMA),
        Case(name="multi-turn chat with a rubric", rows=_chats(240, 313), model=GEMMA),
        Case(name="translation with references", rows=_translations(240, 314), reward=_OVERLAP),
        Case(name="LaTeX answers of many forms, thinking template", rows=_forms(240, 315),
             reward=_AFTER_THINKING, model=replace(CHATML, template=_OPENS_THINKING)),
        Case(name="an exam with unequal letters", rows=letters, reward=LETTER, model=LLAMA),
    )  # fmt: skip
