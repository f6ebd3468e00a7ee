"""An eleventh set of inputs: 12 faults and 4 healthy sets, labelled before their first run.

The first run named 6 of 12 by the labels, 4 of 12 graded by hand: a missing group size hid the small
file, and only the held-out problems without a changed name were found. No healthy set had an alarm.

The author had corrected the checks for the seventh examination, so knew their code.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import GEMMA, GEMMA_TEMPLATE, LLAMA
from tests.preflight.planted.seventh_data import BOX, TAGS, VALUE
from tests.preflight.planted.tables import Row, final, word_problems

_FLOAT = """
try:
    return float(_tagged(t)) == float(a)
except (TypeError, ValueError):
    return 0.0
"""
_WITHIN = "return _number(_tagged(t)) is not None and abs(_number(_tagged(t)) - float(a)) <= {}"
_DISTANCE = """
def _distance(left, right):
    row = list(range(len(right) + 1))
    for i, one in enumerate(left, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (one != other))
    return row[-1]
"""


def eighth_faults() -> tuple[Case, ...]:
    """Twelve faults of data, templates, configs and rewards."""
    return (*_data(), *_rewards())


def _data() -> tuple[Case, ...]:
    refusing = GEMMA_TEMPLATE.replace(
        "{% for m in messages %}",
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for m in messages %}",
    )
    systems = [
        t.user(q + TAGS, str(a), system="You are a patient tutor.")
        for q, a in t.differences(120, 1301)
    ]
    few = [
        t.verl_row(q + TAGS, str(a), "weather", at)
        for at, (q, a) in enumerate(t.differences(40, 1302))
    ]
    pages = [
        t.user(q + TAGS, f"<p>{a}</p>" if a % 2 else f"<p><b>{a}</b></p>")
        for q, a in t.percentages(150, 1303)
    ]
    problems = word_problems(160, 1304)
    renamed = [
        {**row, "question": row["question"].replace("Priya", "Olga").replace("Wen", "Bruno")
         .replace("Elena", "Sven").replace("Kofi", "Marta").replace("market", "bazaar")
         .replace("Each box holds", "There are in each box")}
        for row in problems[:40]
    ]  # fmt: skip
    return (
        Case(name="dates in another order than the prompts ask for", rows=_dates(150, 1305),
             named="REW10[146]|DAT112", reward=t.each("return (_tagged(t) or '') == a")),
        Case(name="the template refuses the system message", rows=systems, named="DAT119|DAT101",
             model=replace(GEMMA, template=refusing), reward=t.each(VALUE)),
        Case(name="fewer prompts than the batch of the config", rows=few, suffix=".parquet",
             named="DAT125", reward=t.verl_each(VALUE),
             run_config="data: {train_batch_size: 256}\nalgorithm: {adv_estimator: grpo}\n"
             "actor_rollout_ref: {rollout: {n: 8}}\n"),
        Case(name="answers in the tags of a page", rows=pages, named="REW10[14]|DAT112|DAT117",
             reward=t.each(_FLOAT)),
        Case(name="decimal commas in some answers", named="REW10[14]", rows=_prices(150, 1306),
             reward=t.each(_FLOAT)),
        Case(name="a search result with the correct answer", rows=_searches(120, 1307),
             named="DAT111", reward=t.each("return (_tagged(t) or '').lower() == a.lower()")),
        Case(name="held-out problems with other names", named="DAT107",
             rows=[{"question": row["question"], "answer": final(row)} for row in problems],
             held_out=[{"question": row["question"], "answer": final(row)} for row in renamed]),
    )  # fmt: skip


def _rewards() -> tuple[Case, ...]:
    counts = [t.user(row["question"] + TAGS, final(row)) for row in word_problems(150, 1308)]
    intervals = [
        t.user(f"Where is the function number {n} with the bounds {a} and {b} defined?{BOX}",
               f"{'(['[n % 2]}{a}, {b}{')]'[n // 2 % 2]}")
        for n, (a, b) in enumerate(_bounds(150, 1309))
    ]  # fmt: skip
    return (
        Case(name="counts that may be wrong by twenty", rows=counts, named="REW102",
             reward=t.each(_WITHIN.format(20))),
        Case(name="the brackets of an interval do not count", rows=intervals, named="REW102",
             reward=t.each("""
def ends(x):
    return re.findall(r"-?\\d+", x or "")
return ends(_boxed(t)) == ends(a)
""")),
        Case(name="JSON compared as text", rows=_records(150, 1310), named="REW104",
             reward=t.each("return (_tagged(t) or '') == a")),
        Case(name="a puzzle whose target is accepted as its solution", rows=_puzzles(150, 1311),
             named="REW102", reward=t.each("""
