"""Rows and reward functions of the seventh examination, in the words of ten kinds of tasks."""

from __future__ import annotations

import random

from tests.preflight.planted.tables import Row

HEAD = r"""
import json, math, random, re
def _text(c):
    return c if isinstance(c, str) else c[-1]["content"]
def _tagged(text):
    found = re.findall(r"(?s)<answer>(.*?)</answer>", text)
    return found[-1].strip() if found else None
def _boxed(text):
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 1
    for end in range(start + 7, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + 7:end].strip()
    return None
def _number(text):
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text or "")
    return float(found[-1].replace(",", "")) if found else None
"""


def each(body: str, column: str = "answer", helpers: str = "") -> str:
    """A TRL reward whose lines see the text `t` and the answer `a` of one completion."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return (
        f"{HEAD}{helpers}\ndef _one(t, a):\n{lines}\n"
        f"def score(completions, {column}, **kwargs):\n"
        f"    return [float(_one(_text(c), a)) for c, a in zip(completions, {column})]\n"
    )


def verl_each(body: str, helpers: str = "") -> str:
    """A verl reward whose lines see the text `t` and the ground truth `a`."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return (
        f"{HEAD}{helpers}\ndef _one(t, a):\n{lines}\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(_one(solution_str, ground_truth))\n"
    )


def user(text: str, answer: object, column: str = "answer", system: str = "") -> Row:
    """A conversation of one or two messages, with its answer."""
    messages = [{"role": "system", "content": system}] if system else []
    return {"prompt": [*messages, {"role": "user", "content": text}], column: answer}


def verl_row(text: str, truth: str, source: str, index: int) -> Row:
    """A row of verl's layout."""
    return {
        "data_source": source, "prompt": [{"role": "user", "content": text}], "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"split": "train", "index": index},
    }  # fmt: skip


_SHOPS = ["Halden", "Moritz", "Okafor", "Takeda", "Ruiz", "Larsen", "Bianchi", "Novak"]
_GOODS = ["kettles", "scarves", "bicycles", "lamps", "violins", "notebooks", "helmets", "rugs"]


def percentages(count: int, seed: int) -> list[tuple[str, int]]:
    """Questions about a share, and whole percentages."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        percent, base, good = rng.randint(2, 97), rng.randint(3, 90) * 100, rng.choice(_GOODS)
        part = percent * base // 100
        question = (
            f"{rng.choice(_SHOPS)} & Sons made {base} {good} last season, and {part} were returned. "
            f"What percentage of the {good} was returned?"
        )
        pairs[question] = percent
    return list(pairs.items())


def differences(count: int, seed: int) -> list[tuple[str, int]]:
    """Questions about temperatures; half of the answers are negative."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        start, change, hours = rng.randint(-30, 30), rng.randint(1, 9), rng.randint(2, 9)
        town = rng.choice(["Tromso", "Yakutsk", "Davos", "Ushuaia", "Sapporo", "Fairbanks"])
        sign = rng.choice((-1, 1))
        verb = "rises" if sign > 0 else "falls"
        question = (
            f"At noon a thermometer in {town} shows {start} degrees. It {verb} by {change} degrees an "
            f"hour for {hours} hours. What does it show then?"
        )
        pairs[question] = start + sign * change * hours
    return list(pairs.items())


def reviews(count: int, seed: int, weights: tuple[int, int, int]) -> list[tuple[str, str]]:
    """Short product reviews and their sentiment, in the given proportions."""
    rng, pairs = random.Random(seed), {}
    words = {
        "positive": ("wonderful", "a joy to use", "better than I hoped", "simply brilliant"),
        "negative": ("broken on arrival", "a waste of money", "far too loud", "falling apart"),
        "neutral": ("as described", "neither good nor bad", "what one expects", "of usual size"),
    }
    while len(pairs) < count:
        label = rng.choices(list(words), weights)[0]
        good, days, shop = rng.choice(_GOODS), rng.randint(2, 300), rng.choice(_SHOPS)
        text = f"I ordered the {good} from {shop} {days} days ago. They are {rng.choice(words[label])}."
        pairs[text] = label
    return list(pairs.items())


