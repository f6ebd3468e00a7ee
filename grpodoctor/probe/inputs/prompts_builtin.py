"""Built-in prompts: arithmetic, code, many languages, long contexts.

They are templates filled with new values each time they recur, so any number of prompts is
distinct. The quality of the answers does not matter. The prompts cover what a model meets in
training: digits, indentation, scripts with several bytes per character, and contexts of a few
thousand tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.prompts import Prompt

_ARITHMETIC = (
    "What is {a} + {b}? Answer with the number alone.",
    "Compute {a} - {b} + {c} step by step.",
    "{name} has {a} {things} and gives away {c}. How many are left?",
    "What is {c} times {d}? Show your work.",
    "A train covers {a} km in {d} hours. What is its mean speed?",
    "Find the remainder of {a} divided by {d}.",
    "Is {a} divisible by {d}? Reason, then say yes or no.",
    "Write {a} as a product of primes.",
    "Solve for x: {c}x + {d} = {a}.",
    "What is {d} % of {a}?",
    "{name} reads {d} pages a day. How long do {b} pages take?",
    "The sides of a rectangle are {c} and {d}. Give its area and its perimeter.",
    "Convert {a} from decimal to binary.",
    "Which is larger, {a}/{b} or {c}/{d}? Explain.",
    "The mean of five numbers is {c}. Four of them sum to {b}. What is the fifth?",
    "{a}+{b}=",
)
_CODE = (
    "Write a Python function that returns the {d} largest of a list of numbers.",
    "Complete this function:\n\ndef total(values):\n    result = {c}\n    for value in values:\n",
    "Explain what this does: `[x * {d} for x in range({c}) if x % 2]`",
    "Write a SQL query for the {d} customers with the largest sum of orders above {a}.",
    "Find the fault:\n\nfor (int i = 0; i <= {c}; i++) {{\n    sum += values[i];\n}}\n",
    "Write a shell command that finds files larger than {c} MB.",
    "Write a Rust function that reverses every group of {d} bytes in place.",
    'Parse this JSON and name its keys: {{"{name}": {a}, "{things}": [{c}, {d}]}}',
    "Write a unit test for a stack with room for {d} entries.",
    "Turn this loop into recursion:\n\nn = {a}\nwhile n > {d}:\n    n //= 2\n",
    "class Store:\n    def __init__(self):\n        self.{things} = {c}\n\n    def take(self, n",
    "What is the complexity of sorting {a} lists of {c} entries each? Why?",
)
_LANGUAGES = (
    "Was ergibt {a} minus {c}? Bitte erkläre den Rechenweg.",
    "Explique en français comment on multiplie {c} par {d}.",
    "Calcula la suma de {a} y {b} y explica cada paso.",
    "Quanto fa {a} diviso {d}? Mostra i passaggi.",
    "Сколько будет {a} плюс {b}? Объясни.",
    "{a} 加 {b} 等于多少?请逐步计算。",
    "{a}から{c}を引くといくつですか。理由も書いてください。",
    "{a} 더하기 {b}는 얼마입니까? 과정을 설명하세요.",
    "ما ناتج جمع {a} و {b}؟ اشرح خطوة بخطوة.",
    "{a} और {b} का योग कितना है? समझाइए।",
    "{a} ile {c} arasındaki fark nedir? Adım adım yaz.",
    "Tính {c} nhân {d} và giải thích.",
    "Πόσο κάνει {a} συν {b};",
    "כמה זה {a} ועוד {b}?",
    "Ile to jest {a} odjąć {c}? Pokaż obliczenia.",
    "{a} + {b} เท่ากับเท่าไร",
)
_REASONING = (
    "{name} is older than Ida and younger than Omar. Who is the oldest? Think it through.",
    "List {d} uses of a brick, each in one sentence.",
    "Summarise in {d} sentences and {c} words why the sky is blue.",
    "Write a short poem about {c} {things} that crossed a river.",
    "Is the following valid? All {things} are red. This is red. So it is one of the {things}.",
    "Choose: A) {a}  B) {b}  C) {c}. Which is the smallest? Give the letter in \\boxed{{}}.",
    "A clock shows {d}:00. What does it show {c} hours later?",
    "Give the next three terms: {d}, {c}, {d}, {c}, ...",
    "Describe how you would weigh {d} coins to find the false one.",
    "Translate into English, then continue: 'Il était une fois {c} {things}'",
    "Once upon a time {name} counted {a} {things} and",
    "Argue for and against giving {name} {c} {things}.",
)
_LONG = (
    "Shelf {at} holds {a} {things}; {name} counted them twice and noted {c} that were damaged.",
    "On day {at} the station measured {c}.{d} degrees, and {name} wrote the figure down.",
    "line_{at} = compute({a}, {c})  # {name}: keep {d} {things}",
    "Invoice {at}: {c} {things} at {d} each, delivered to {name}, paid after {d} days.",
    "问题{at}:{name}有{a}个,拿走{c}个。",
    "Step {at}. Add {c} to the sum, subtract {d}, and tell {name} the result.",
    "{at};{name};{a};{c};{d};{things}",
    "{name} said: I have seen {a} {things}. The other answered: I have seen {c}.",
)
_LONG_QUESTIONS = (
    "How many entries are there, and which is the last one?",
    "What does the third entry say? Repeat it, then sum up the rest.",
)
_REPEATS = (24, 48, 96)
"""Lines of a long context: about 500 to 3000 tokens."""
_TRIES = 32
"""Attempts to fill a template with values that were not used before."""
_NAMES = ("Ana", "Bo", "Chidi", "Dara", "Emre", "Farah", "Goran", "Hana", "Ines", "Jun")
_THINGS = ("apples", "stamps", "marbles", "bolts", "pages", "lamps", "tickets", "shells")

BASE = (*_ARITHMETIC, *_CODE, *_LANGUAGES, *_REASONING, *_LONG)
"""64 templates; the last ones make long contexts."""


def builtin_prompts(limit: int, *, chat: bool, seed: int = 0) -> list[Prompt]:
    """Built-in prompts; duplicates are possible but unlikely.

    Args:
        limit: number of prompts.
        chat: whether every other prompt is a conversation, for models with a chat template.
        seed: seed of the values in the templates.
    """
    return list(islice(_prompts(chat=chat, seed=seed), limit))


def _prompts(*, chat: bool, seed: int) -> Iterator[Prompt]:
    seen: set[str] = set()
    for at in count():
        rng = random.Random(f"{seed}/{at}")  # noqa: S311 - not a secret
        # The stride is coprime to 64, so the first few prompts already cover all kinds.
        template = at * 27 % len(BASE)
        fillings = (_filled(template, rng) for _ in range(_TRIES))
        text = next((each for each in fillings if each not in seen), _filled(template, rng))
        seen.add(text)
        is_chat = chat and (at + at // len(BASE)) % 2 == 0
        yield {"messages": [{"role": "user", "content": text}]} if is_chat else {"text": text}


def _filled(template: int, rng: random.Random) -> str:
    if template < len(BASE) - len(_LONG):
        return BASE[template].format(**_fillings(rng))
    lines = [
        BASE[template].format(at=at, **_fillings(rng)) for at in range(1, rng.choice(_REPEATS) + 1)
    ]
    return "\n".join([*lines, rng.choice(_LONG_QUESTIONS)])


def _fillings(rng: random.Random) -> dict[str, str | int]:
    numbers = {"a": rng.randint(100, 9999), "b": rng.randint(100, 9999)}
    small = {"c": rng.randint(11, 99), "d": rng.randint(2, 12)}
    return {**numbers, **small, "name": rng.choice(_NAMES), "things": rng.choice(_THINGS)}


def has_chat_template(model: str) -> bool:
    """Whether a model on this machine has a chat template; False if not known."""
    folder = local_model(model)
    if folder is None:
        return False
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    return _mentions_template(folder / "tokenizer_config.json")


def _mentions_template(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"chat_template"' in file.read(16 << 20)
    except OSError:
        return False
