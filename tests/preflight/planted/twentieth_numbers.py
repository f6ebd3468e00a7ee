"""Sound sets of the twentieth examination about numbers."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import BASE, CHATML, GEMMA, LLAMA
from tests.preflight.planted.nineteenth_tables import chat
from tests.preflight.planted.tables import Row
from tests.preflight.planted.twentieth_number_rewards import (
    BALANCED,
    BASES,
    BOXED_NUMBER,
    CHANGE_WITH_PARTS,
    CHART,
    DATE,
    FACTORS,
    FORECAST,
    LETTER_COUNT,
    LETTERS,
    MATRIX,
    QUANTITY,
)
from tests.preflight.planted.twentieth_texts import rows

_PEOPLE = ("Oskar", "Paloma", "Quincy", "Renata", "Samir", "Tuuli", "Ulrich", "Vera", "Wanda", "Xenia", "Yusuf", "Zofia")  # fmt: skip
_PLACES = ("mill", "garage", "theater", "dairy", "nursery", "quarry", "canteen", "print shop", "boatyard", "laundry")  # fmt: skip
_THINGS = ("tiles", "bolts", "scarves", "jars", "seeds", "planks", "tickets", "loaves", "cans", "books", "pipes", "cups")  # fmt: skip
BOX = "Reason step by step and put the final result into \\boxed{}."


def _matrix(rng: random.Random, at: int) -> Row:
    a, b = ([[rng.randint(-9, 9) for _ in range(2)] for _ in range(2)] for _ in range(2))
    tex = ["\\begin{pmatrix} " + " \\\\ ".join(" & ".join(map(str, line)) for line in m) + " \\end{pmatrix}" for m in (a, b)]  # fmt: skip
    if at % 2:
        found = [[a[i][j] - b[i][j] for j in (0, 1)] for i in (0, 1)]
        text = f"Compute ${tex[0]} - {tex[1]}$."
    else:
        found = [[sum(a[i][k] * b[k][j] for k in (0, 1)) for j in (0, 1)] for i in (0, 1)]
        text = f"Compute the product ${tex[0]}{tex[1]}$."
    gold = "\\begin{pmatrix} " + " \\\\ ".join(" & ".join(map(str, line)) for line in found) + " \\end{pmatrix}"  # fmt: skip
    return {"prompt": chat(f"{text} {BOX} Write a matrix with pmatrix."), "answer": gold}


def _series(rng: random.Random, _: int) -> Row:
    level, trend, season = rng.uniform(50, 500), rng.uniform(-3, 6), rng.uniform(2, 20)
    values = [round(level + trend * t + season * math.sin(t * math.pi / 3) + rng.gauss(0, 2), 1) for t in range(19)]  # fmt: skip
    text = f"Sales of the {rng.choice(_PLACES)} by month: {', '.join(map(str, values[:18]))}."
    return {
        "prompt": chat(f"{text}\nForecast the next value. Discuss trend and season, then write the number in <forecast></forecast>."),
        "target": values[18], "sigma": 6.0,
    }  # fmt: skip


def _date(rng: random.Random, _: int) -> Row:
    start = datetime.date(rng.randint(1890, 2090), rng.randint(1, 12), rng.randint(1, 28))
    days, who = rng.randint(25, 1500), rng.choice(_PEOPLE)
    ahead = rng.random() < 0.5
    end = start + datetime.timedelta(days=days if ahead else -days)
    text = f"{who}'s lease starts on {start.isoformat()}. Which date is {days} days {'later' if ahead else 'earlier'}?"
    return {"prompt": chat(f"{text}\nMind leap years. Give the date as YYYY-MM-DD on a last line that begins with 'Date:'."), "date": end.isoformat()}  # fmt: skip


def _factored(rng: random.Random, _: int) -> Row:
    roots = sorted(rng.sample([n for n in range(-12, 13) if n], rng.choice((2, 2, 3))))
    coefficients = [1]
    for root in roots:
        coefficients = [a - root * b for a, b in zip([*coefficients, 0], [0, *coefficients], strict=True)]  # fmt: skip
    degree = len(roots)
    terms = [
        f"{'+' if c > 0 else '-'} {'' if abs(c) == 1 and degree - at else abs(c)}{'' if at == degree else 'x' if degree - at == 1 else f'x^{degree - at}'}"
        for at, c in enumerate(coefficients) if c
    ]  # fmt: skip
    text = " ".join(terms).removeprefix("+ ")
    gold = "".join(f"(x{'-' if root > 0 else '+'}{abs(root)})" for root in roots)
    return {"prompt": chat(f"Factor ${text}$ into linear factors. {BOX}"), "answer": gold}


_REACTIONS = (
    ("C{n}H{h} + O2 -> CO2 + H2O", lambda n: _combustion(n, 2 * n + 2)),
    ("C{n}H{e} + O2 -> CO2 + H2O", lambda n: _combustion(n, 2 * n)),
    ("C{n}H{h}O + O2 -> CO2 + H2O", lambda n: _combustion(n, 2 * n + 2, 1)),
    ("C{n}H{e}O2 + O2 -> CO2 + H2O", lambda n: _combustion(n, 2 * n, 2)),
    ("C{n}H{y} + O2 -> CO2 + H2O", lambda n: _combustion(n, 2 * n - 2)),
    ("C{n}H{y}O + O2 -> CO2 + H2O", lambda n: _combustion(n, 2 * n - 2, 1)),
)


def _combustion(carbon: int, hydrogen: int, oxygen: int = 0) -> list[int]:
    """Smallest whole coefficients."""
    needed = Fraction(2 * carbon - oxygen) / 2 + Fraction(hydrogen, 4)
    parts = [Fraction(1), needed, Fraction(carbon), Fraction(hydrogen, 2)]
    common = math.lcm(*(part.denominator for part in parts))
    whole = [int(part * common) for part in parts]
    return [part // math.gcd(*whole) for part in whole]


def _reaction(rng: random.Random, _: int) -> Row:
    n = rng.randint(3, 40)
    text, solve = rng.choice(_REACTIONS)
    text = text.format(n=n, h=2 * n + 2, e=2 * n, y=2 * n - 2)
    return {
        "prompt": chat(f"Balance the equation {text}.\nThink, then write the four smallest whole coefficients in order, separated by commas, as 'Coefficients: a, b, c, d'."),
        "coefficients": solve(n),
    }  # fmt: skip


def _base(rng: random.Random, at: int) -> Row:
    number = rng.randint(200, 60000)
    name, gold = (("hexadecimal", f"{number:x}"), ("binary", f"{number:b}"), ("octal", f"{number:o}"))[at % 3]  # fmt: skip
    return {"prompt": f"Convert the decimal number {number} into {name}. Work it out step by step and end with a line '#### ' and the digits.", "answer": gold}  # fmt: skip


_UNITS = {"m": ("length", "km", 1000), "s": ("time", "min", 60), "kg": ("mass", "t", 1000), "J": ("energy", "kJ", 1000)}  # fmt: skip


def _quantity(rng: random.Random, at: int) -> Row:
    speed, minutes = rng.randint(8, 90), rng.randint(5, 170)
    mass, height = rng.randint(4, 95), rng.randint(3, 400)
    who = rng.choice(_PEOPLE)
    text, answer = (
        (f"{who} rides at {speed} km/h for {minutes} minutes. What distance does {who} cover?", f"{speed * 1000 * minutes / 60:.0f}\\,\\text{{m}}"),
        (f"{who} needs {minutes} minutes for a lap. How long do {speed} laps take?", f"{speed * minutes * 60}\\,\\text{{s}}"),
        (f"A crate of {mass} kg is lifted by {height} m (g = 9.81 m/s^2). Which energy does that take?", f"{mass * height * 9.81:.0f}\\,\\text{{J}}"),
        (f"The {rng.choice(_PLACES)} buys {speed} sacks of {mass} kg. What do all sacks weigh?", f"{speed * mass}\\,\\text{{kg}}"),
    )[at % 4]  # fmt: skip
    return {"prompt": chat(f"{text} {BOX} Give the number with a unit."), "answer": answer}


_LONG = ("strawberry", "bookkeeper", "mississippi", "assessment", "banana", "committee", "parallelogram", "raspberry", "onomatopoeia", "occurrence", "tattletale", "possession", "cheeseburger", "hippopotamus", "embarrassed", "keeper", "nonsense", "unsuccessful")  # fmt: skip


def _letters(rng: random.Random, _: int) -> Row:
    words = rng.sample(_LONG, rng.randint(2, 5))
    letter = rng.choice("aeosrtp")
    text = f"How often does the letter '{letter}' occur in: {' '.join(words)}?"
    return {"prompt": chat(f"{text} Spell the words, then answer with {{\"count\": N}} on the last line."), "count": " ".join(words).count(letter)}  # fmt: skip


def _several(rng: random.Random, _: int) -> Row:
    limit = rng.randint(20, 80)
    while True:
        values = rng.sample(range(limit - 19, limit + 20), 5)
        right = [mark for mark, value in zip("ABCDE", values, strict=True) if value > limit]
        if right:
            break
    things = rng.sample(_THINGS, 5)
    lines = [f"{mark}) {value} {thing}" for mark, value, thing in zip("ABCDE", values, things, strict=True)]  # fmt: skip
    text = f"Under the rules of the {rng.choice(_PLACES)}, an order of more than {limit} pieces needs a permit. Which of these orders of {rng.choice(_PEOPLE)} need one?\n" + "\n".join(lines)  # fmt: skip
    return {"prompt": chat(f"{text}\n\nSeveral options may be right. Explain, then end with 'Answer: ' and all right letters, separated by commas."), "letters": ",".join(right)}  # fmt: skip


def _change(rng: random.Random, _: int) -> Row:
    who, thing, place = rng.choice(_PEOPLE), rng.choice(_THINGS), rng.choice(_PLACES)
    price, up, down = rng.randrange(40, 900, 20), rng.choice((5, 10, 15, 20, 25, 30)), rng.choice((5, 10, 20, 40))  # fmt: skip
    gold = price * (100 + up) * (100 - down) / 10000
    text = f"In {who}'s {place}, a box with {thing} costs {price} euros. The price rises by {up}% and is then cut by {down}%. What does a box cost now, in euros?"
    return {"prompt": chat(f"{text} Think in <think> tags, then give the number in <answer> tags.", "You are a careful accountant."), "answer": f"{gold:g}"}  # fmt: skip


def _many(rng: random.Random, at: int) -> Row:
    who, thing, place = rng.choice(_PEOPLE), rng.choice(_THINGS), rng.choice(_PLACES)
    a, b, c = rng.randint(12, 480), rng.randint(3, 60), rng.randint(2, 11)
    text, result = (
        (f"{who} makes {a} {thing} a day in the {place} for {b} days and gives {c} of them away. How many {thing} are left?", a * b - c),
        (f"The {place} has {a * c} {thing}. {who} packs them into bags of {c} and sells {min(b, a - 1)} bags. How many bags remain?", a - min(b, a - 1)),
        (f"{who} buys {b} boxes of {thing} at {c} euros and a shelf for {a} euros from the {place}. What is the bill in euros?", b * c + a),
        (f"On the first day {who} sees {a} {thing} in the {place}, and every day {c} more than the day before. How many are there on day {b}?", a + (b - 1) * c),
    )[at % 4]  # fmt: skip
    return {"prompt": chat(f"{text} {BOX}"), "answer": str(result)}


def _contest(rng: random.Random, at: int) -> Row:
    a, b, c = rng.randint(7, 99), rng.randint(7, 40), rng.randint(12, 97)
    text, result = (
        (f"Find the remainder when ${a}^{{{b}}}$ is divided by ${c}$.", pow(a, b, c)),
        (f"How many positive integers up to ${a * b}$ are divisible by ${c}$?", a * b // c),
        (f"What is the greatest common divisor of ${a * c}$ and ${b * c}$?", math.gcd(a, b) * c),
    )[at % 3]
    return {"prompt": chat(f"{text} {BOX}"), "answer": str(result)}


def _chart(rng: random.Random, at: int) -> Row:
    (who, other), thing = rng.sample(_PEOPLE, 2), rng.choice(_THINGS)
    question, answer = rng.choice((
        (f"How many {thing} did {who} sell in {rng.choice(('May', 'June', 'July'))} according to the chart?", rng.randint(12, 480)),
        (f"By how much do the sales of {who} and {other} differ in week {rng.randint(1, 52)}?", rng.randint(2, 90)),
        (f"What is the height of the bar for {thing} in {rng.randint(1990, 2024)}?", rng.randint(10, 99)),
    ))  # fmt: skip
    return {
        "data_source": "charts", "prompt": chat(f"<image>{question} Think about the picture, then write the number as \\boxed{{N}}."),
        "images": [{"path": f"charts/{at:06d}.png"}], "ability": "vision",
        "reward_model": {"style": "rule", "ground_truth": str(answer)}, "extra_info": {"index": at, "split": "train"},
    }  # fmt: skip


_LORA = trl(use_peft=True, lora_r=32, lora_alpha=64, lora_dropout=0.0, lora_target_modules="all-linear", learning_rate=2.0e-5)  # fmt: skip


def number_sets() -> Iterator[Case]:
    """Twelve sets about numbers."""
    vision = replace(CHATML, config={"vision_config": {"depth": 2}})
    yield Case(name="matrices in LaTeX", rows=rows(300, 9521, _matrix), reward=MATRIX)
    yield Case(name="forecasts by a Gaussian log-likelihood", rows=rows(300, 9522, _series), reward=FORECAST, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="dates across leap years", rows=rows(300, 9523, _date), reward=DATE, suffix=".parquet", model=LLAMA)  # fmt: skip
    yield Case(name="polynomials in factors of any order", rows=rows(300, 9524, _factored), reward=FACTORS)  # fmt: skip
    yield Case(name="equations of chemistry to balance", rows=rows(160, 9525, _reaction), reward=BALANCED, suffix=".json")  # fmt: skip
    yield Case(name="numbers in other bases as a CSV", rows=rows(300, 9526, _base), reward=BASES, suffix=".csv", model=BASE)  # fmt: skip
    yield Case(name="quantities in any unit of their kind", rows=rows(300, 9527, _quantity), reward=QUANTITY, model=GEMMA)  # fmt: skip
    yield Case(name="letters to count in long words", rows=rows(300, 9528, _letters), reward=LETTER_COUNT, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="several right letters", rows=rows(300, 9529, _several), reward=LETTERS, suffix=".parquet")  # fmt: skip
    yield Case(name="percent changes with components and LoRA", rows=rows(400, 9530, _change), reward=CHANGE_WITH_PARTS, framework="trl", run_config=_LORA)  # fmt: skip
    yield Case(name="20,000 word problems, other held-out problems", rows=rows(20000, 9531, _many), held_out=rows(100, 9631, _contest), reward=BOXED_NUMBER)  # fmt: skip
    yield Case(name="charts with an image column in verl's layout", rows=rows(300, 9532, _chart), reward=CHART, suffix=".parquet", framework="verl", run_config=verl(), model=vision)  # fmt: skip