_ANIMALS = ["badger", "otter", "lynx", "falcon", "tapir", "gecko", "walrus", "ibex"]


def pictures(count: int, seed: int, *, label_in_name: bool) -> list[Row]:
    """Pictures by file name, and the animal that each shows."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        animal = rng.choice(_ANIMALS)
        stem = f"{animal}_{number:04d}" if label_in_name else f"IMG_{rng.randint(10**6, 10**7)}"
        text = f"Picture {stem}.jpg\nWhich animal is shown? Reply in <answer> tags with one word."
        content = [{"type": "image"}, {"type": "text", "text": text}]
        rows.append({
            "prompt": [{"role": "user", "content": content}],
            "images": [f"data/{number}.png"], "answer": animal,
        })  # fmt: skip
    return rows


_RIVERS = [
    "Danube", "Vistula", "Orinoco", "Zambezi", "Mekong", "Yukon", "Loire", "Tagus", "Rhine",
    "Niger", "Volga", "Ganges", "Douro", "Elbe", "Oder", "Thames", "Shannon", "Murray",
]  # fmt: skip


def listed_choices(count: int, seed: int, *, always: int | None) -> list[tuple[str, str]]:
    """Numbered options, with the right option's text as the answer."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        options = rng.sample(_RIVERS, 4)
        place = rng.randrange(4) if always is None else always
        mark = rng.randint(100, 990)
        lines = "\n".join(f"({at}) {name}" for at, name in enumerate(options, 1))
        question = f"Which of these rivers crosses plate {mark} of the atlas?\n{lines}"
        pairs[question] = options[place]
    return list(pairs.items())


_TITLES = [
    "The Lighthouse Keeper", "A Winter in Bergen", "Notes on Clay", "The Glass Orchard",
    "Letters to a Cartographer", "Seven Small Harbours", "The Copper Beech", "Under the Viaduct",
    "An Hour of Rain", "The Tin Parliament", "Salt Road", "Map of Silences",
]  # fmt: skip


def titles(count: int, seed: int) -> list[tuple[str, str]]:
    """Questions about catalogue numbers and book titles of several words."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        title, shelf, year = rng.choice(_TITLES), rng.randint(10, 999), rng.randint(1880, 2020)
        author = rng.choice(_SHOPS)
        question = (
            f"Which novel by {author}, printed in {year}, is on shelf {shelf} of the archive?"
        )
        pairs[question] = f"{title}, volume {rng.randint(1, 9)}"
    return list(pairs.items())


_VERBS = ["trim", "fold", "weave", "stack", "sift", "graft", "braid", "notch"]


def programs(count: int, seed: int) -> list[Row]:
    """Programming tasks with a solution and tests."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        name = f"{rng.choice(_VERBS)}_{number}"
        a, b = rng.randint(2, 60), rng.randint(2, 60)
        rows.append({
            "task": f"Write a Python function `{name}(n)` that returns n times {a}, plus {b}. "
                    "Put the code in a ```python block.",
            "code": f"def {name}(n):\n    scaled = n * {a}\n    return scaled + {b}",
            "tests": [f"assert {name}(0) == {b}", f"assert {name}(3) == {3 * a + b}"],
        })  # fmt: skip
    return rows


def articles(count: int, seed: int) -> list[tuple[str, str]]:
    """Short news items and a summary of one sentence."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < count:
        town = rng.choice(["Halmstad", "Brno", "Leith", "Cadiz", "Varna", "Lodz"])
        thing = rng.choice(["tram line", "swimming pool", "bridge", "concert hall", "school"])
        cost, year, people = rng.randint(2, 90), rng.randint(2001, 2024), rng.randint(2, 70) * 100
        text = (
            f"The council of {town} met on Tuesday to discuss the new {thing}. After four hours it "
            f"agreed to spend {cost} million on the project, which had been delayed since {year}. "
            f"Nearly {people} residents had signed a petition. The mayor thanked everyone, and said "
            "that work would begin after the winter holidays, weather permitting."
        )
        pairs[text] = f"{town} approves {cost} million for a {thing} delayed since {year}."
    return list(pairs.items())
