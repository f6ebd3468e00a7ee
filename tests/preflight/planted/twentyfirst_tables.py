"""Tables of the twenty-first examination, with contents made by chance."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.preflight.planted.nineteenth_tables import chat
from tests.preflight.planted.tables import Row

ASK_TAG = "Think step by step, then give the answer between <answer> and </answer>."
ASK_LINE = "Explain your choice, then end with a line 'Answer: ' and the letter of the option."
ASK_NAME = "Explain in one sentence, then end with a line 'Answer: ' and the name."
ASK_CLOCK = "Think step by step. Write the time as HH:MM of the 24-hour clock between <answer> and </answer>."
ASK_MOOD = "Read the review. Say what it praises or criticizes, then write positive or negative between <answer> and </answer>."
ASK_DISH = (
    "Explique ton choix en une phrase, puis écris le nom du plat entre <answer> et </answer>."
)
ASK_DEVICE = "You help with smart devices. Use the readings of the tools, explain briefly, and write the number between <answer> and </answer>."

_NAMES = ("Anselm", "Wanda", "Rosalie", "Sverre", "Edwina", "Norbert", "Tibor", "Clara", "Ulrike", "Pavel", "Milena", "Jasper", "Roland", "Esther")  # fmt: skip
_CITIES = ("Bergen", "Padua", "Utrecht", "Graz", "Toledo", "Lublin", "Aarhus", "Nantes", "Split", "Tartu")  # fmt: skip
_GOODS = ("bolts", "tiles", "bottles", "seedlings", "bricks", "labels", "screws", "cartons")


def journeys(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Departures with a duration; `minutes` since midnight of the arrival."""
    rng = random.Random(seed)
    for _ in range(count):
        start, long = rng.randint(300, 900), rng.randint(35, 500)
        a, b = rng.sample(_CITIES, 2)
        text = f"{rng.choice(_NAMES)}'s train leaves {a} at {start // 60:02d}:{start % 60:02d} and needs {long // 60} hours and {long % 60} minutes to {b}. When does it arrive?"
        yield {"text": text, "minutes": start + long}


