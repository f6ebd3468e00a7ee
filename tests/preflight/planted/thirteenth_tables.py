"""Data sets of the thirteenth examination, written on the spot in the style of public ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.preflight.planted.tables import Row

_PEOPLE = ["Amina", "Bruno", "Chloe", "Deepak", "Elena", "Farid", "Grace", "Hiro", "Ines", "Jonas",
           "Kofi", "Lena", "Mateo", "Nadia", "Oscar", "Priya", "Quinn", "Rosa", "Sven", "Tara"]  # fmt: skip
_THINGS = ["notebooks", "apples", "stickers", "bricks", "candles", "marbles", "postcards", "bolts",
           "cupcakes", "seedlings", "tiles", "ribbons", "lamps", "buttons", "jars of honey"]  # fmt: skip


def _distinct(draw: Callable[[int, int], list[Any]]) -> Callable[[int, int], list[Any]]:
    """The same generator without repeated problems."""

    def drawn(count: int, seed: int) -> list[Any]:
        found = {}
        for row in draw(count * 8, seed):
            key = row.get("question", row.get("text")) if isinstance(row, dict) else repr(row)
            found.setdefault(key, row)
        assert len(found) >= count
        return list(found.values())[:count]

    return drawn


@_distinct
def gsm(count: int, seed: int) -> list[dict[str, Any]]:
    """Word problems with a worked solution: question, steps, final number."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        who, other, thing = rng.choice(_PEOPLE), rng.choice(_PEOPLE), rng.choice(_THINGS)
        a, b, c = rng.randint(3, 48), rng.randint(2, 19), rng.randint(2, 12)
        question, steps, final = rng.choice(_STORIES)(who, other, thing, a, b, c)
        rows.append({"question": question, "steps": steps, "final": final})
    return rows


def _boxes(who: str, other: str, thing: str, a: int, b: int, c: int) -> tuple[str, str, int]:
    return (
        f"{who} packs {a} boxes with {b} {thing} in each box and then finds {c} more {thing} under "
        f"the table. How many {thing} does {who} have altogether?",
        f"The boxes hold {a} * {b} = <<{a}*{b}={a * b}>>{a * b} {thing}.\nWith the others there are "
        f"{a * b} + {c} = <<{a * b}+{c}={a * b + c}>>{a * b + c} {thing}.", a * b + c,
    )  # fmt: skip


def _savings(who: str, other: str, thing: str, a: int, b: int, c: int) -> tuple[str, str, int]:
    return (
        f"Each week {who} earns ${a} by walking dogs and spends ${b % a + 1} of it on lunch. How many "
        f"dollars are left after {c} weeks?",
        f"Each week {who} keeps {a} - {b % a + 1} = {a - b % a - 1} dollars.\nAfter {c} weeks that is "
        f"{a - b % a - 1} * {c} = {(a - b % a - 1) * c} dollars.", (a - b % a - 1) * c,
    )  # fmt: skip


def _train(who: str, other: str, thing: str, a: int, b: int, c: int) -> tuple[str, str, int]:
    return (
        f"A train leaves with {a * c} passengers. At the first stop {a} of them get off and {b} people "
        f"get on; at the second stop {c} more get on. How many passengers are on the train now?",
        f"After the first stop there are {a * c} - {a} + {b} = {a * c - a + b} passengers.\nAfter the "
        f"second there are {a * c - a + b} + {c} = {a * c - a + b + c}.", a * c - a + b + c,
    )  # fmt: skip


def _shared(who: str, other: str, thing: str, a: int, b: int, c: int) -> tuple[str, str, int]:
    return (
        f"{who} wants to share {a * b} {thing} equally among {b} friends. {other} then gives each "
        f"friend {c} extra. How many {thing} does one friend end up with?",
        f"Each friend first gets {a * b} / {b} = {a} {thing}.\nThen each has {a} + {c} = {a + c}.",
        a + c,
    )


