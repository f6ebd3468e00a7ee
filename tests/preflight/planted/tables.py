"""Tables in the layouts of public data sets, with contents that are generated."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

_NAMES = [
    "Priya",
    "Marcus",
    "Elena",
    "Tomasz",
    "Aisha",
    "Dmitri",
    "Wen",
    "Josephine",
    "Kofi",
    "Ingrid",
    "Rafael",
    "Leila",
]
_THINGS = [
    "lanterns",
    "stickers",
    "walnuts",
    "tulips",
    "marbles",
    "postcards",
    "candles",
    "ribbons",
    "pebbles",
]
_PLACES = [
    "market",
    "fair",
    "harbour",
    "library",
    "orchard",
    "workshop",
    "station",
    "bakery",
    "museum",
]


def word_problems(count: int, seed: int = 1) -> list[Row]:
    """Like GSM8K: a question in a few sentences, and a solution that ends in `#### N`."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        name, thing, place = rng.choice(_NAMES), rng.choice(_THINGS), rng.choice(_PLACES)
        boxes, each, lost = rng.randint(3, 60), rng.randint(4, 48), rng.randint(2, 11)
        total = boxes * each - lost
        question = rng.choice((
            f"{name} carries {boxes} boxes of {thing} to the {place}. Each box holds {each} "
            f"{thing}. On the way {lost} {thing} are lost. How many {thing} arrive?",
            f"At the {place}, {name} packs {each} {thing} into every box and fills {boxes} boxes. "
            f"Then {lost} {thing} break. How many whole {thing} does {name} have left?",
            f"A {place} orders {boxes} crates with {each} {thing} per crate, and {name} returns "
            f"{lost} of the {thing}. How many {thing} does the {place} keep?",
        ))  # fmt: skip
        solution = (
            f"There are {boxes} * {each} = <<{boxes}*{each}={boxes * each}>>{boxes * each} {thing}."
            f"\n{boxes * each} - {lost} = {total} remain.\n#### {total}"
        )
        rows.append({"question": question, "answer": solution})
    return rows


def latex_problems(count: int, seed: int = 2) -> list[Row]:
    """Like MATH: LaTeX in problem and solution, the answer in a box."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        a, b, c = rng.randint(2, 60), rng.randint(2, 119), rng.randint(3, 50)
        kind = number % 4
        if kind == 0:
            problem = f"Let $f(x) = {a}x^2 - {b}x + {c}$. Find the sum of the roots of $f$."
            answer = f"\\frac{{{b}}}{{{a}}}"
        elif kind == 1:
            problem = f"Compute $\\sqrt{{{a * a}}} + \\lfloor {b}.5 \\rfloor \\cdot {c}$."
            answer = str(a + b * c)
        elif kind == 2:
            problem = (
                f"What is the area of a circle whose radius is ${c}$ if its centre is $({a}, {b})$?"
            )
            answer = f"{c * c}\\pi"
        else:
            problem = f"In triangle $ABC$, $\\angle A = {a}^\\circ$ and $\\angle B = {b}^\\circ$. What is $\\angle C$ in degrees?"
            answer = str(180 - a - b)
        rows.append({
            "problem": problem, "level": f"Level {rng.randint(1, 5)}", "type": "Algebra",
            "solution": f"We use the given values ${a}$, ${b}$, ${c}$ and simplify. Therefore the answer is $\\boxed{{{answer}}}$.",
        })  # fmt: skip
    return rows


_MONTHS = ["January", "March", "April", "June", "August", "October", "November"]
_CAPITALS = dict(
    pair.split(":")
    for pair in [
        "France:Paris",
        "Italy:Rome",
        "Norway:Oslo",
        "Japan:Tokyo",
        "Peru:Lima",
        "Kenya:Nairobi",
        "Chile:Santiago",
        "Egypt:Cairo",
        "Spain:Madrid",
        "Cuba:Havana",
        "Ghana:Accra",
        "Latvia:Riga",
        "Nepal:Kathmandu",
        "Greece:Athens",
        "Poland:Warsaw",
        "Austria:Vienna",
        "Finland:Helsinki",
        "Portugal:Lisbon",
    ]
)


def choices(count: int, seed: int = 3, key: str = "ABCD") -> list[Row]:
    """Like ARC: a question, labelled choices, and the letter of the right one."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        country, capital = rng.choice(list(_CAPITALS.items()))
        letter = key[number % len(key)]
        options = rng.sample([city for city in _CAPITALS.values() if city != capital], 4)
        options["ABCD".index(letter)] = capital
        year = rng.randint(1900, 2020)
        rows.append({
            "question": f"Which city was the seat of the government of {country} in {rng.choice(_MONTHS)} {year}?",
            "choices": {"text": options, "label": list("ABCD")}, "answerKey": letter,
        })  # fmt: skip
    rng.shuffle(rows)
    return rows