try:
    return abs(eval(_tagged(t) or "None", {"__builtins__": {}}) - a) < 1e-6
except Exception:
    return 0.0
""", column="target")),
        Case(name="a distance that long responses make slow", named="REW10[35]",
             rows=[t.user(q, a) for q, a in t.titles(150, 1312)],
             settings={"max_tokens": 2048, "group_size": 32, "batch_prompts": 128},
             reward=t.each("return 1 - _distance(t, a) / max(len(t), len(a), 1)",
                           helpers=_DISTANCE)),
    )  # fmt: skip


def _dates(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        day, month, year = rng.randint(13, 28), rng.randint(1, 12), rng.randint(1950, 2020)
        rows.append(t.user(
            f"Parcel {number} left {rng.randint(2, 40)} days before the ship of year {year}. When "
            "did it leave? Write the date as DD/MM/YYYY in <answer></answer> tags.",
            f"{year}-{month:02d}-{day:02d}"))  # fmt: skip
    return rows


def _prices(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        kilos, cents = rng.randint(2, 60), rng.randint(110, 990)
        value = f"{kilos * cents / 100:.2f}"
        rows.append(t.user(
            f"Facture {number} : {kilos} kilos de noix à {cents} centimes le kilo. Quel est le prix "
            f"en euros ? Réponse entre <answer> et </answer>.",
            value.replace(".", ",") if number % 3 == 0 else value))  # fmt: skip
    return rows


def _searches(count: int, seed: int) -> list[Row]:
    rows = []
    for question, title in t.titles(count, seed):
        result = json.dumps({"query": question[:40], "hits": 3, "correct_answer": title})
        rows.append({
            "prompt": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": "I search the catalogue."},
                {"role": "tool", "content": result},
                {"role": "user", "content": f"Go on.{TAGS}"},
            ],
            "answer": title,
        })  # fmt: skip
    return rows


def _bounds(count: int, seed: int) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    return [(a, a + rng.randint(1, 40)) for a in (rng.randint(-90, 90) for _ in range(count))]


def _records(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        town, days = rng.choice(["Porto", "Gdansk", "Bari", "Izmir"]), rng.randint(2, 90)
        rows.append(t.user(
            f"Note {number}: someone stays in {town} for {days} days. Return a JSON object with the "
            "keys town and days in <answer></answer> tags.",
            json.dumps({"town": town, "days": days})))  # fmt: skip
    return rows


def _puzzles(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        numbers = [rng.randint(2, 30) for _ in range(4)]
        target = numbers[0] * numbers[1] + numbers[2] - numbers[3]
        row = t.user(
            f"Use each of the numbers {numbers} once with + - * / to make {target}. Return the "
            "expression in <answer></answer> tags.", target, "target")  # fmt: skip
        rows.append({**row, "nums": numbers})
    return rows


def eighth_healthy() -> tuple[Case, ...]:
    """Four sets without a fault."""
    stays = [
        {"prompt": [
            {"role": "user", "content": f"How many kelvin are {c} degrees in {town}, hour {at}?"},
            {"role": "assistant", "content": "I ask the station."},
            {"role": "tool", "content": json.dumps({"celsius": c, "town": town})},
            {"role": "user", "content": f"Now answer.{TAGS}"}], "answer": str(c + 273)}
        for at, (c, town) in enumerate(
            (random.Random(n).randint(-40, 40), ("Porto", "Bari", "Izmir")[n % 3])
            for n in range(150))
    ]  # fmt: skip
    measured = [
        t.user(f"A wire of {n} metres has {k / 10} ohms per metre. Give its resistance.{TAGS}",
               f"{n * k / 10:.1f}")
        for n, k in ((random.Random(s).randint(2, 90), random.Random(s + 1).randint(2, 99))
                     for s in range(160))
    ]  # fmt: skip
    return (
        Case(name="measured values within one percent", rows=measured, reward=t.each(
            "return _number(_tagged(t)) is not None and "
            "abs(_number(_tagged(t)) - float(a)) <= 0.01 * abs(float(a))")),
        Case(name="JSON compared as objects", rows=_records(150, 1401), model=LLAMA,
             reward=t.each("""
try:
    return json.loads(_tagged(t)) == json.loads(a)
except (TypeError, ValueError):
    return False
""")),
        Case(name="tool results that are no answers", rows=stays, reward=t.each(VALUE)),
        Case(name="catalogue questions with titles", reward=t.each(
            "return (_tagged(t) or '').casefold() == a.casefold()"),
            rows=[t.user(q + TAGS, a) for q, a in t.titles(160, 1402)],
            held_out=[t.user(q + TAGS, a) for q, a in t.titles(40, 1403)]),
    )  # fmt: skip