def _garden(who: str, other: str, thing: str, a: int, b: int, c: int) -> tuple[str, str, int]:
    return (
        f"The garden of {who} is {a} metres long and {b} metres wide. A fence goes around it, and a "
        f"gate of {min(c, a)} metres is left open. How many metres of fence are needed?",
        f"Around the garden it is 2 * ({a} + {b}) = {2 * (a + b)} metres.\nWithout the gate "
        f"{2 * (a + b)} - {min(c, a)} = {2 * (a + b) - min(c, a)} metres are needed.",
        2 * (a + b) - min(c, a),
    )


def _tickets(who: str, other: str, thing: str, a: int, b: int, c: int) -> tuple[str, str, int]:
    return (
        f"Tickets for the fair cost ${b} for children and ${b + c} for adults. {who} buys {c} tickets "
        f"for children and {a} for adults. What is the total price in dollars?",
        f"The children cost {c} * {b} = {c * b}.\nThe adults cost {a} * {b + c} = {a * (b + c)}.\n"
        f"Together: {c * b + a * (b + c)}.", c * b + a * (b + c),
    )  # fmt: skip


_STORIES = (_boxes, _savings, _train, _shared, _garden, _tickets)


@_distinct
def competition(count: int, seed: int) -> list[tuple[str, str]]:
    """Competition mathematics: problem and answer in LaTeX, many of them fractions."""
    rng, rows = random.Random(seed), []
    for at in range(count):
        a, b, c = rng.randint(2, 30), rng.randint(2, 30), rng.randint(2, 11)
        root = Fraction(a, b + 30)
        odds = Fraction(min(a, b), a + b)
        line = Fraction(b - a, c)
        problem, answer = (
            (f"Solve for $x$: ${root.denominator}x = {root.numerator}$. Express the answer as a common fraction.", latex(root)),
            (f"An urn holds ${a}$ red and ${b}$ blue balls. What is the probability that a ball drawn at random has the rarer colour?", latex(odds)),
            (f"What is the slope of the line through $(1, {a})$ and $({1 + c}, {b})$?", latex(line)),
            (f"Simplify $\\sqrt{{{a * a * (c * 4 + 1)}}}$ as far as the factor ${a * a}$ allows.", f"{a}\\sqrt{{{c * 4 + 1}}}"),
            (f"Find the remainder when ${a}^{{2}} + {b}$ is divided by ${c + 11}$.", str((a * a + b) % (c + 11))),
            (f"How many integers $n$ satisfy ${-a} \\le n < {b}$?", str(a + b)),
            (f"The roots of $x^2 - {a + b}x + {a * b} = 0$ are $r$ and $s$. Compute $r^2 + s^2$.", str(a * a + b * b)),
        )[(at * 3 + at // 7) % 7]  # fmt: skip
        rows.append((problem, answer))
    return rows


def latex(value: Fraction) -> str:
    """A number in LaTeX."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


_SUBJECTS = ["enzyme", "glacier", "treaty", "sonnet", "isotope", "monsoon", "ledger", "tendon",
             "comet", "guild", "alloy", "estuary", "verdict", "fresco", "pulsar", "membrane"]  # fmt: skip
_FIELDS = ["biology", "history", "physics", "geography", "law", "art", "economics", "medicine"]


@_distinct
def quiz(count: int, seed: int) -> list[tuple[str, list[str], int]]:
    """Multiple choice: question, four options, index of the right one."""
    rng, rows = random.Random(seed), []
    for at in range(count):
        subject, field = rng.choice(_SUBJECTS), rng.choice(_FIELDS)
        year = 1700 + rng.randint(0, 300)
        options = [
            f"{word} of the {rng.choice(_SUBJECTS)}"
            for word in rng.sample(["growth", "decay", "shape", "origin", "motion", "price"], 4)
        ]
        question = (
            f"In {field}, which property of a {subject} was first described in {year}?",
            f"A text of {year} on {field} mentions a {subject}. What does it chiefly explain?",
            f"Which of these is least affected when a {subject} changes, according to {field} "
            f"textbooks of {year}?",
        )[at % 3]
        rows.append((question, options, rng.randrange(4)))
    return rows


def lettered(question: str, options: list[str]) -> str:
    """A question with its options."""
    lines = "\n".join(f"{key}. {text}" for key, text in zip("ABCD", options, strict=True))
    return f"{question}\n{lines}"


_VERBS = ["scale", "shift", "fold", "clip", "blend", "rotate", "count", "merge"]
_NOUNS = ["values", "digits", "scores", "weights", "steps", "pixels", "prices", "ages"]


@_distinct
def code(count: int, seed: int) -> list[dict[str, Any]]:
    """Python tasks with assertions, like MBPP: name, description, tests, reference solution."""
    rng, rows = random.Random(seed), []
    for at in range(count):
        name = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}"
        k, m = rng.randint(2, 9), rng.randint(1, 20)
        text, body, function = (
            (f"multiplies every element of a list by {k} and adds {m}", f"[{k} * x + {m} for x in items]",
             lambda items, k=k, m=m: [k * x + m for x in items]),
            (f"returns {k} times the sum of the elements of a list that are greater than {m}",
             f"{k} * sum(x for x in items if x > {m})",
             lambda items, k=k, m=m: k * sum(x for x in items if x > m)),
            (f"returns the elements of a list at positions divisible by {k}, each plus {m}",
             f"[x + {m} for x in items[::{k}]]", lambda items, k=k, m=m: [x + m for x in items[::k]]),
            (f"multiplies the largest element of a list by {k} and returns it modulo {m + 20}",
             f"max(items) * {k} % {m + 20}", lambda items, k=k, m=m: max(items) * k % (m + 20)),
        )[at % 4]  # fmt: skip
        inputs = [[rng.randint(0, 60) for _ in range(rng.randint(3, 8))] for _ in range(3)]
        rows.append({
            "name": name, "text": f"Write a Python function that {text}.",
            "tests": [f"assert {name}({value}) == {function(value)!r}" for value in inputs],
            "solution": f"def {name}(items):\n    return {body}",
        })  # fmt: skip
    return rows


CITIES = ["Oslo", "Lima", "Accra", "Hanoi", "Quito", "Riga", "Tokyo", "Bogota", "Cairo", "Perth",
          "Porto", "Minsk", "Turin", "Lagos", "Osaka", "Busan", "Delhi", "Tunis"]  # fmt: skip
EVENTS = ["budget", "choir", "dentist", "roof", "garden", "school", "theatre"]
TOOLS = {
    "get_weather": ("city", CITIES),
    "convert_currency": ("amount", list(range(10, 900, 7))),
    "create_event": (
        "title",
        [f"{a} {b}" for a in EVENTS for b in ("meeting", "rehearsal", "call", "visit")],
    ),
    "search_flights": ("destination", CITIES[::-1]),
    "set_timer": ("minutes", list(range(1, 120))),
    "play_song": (
        "artist",
        ["Bach", "Fela Kuti", "Bjork", "Miles Davis", "Mercedes Sosa", "Ravel", "Cesaria Evora"],
    ),
}
_ASKED = {
    "get_weather": "What is the weather like in {} right now?",
    "convert_currency": "I have {} euros. How much is that in yen?",
    "create_event": "Please put '{}' into my calendar for tomorrow morning.",
    "search_flights": "Find me a cheap flight to {} in March.",
    "set_timer": "Remind me in {} minutes to take the bread out.",
    "play_song": "Play something by {}, please.",
}


@_distinct
def calls(count: int, seed: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Requests for a tool: request, tool, arguments."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        tool = rng.choice(list(TOOLS))
        key, values = TOOLS[tool]
        value = rng.choice(values)
        when = rng.choice(["", " Thanks!", " It is urgent.", " I am on the phone.", " No hurry."])
        rows.append((_ASKED[tool].format(value) + when, tool, {key: value}))
    return rows


_LANGUAGES = {
    "es": "{who} compra {a} cajas con {b} lápices cada una y regala {c} lápices. ¿Cuántos lápices le quedan a {who}?",
    "fr": "{who} achète {a} boîtes de {b} crayons et en offre {c} à sa sœur. Combien de crayons lui reste-t-il\u00a0?",
    "de": "{who} kauft {a} Schachteln mit je {b} Stiften und verschenkt {c} davon. Wie viele Stifte bleiben übrig?",
    "pt": "{who} compra {a} caixas com {b} lápis cada e dá {c} à irmã. Com quantos lápis {who} fica?",
    "tr": "{who} her birinde {b} kalem olan {a} kutu alıyor ve {c} kalemi kardeşine veriyor. Geriye kaç kalem kalır?",
    "zh": "{who}买了{a}盒铅笔，每盒{b}支，送给妹妹{c}支。{who}还剩多少支铅笔？",
}  # fmt: skip


@_distinct
def languages(count: int, seed: int) -> list[tuple[str, str, int]]:
    """One kind of word problem in six languages: language, question, answer."""
    rng, rows = random.Random(seed), []
    for at in range(count):
        language = list(_LANGUAGES)[at % len(_LANGUAGES)]
        a, b, c = rng.randint(4, 40), rng.randint(5, 24), rng.randint(1, 19)
        text = _LANGUAGES[language].format(who=rng.choice(_PEOPLE), a=a, b=b, c=c)
        rows.append((language, text, a * b - c))
    return rows


_ACTORS = ["the council", "a start-up", "the museum", "a local farmer", "the ministry",
           "the orchestra", "a research team", "the football club", "a ferry company"]  # fmt: skip
_ACTS = ["announced plans to close", "reopened", "bought", "apologised for", "postponed", "audited",
         "won a prize for", "was fined over", "defended"]  # fmt: skip
_OBJECTS = ["the old bridge", "a solar park", "its summer programme", "the night bus",
            "two storage halls", "the archive", "a rescue boat", "the school canteen"]  # fmt: skip


@_distinct
def news(count: int, seed: int) -> list[tuple[str, str]]:
    """Articles of some 150 words and one-sentence summaries."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        actor, act, thing = rng.choice(_ACTORS), rng.choice(_ACTS), rng.choice(_OBJECTS)
        place, cost = rng.choice(["Leeds", "Ghent", "Cork", "Turku", "Brno"]), rng.randint(2, 90)
        sentences = [
            f"{rng.choice(_PEOPLE)} {rng.choice(['welcomed', 'criticised', 'questioned'])} the step "
            f"and said that {rng.choice(_OBJECTS)} {rng.choice(['mattered more', 'came too late', 'cost too much', 'had been forgotten'])}"
            for _ in range(rng.randint(5, 9))
        ]
        article = f"{actor.capitalize()} in {place} {act} {thing} on {rng.choice(['Monday', 'Tuesday', 'Friday'])}, at a cost of {cost} million. " + ". ".join(sentences) + "."  # fmt: skip
        rows.append((article, f"{actor.capitalize()} in {place} {act} {thing} for {cost} million."))
    return rows


@_distinct
def countdown(count: int, seed: int) -> list[tuple[list[int], int]]:
    """Numbers and a target that can be reached with them."""
    rng, rows = random.Random(seed), []
    while len(rows) < count:
        numbers = [rng.randint(1, 99) for _ in range(rng.choice([3, 4]))]
        target = numbers[0]
        for number in numbers[1:]:
            target = target + number if rng.random() < 0.5 else target - number
        if 10 <= target <= 99:
            rng.shuffle(numbers)
            rows.append((numbers, target))
    return rows


def chat(text: str, system: str = "") -> list[Row]:
    """Messages of a prompt."""
    start = [{"role": "system", "content": system}] if system else []
    return [*start, {"role": "user", "content": text}]


def tool_rows(count: int, seed: int, missing: int = 0) -> list[Row]:
    """Requests with the tools in the system message; every `missing`-th lacks the right one."""
    rows = []
    for at, (request, tool, arguments) in enumerate(calls(count, seed)):
        offered = [name for name in TOOLS if name != tool or not missing or at % missing]
        listed = "\n".join(
            json.dumps({"name": name, "parameters": {TOOLS[name][0]: {}}}) for name in offered
        )
        system = (
            f"You can call these tools:\n{listed}\nAnswer with "
            '<tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
        )
        expected = json.dumps({"name": tool, "arguments": arguments})
        rows.append({"prompt": chat(request, system), "expected": expected})
    return rows