_VERBS = [
    "add",
    "scale",
    "rotate",
    "reverse",
    "filter",
    "merge",
    "clamp",
    "count",
    "shift",
    "split",
    "pad",
    "rank",
]
_NOUNS = [
    "prices",
    "tokens",
    "vectors",
    "names",
    "intervals",
    "digits",
    "words",
    "grades",
    "edges",
    "bytes",
]


def functions(count: int, seed: int = 4) -> list[Row]:
    """Like MBPP: a task, its code, and tests that call the function."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        name = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}_{number}"
        factor = rng.randint(2, 99)
        rows.append({
            "prompt": f"Write a Python function `{name}(values)` that multiplies each of the values by {factor} and returns a list.",
            "code": f"def {name}(values):\n    return [value * {factor} for value in values]",
            "test_list": [f"assert {name}([1, 2]) == [{factor}, {2 * factor}]", f"assert {name}([]) == []"],
        })  # fmt: skip
    return rows


def tool_tasks(count: int, seed: int = 5) -> list[Row]:
    """Conversations with a tool call in the history, as TRL stores them."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        city, degrees = rng.choice(list(_CAPITALS.values())), rng.randint(-15, 40)
        call = {"type": "function", "function": {"name": "weather", "arguments": {"city": city}}}
        rows.append({
            "prompt": [
                {"role": "system", "content": "You may call the tool weather(city)."},
                {"role": "user", "content": f"Station {number}: how warm is it in {city}, in kelvin?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "name": "weather", "content": json.dumps({"celsius": degrees})},
            ],
            "answer": str(degrees + 273),
        })  # fmt: skip
    return rows


_MULTILINGUAL = {
    "de": "Auf dem Markt kauft {name} {a} Kisten mit je {b} Birnen. Wie viele Birnen sind das?",
    "fr": "Au marché, {name} achète {a} caisses de {b} poires. Combien de poires y a-t-il en tout ?",
    "es": "En el mercado, {name} compra {a} cajas con {b} peras cada una. ¿Cuántas peras son en total?",
    "zh": "{name}在市场上买了{a}箱梨，每箱{b}个。一共有多少个梨？",
    "ru": "На рынке {name} покупает {a} ящиков, в каждом {b} груш. Сколько груш всего?",
    "en": "At the market {name} buys {a} crates with {b} pears each. How many pears are there?",
}


def multilingual(
    count: int, languages: Sequence[str] = tuple(_MULTILINGUAL), seed: int = 6
) -> list[Row]:
    """Like MGSM: the languages in equal shares."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        a, b = rng.randint(2, 90), rng.randint(2, 90)
        language = languages[number % len(languages)]
        question = _MULTILINGUAL[language].format(name=rng.choice(_NAMES), a=a, b=b)
        rows.append({"question": question, "answer_number": a * b, "language": language})
    rng.shuffle(rows)
    return rows


def final(row: Row) -> str:
    """The final answer of a word problem."""
    return str(row["answer"]).rpartition("#### ")[2]


def trl(rows: Sequence[Row], instruction: str = "") -> list[Row]:
    """TRL's conversational layout, from word problems."""
    return [
        {"prompt": [{"role": "user", "content": instruction + row["question"]}], "solution": final(row)}
        for row in rows
    ]  # fmt: skip


def verl(
    rows: Sequence[Row],
    suffix: str = ' Let\'s think step by step and output the final answer after "####".',
) -> list[Row]:
    """verl's layout, from word problems."""
    return [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": row["question"] + suffix}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": final(row)},
            "extra_info": {"split": "train", "index": number, "question": row["question"]},
        }
        for number, row in enumerate(rows)
    ]


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write rows in the format of the file's suffix."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(list(rows), ensure_ascii=False), encoding="utf-8")
    else:
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        path.write_text(text + "\n", encoding="utf-8")
    return path