def factories(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Products beyond a million."""
    rng = random.Random(seed)
    for _ in range(count):
        a, b, c = rng.randint(211, 989), rng.randint(103, 997), rng.randint(23, 98)
        text = f"A plant in {rng.choice(_CITIES)} packs {a} {rng.choice(_GOODS)} per box, {b} boxes per truck and sends {c} trucks a year, says {rng.choice(_NAMES)}. How many pieces leave the plant in a year?"
        yield {"text": text, "total": a * b * c}


def mixtures(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Weights with one decimal."""
    rng = random.Random(seed)
    for _ in range(count):
        a, b, c = rng.randint(11, 799), rng.randint(11, 799), rng.randint(3, 99)
        text = f"{rng.choice(_NAMES)} in {rng.choice(_CITIES)} mixes {a / 10} kg of sand with {b / 10} kg of lime and adds {c / 10} kg of water. How heavy is the mixture in kg?"
        yield {"text": text, "value": (a + b + c) / 10}


_DISHES = (("crème brûlée", "une crème à la vanille, couverte de caramel"), ("pâté en croûte", "une viande hachée, cuite dans une pâte dorée"), ("gâteau au pavé", "une pâtisserie carrée, très sucrée"), ("blanquette à l'échalote", "du veau dans une sauce légère"), ("purée de céleri", "des légumes écrasés au goût de noisette"), ("bœuf mariné à l'étouffée", "une viande qui a mijoté toute la journée"))  # fmt: skip


def menus(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """French questions about dishes, full of accents."""
    rng = random.Random(seed)
    for _ in range(count):
        chosen = rng.sample(_DISHES, 4)
        dish, about = rng.choice(chosen)
        table, hour = rng.randint(2, 60), rng.randint(18, 22)
        text = f"À la table {table} du café de {rng.choice(_CITIES)}, à {hour} heures, {rng.choice(_NAMES)} a commandé {about}. La carte de l'été propose : {', '.join(name for name, _ in chosen)}. Quel plat a été préféré ?"
        yield {"text": text, "dish": dish}


def posts(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Who of three people has an office."""
    rng = random.Random(seed)
    for _ in range(count):
        people = rng.sample(_NAMES, 3)
        jobs = rng.sample(("treasurer", "librarian", "gardener", "pilot", "cook", "tailor"), 3)
        at = rng.randrange(3)
        said = " ".join(f"{who} became {job} in {rng.randint(1950, 2020)}." for who, job in zip(people, jobs, strict=True))  # fmt: skip
        yield {"text": f"Club of {rng.choice(_CITIES)}. {said} Who is the {jobs[at]}?", "name": people[at]}  # fmt: skip


_GOOD = ("The screen is bright and sharp", "It arrived early and well packed", "The battery lasts for days", "The fabric feels soft", "The support solved my problem at once", "Assembly took five minutes")  # fmt: skip
_BAD = ("The hinge broke within a week", "It smells of glue", "The manual is useless", "The strap tore on the first trip", "Nobody answers my mails", "The motor overheats quickly")  # fmt: skip


def reviews(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Reviews with a mood."""
    rng = random.Random(seed)
    for _ in range(count):
        mood = rng.choice(("positive", "negative"))
        lines = rng.sample(_GOOD if mood == "positive" else _BAD, 2)
        text = f"Order {rng.randint(1000, 99999)} from {rng.choice(_CITIES)}, by {rng.choice(_NAMES)}: {lines[0]}. {lines[1]}."
        yield {"text": text, "mood": mood}


def tours(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Four options with lengths; the letter of the shortest."""
    rng = random.Random(seed)
    for _ in range(count):
        ways, names = rng.sample(range(11, 400), 4), rng.sample(_CITIES, 4)
        options = [f"the path to {name}, {way} km" for name, way in zip(names, ways, strict=True)]
        yield {"text": f"{rng.choice(_NAMES)} wants the shortest walk of the {rng.choice(('spring', 'autumn'))} program {rng.randint(1990, 2025)}.", "options": options, "key": "ABCD"[ways.index(min(ways))]}  # fmt: skip


def letters(text: str, options: list[str]) -> str:
    """A question with lettered options."""
    return text + "\n" + "\n".join(f"{mark}) {each}" for mark, each in zip("ABCD", options, strict=True))  # fmt: skip


def devices(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations with the reading of a tool, and the number that follows from it."""
    rng = random.Random(seed)
    for _ in range(count):
        read, goal = rng.randint(8, 60), rng.randint(61, 99)
        call = {"type": "function", "function": {"name": "read_tank", "arguments": {"tank": rng.choice(_CITIES)}}}  # fmt: skip
        messages = [
            {"role": "system", "content": ASK_DEVICE},
            {"role": "user", "content": f"{rng.choice(_NAMES)} wants the tank of {call['function']['arguments']['tank']} at {goal} percent. How many percent are missing?"},  # type: ignore[index]
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": f"level: {read} percent"},
        ]  # fmt: skip
        yield {"messages": messages, "missing": str(goal - read)}


def tagged_rows(table: Iterator[dict[str, Any]], column: str, ask: str = ASK_TAG) -> list[Row]:
    """Prompts whose answer is the column's text, in the column answer."""
    return [{"prompt": chat(row["text"], ask), "answer": str(row[column])} for row in table]


def tour_rows(count: int, seed: int) -> list[Row]:
    """Questions with four options and a letter."""
    return [{"prompt": chat(letters(r["text"], r["options"]), ASK_LINE), "answer": r["key"]} for r in tours(count, seed)]  # fmt: skip


def journey_rows(count: int, seed: int) -> list[Row]:
    """Times of arrival."""
    return [{"prompt": chat(r["text"], ASK_CLOCK), "answer": f"{r['minutes'] // 60:02d}:{r['minutes'] % 60:02d}"} for r in journeys(count, seed)]  # fmt: skip


def device_rows(count: int, seed: int) -> list[Row]:
    """Conversations with tools."""
    return [{"prompt": r["messages"], "answer": r["missing"]} for r in devices(count, seed)]
