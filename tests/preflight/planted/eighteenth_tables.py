"""Tables of the eighteenth examination: tasks as users train them, with contents made by chance."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.preflight.planted.tables import Row

_VENDORS = ["Halvorsen Maritime", "Lindqvist Papier", "Okafor Logistics", "Brannigan & Daughters",
            "Tavares Optics", "Mirabelle Foods", "Quentin Hydraulics", "Saarinen Timber",
            "Pellegrini Ceramics", "Voss Instruments", "Adeyemi Textiles", "Castellan Energy"]  # fmt: skip
_CITIES = ["Utrecht", "Porto", "Gdansk", "Leeds", "Tampere", "Bilbao", "Graz", "Aarhus", "Lyon", "Brno"]  # fmt: skip
_GOODS = ["rubber seals", "oak boards", "pump valves", "glass jars", "steel cables", "linen rolls",
          "copper pipes", "paper reams", "ceramic tiles", "drill bits"]  # fmt: skip
_COLOURS = ["red", "blue", "green", "yellow", "purple", "grey", "brown", "cyan"]
_SHAPES = ["cube", "sphere", "cylinder", "cone", "pyramid", "torus"]
_DRUGS = {
    "warfarin": ("vitamin K", "atrial fibrillation"), "metformin": ("vitamin B12", "type 2 diabetes"),
    "furosemide": ("potassium", "heart failure"), "isoniazid": ("vitamin B6", "tuberculosis"),
    "methotrexate": ("folate", "rheumatoid arthritis"), "omeprazole": ("magnesium", "acid reflux"),
    "phenytoin": ("vitamin D", "epilepsy"), "colchicine": ("zinc", "gout"),
}  # fmt: skip
_LANDS = ["Norvania", "Esterhold", "Kalmaria", "Pradesia", "Ostrovia", "Tirania", "Velmora",
          "Juneland", "Bracia", "Solvene"]  # fmt: skip


def chat(user: str, system: str = "") -> list[dict[str, str]]:
    """A prompt of one turn."""
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": user}]


def invoices(count: int, seed: int) -> list[dict[str, Any]]:
    """Text of an invoice and its fields: `text` and `fields`."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        vendor, city, goods = rng.choice(_VENDORS), rng.choice(_CITIES), rng.choice(_GOODS)
        number = f"{rng.choice('ABKRT')}{rng.randint(1000, 9999)}-{rng.randint(10, 99)}"
        day, month = rng.randint(1, 28), rng.randint(1, 12)
        units, price = rng.randint(3, 90), rng.randint(150, 9900) / 100
        total = round(units * price, 2)
        text = rng.choice((
            f"INVOICE {number}\n{vendor}, {city}\nDate of issue {day:02d}.{month:02d}.2025\n{units} x {goods} at {price:.2f} EUR each\nAmount due: {total:.2f} EUR, payable in 30 days.",
            f"{vendor} ({city}) bills you for {units} units of {goods}, {price:.2f} EUR per unit.\nOur reference: {number}. Issued on {day:02d}.{month:02d}.2025. Please transfer {total:.2f} EUR.",
            f"Dear customer, thank you for ordering {goods} from {vendor}.\nReference {number}, {day:02d}.{month:02d}.2025, {city}\nQuantity {units}, unit price {price:.2f} EUR, sum {total:.2f} EUR.",
        ))  # fmt: skip
        rows.append({"text": text, "fields": {"vendor": vendor, "number": number, "date": f"2025-{month:02d}-{day:02d}", "total": {"amount": total, "currency": "EUR"}}})  # fmt: skip
    return rows


def puzzles(count: int, seed: int) -> list[dict[str, Any]]:
    """Numbers, a target and an expression that reaches it."""
    rng, rows = random.Random(seed), []
    while len(rows) < count:
        a, b, c = rng.sample(range(2, 60), 3)
        target, way = rng.choice(((a * b - c, f"{a} * {b} - {c}"), (a + b - c, f"{a} + {b} - {c}"),
                                  ((a - c) * b, f"({a} - {c}) * {b}")))  # fmt: skip
        numbers = [a, b, c]
        rng.shuffle(numbers)
        if 0 < target < 900:
            rows.append({"nums": numbers, "target": target, "way": way})
    return rows


def puzzle_text(row: dict[str, Any]) -> str:
    """The task of a puzzle."""
    return (
        f"Using the numbers {row['nums']}, create an equation that equals {row['target']}. You can "
        "use + - * / and parentheses, and each number exactly once."
    )


def searches(count: int, seed: int) -> list[dict[str, Any]]:
    """Passages, a question over two of them, and a short answer."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        land, other = rng.sample(_LANDS, 2)
        river, hill = (
            f"{rng.choice('BDKLMRST')}{rng.choice(('orn', 'ell', 'avi', 'ume'))}{rng.choice(('a', 'ow', 'ister'))}",
            f"Mount {rng.choice(('Sable', 'Farrow', 'Quill', 'Ember', 'Halden', 'Ivory', 'Kestrel'))}",
        )
        founder, year = f"{rng.choice(('Ada', 'Bruno', 'Carla', 'Emil', 'Greta', 'Hugo', 'Iris'))} {rng.choice(('Falk', 'Moreau', 'Santos', 'Winter', 'Petrov', 'Hale', 'Romero', 'Duarte'))}", rng.randint(1710, 1958)  # fmt: skip
        passages = [f"{land} lies on the {river} river, below {hill}.", f"The oldest university on the {river} was founded by {founder} in {year}.",
                    f"{other} is known for its {rng.choice(_GOODS)}.", f"{hill} is {rng.randint(800, 4200)} metres high."]  # fmt: skip
        rng.shuffle(passages)
        question, answer = rng.choice((
            (f"Who founded the oldest university on the river of {land}?", founder),
            (f"In which year was the oldest university on the river of {land} founded?", str(year)),
            (f"Which mountain stands above {land}?", hill),
        ))  # fmt: skip
        listed = "\n".join(f"[{at}] {passage}" for at, passage in enumerate(passages, 1))
        rows.append({"question": f"{question}\n\nSearch results:\n{listed}", "answer": answer})
    return rows


_NOUNS = {"the old captain": "le vieux capitaine", "my neighbour": "mon voisin", "the teacher": "la professeure",
          "a young doctor": "un jeune médecin", "our cousin": "notre cousin", "the baker": "le boulanger"}  # fmt: skip
_VERBS = {"buys": "achète", "repairs": "répare", "forgets": "oublie", "paints": "peint", "sells": "vend", "finds": "trouve"}  # fmt: skip
_OBJECTS = {"a blue bicycle": "un vélo bleu", "two wooden chairs": "deux chaises en bois", "the kitchen clock": "l'horloge de la cuisine",
            "an umbrella": "un parapluie", "the heavy suitcase": "la lourde valise", "three lemons": "trois citrons"}  # fmt: skip
_TIMES = {"every Monday": "chaque lundi", "before breakfast": "avant le petit déjeuner", "in the rain": "sous la pluie",
          "without a word": "sans un mot", "at the harbour": "au port"}  # fmt: skip


def sentences(count: int, seed: int) -> list[dict[str, str]]:
    """English sentences and their French translations."""
    every = [(f"{a[0]} {v[0]} {o[0]} {t[0]}.".capitalize(), f"{a[1]} {v[1]} {o[1]} {t[1]}.".capitalize())
             for a in _NOUNS.items() for v in _VERBS.items() for o in _OBJECTS.items() for t in _TIMES.items()]  # fmt: skip
    return [{"en": en, "fr": fr} for en, fr in random.Random(seed).sample(every, count)]


def choices(count: int, seed: int) -> list[dict[str, Any]]:
    """Questions of general knowledge about invented lands, with four options."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        land = f"{rng.choice(_LANDS)} {rng.choice(('North', 'South', 'East', 'West', 'Major', 'Minor'))}"
        topic, values = rng.choice((
            ("main export", _GOODS), ("capital", _CITIES), ("flag's main colour", _COLOURS), ("largest employer", _VENDORS),
        ))  # fmt: skip
        options, at = rng.sample(list(values), 4), rng.randrange(4)
        year = rng.randint(1900, 2020)
        context = f"A survey of {year} about {land} reports: the {topic} is {options[at]}."
        question = f"{context}\nAccording to the survey, what was the {topic} of {land} in {year}?\n" + "\n".join(f"{'ABCD'[i]}. {o}" for i, o in enumerate(options))  # fmt: skip
        rows.append({"question": question, "letter": "ABCD"[at], "text": options[at]})
    return rows


def medical(count: int, seed: int) -> list[dict[str, Any]]:
    """Short vignettes with four options."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        drug = rng.choice(list(_DRUGS))
        lack, disease = _DRUGS[drug]
        age, weeks, sex = rng.randint(24, 88), rng.randint(3, 60), rng.choice(("man", "woman"))
        kind = rng.randrange(2)
        right = lack if kind == 0 else disease
        pool = sorted({v[kind] for v in _DRUGS.values()} - {right})
        options = [*rng.sample(pool, 3), right]
        rng.shuffle(options)
        stem = f"A {age}-year-old {sex} has taken {drug} for {weeks} weeks. " + (
            "Which substance should be monitored or supplemented?" if kind == 0 else "For which condition was it most likely prescribed?"
        )  # fmt: skip
        rows.append({"question": stem + "\n" + "\n".join(f"{'ABCD'[i]}) {o}" for i, o in enumerate(options)), "letter": "ABCD"[options.index(right)], "text": right, "drug": drug})  # fmt: skip
    return rows


def scenes(count: int, seed: int) -> list[dict[str, str]]:
    """Captions of a picture with boxes, a question and its answer."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        seen = [(rng.choice(_COLOURS), shape, rng.randint(0, 500), rng.randint(0, 400)) for shape in rng.sample(_SHAPES, 4)]  # fmt: skip
        extra = [(rng.choice(_COLOURS), seen[0][1], rng.randint(0, 500), rng.randint(0, 400)) for _ in range(rng.randrange(4))]  # fmt: skip
        objects = [*seen, *extra]
        rng.shuffle(objects)
        listed = "\n".join(f"- {c} {s} at ({x}, {y})" for c, s, x, y in objects)
        one = seen[1]
        question, answer = rng.choice((
            (f"How many objects have the shape of a {seen[0][1]}?", str(1 + len(extra))),
            (f"What colour is the {one[1]}?", one[0]),
            (f"Is the {seen[1][1]} to the left of the {seen[2][1]}?", "yes" if seen[1][2] < seen[2][2] else "no"),
        ))  # fmt: skip
        rows.append({"question": f"Detected objects:\n{listed}\n\n{question}", "answer": answer})
    return rows


def functions(count: int, seed: int) -> list[dict[str, Any]]:
    """Small programs: task, reference solution and tests as assertions."""
    rng, rows = random.Random(seed), []
    for at in range(count):
        k, m = rng.randint(2, 19), rng.randint(2, 30)
        name = f"{rng.choice(('tally', 'shift', 'pick', 'merge', 'fold'))}_{at}"
        task, code = rng.choice((
            (f"returns the sum of all items of a list that are divisible by {k}, plus {m}", f"    return sum(x for x in items if x % {k} == 0) + {m}"),
            (f"returns a list with every item multiplied by {k}, without the items below {m}", f"    return [x * {k} for x in items if x >= {m}]"),
            (f"returns the number of items of a list that leave a remainder of {k % 3} when divided by 3, times {m}", f"    return {m} * sum(1 for x in items if x % 3 == {k % 3})"),
        ))  # fmt: skip
        source = f"def {name}(items):\n{code}\n"
        scope: dict[str, Any] = {}
        exec(source, scope)  # noqa: S102  # the source is built above
        inputs = [[rng.randint(0, 60) for _ in range(rng.randint(3, 8))] for _ in range(4)]
        tests = [f"assert {name}({given}) == {scope[name](given)!r}" for given in inputs]
        rows.append({"task": f"Write a Python function `{name}(items)` that {task}.", "solution": source, "tests": tests})  # fmt: skip
    return rows


_TABLES = {
    "orders": ["id", "customer", "city", "amount", "year"], "staff": ["id", "name", "city", "salary", "year"],
    "trips": ["id", "driver", "city", "distance", "year"],
}  # fmt: skip


def queries(count: int, seed: int) -> list[dict[str, str]]:
    """A schema with rows, a question and its query."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        table = rng.choice(list(_TABLES))
        _, who, city, number, year = _TABLES[table]
        values = [(at, rng.choice(_VENDORS).split()[0], rng.choice(_CITIES[:4]), rng.randint(20, 900), rng.randint(2019, 2024)) for at in range(1, 13)]  # fmt: skip
        schema = f"CREATE TABLE {table} (id INTEGER, {who} TEXT, {city} TEXT, {number} INTEGER, {year} INTEGER);\n" + "\n".join(f"INSERT INTO {table} VALUES {v!r};" for v in values)  # fmt: skip
        some = rng.choice(values)
        question, query = rng.choice((
            (f"What is the total {number} of {some[2]}?", f"SELECT SUM({number}) FROM {table} WHERE city = '{some[2]}'"),
            (f"Which {who} has the highest {number} in {some[4]}?", f"SELECT {who} FROM {table} WHERE year = {some[4]} ORDER BY {number} DESC LIMIT 1"),
            (f"How many rows of {table} have a {number} above {some[3] - 1}?", f"SELECT COUNT(*) FROM {table} WHERE {number} > {some[3] - 1}"),
        ))  # fmt: skip
        rows.append({"schema": schema, "question": question, "query": query})
    return rows


def dialogues(count: int, seed: int, turns: int = 2) -> list[dict[str, Any]]:
    """Support conversations that end with a request, and the action that solves it."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        order, goods, city = (
            f"{rng.randint(100000, 999999)}",
            rng.choice(_GOODS),
            rng.choice(_CITIES),
        )
        first = rng.choice(("Hello", "Good morning", "Hi there", "Hey")) + f", I ordered {rng.randint(2, 40)} {goods} to {city} under number {order}."  # fmt: skip
        said = [{"role": "user", "content": first}, {"role": "assistant", "content": f"Thank you. I see order {order} for {goods}. How can I help?"}]  # fmt: skip
        for _ in range(turns - 2):
            day = rng.randint(1, 28)
            said += [{"role": "user", "content": f"The tracking page says that it left {rng.choice(_CITIES)} on {day} May, and since then nothing happened. {rng.choice(('I called twice.', 'Nobody answers.', 'The driver did not ring.'))}"},
                     {"role": "assistant", "content": f"I am sorry to hear that. The depot in {rng.choice(_CITIES)} confirms the scan of {day} May."}]  # fmt: skip
        ask, action = rng.choice((
            ("It never came, I want my money back.", "refund"), ("Half of them are broken, send new ones.", "replace"),
            ("I moved. Can it go to another street?", "readdress"), ("I no longer need it, stop the delivery.", "cancel"),
        ))  # fmt: skip
        rows.append({"messages": [*said, {"role": "user", "content": ask}], "action": action, "order": order})  # fmt: skip
    return rows


_CALLS = (("get_weather", "city", "day"), ("book_table", "restaurant", "people"), ("convert_units", "value", "unit"))  # fmt: skip


def calls(count: int, seed: int) -> list[dict[str, Any]]:
    """Requests and the call of a tool that answers them."""
    rng, rows, seen = random.Random(seed), [], set()
    while len(rows) < count:
        name, one, two = rng.choice(_CALLS)
        if name == "get_weather":
            city, day = (
                rng.choice(_CITIES),
                f"2025-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
            )
            text, arguments = f"Will I need an umbrella in {city} on {day}?", {one: city, two: day}
        elif name == "book_table":
            place, people = rng.choice(_VENDORS), rng.randint(2, 14)
            text, arguments = f"Reserve a table for {people} at {place} in {rng.choice(_CITIES)} please.", {one: place, two: people}  # fmt: skip
        else:
            value, unit = rng.randint(2, 4000), rng.choice(("miles", "feet", "pounds", "gallons"))
            text, arguments = f"How much is {value} {unit} in metric units?", {one: value, two: unit}  # fmt: skip
        if text not in seen:
            seen.add(text)
            rows.append({"text": text, "call": json.dumps({"name": name, "arguments": arguments})})
    return rows


def essays(count: int, seed: int) -> list[dict[str, Any]]:
    """Requests for a short text with points that it must mention."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        city, goods, vendor = rng.choice(_CITIES), rng.sample(_GOODS, 2), rng.choice(_VENDORS)
        points = [vendor, city, *goods, f"{rng.randint(5, 60)} percent"]
        kind = rng.choice(("press release", "letter to customers", "notice for the staff", "short advert"))  # fmt: skip
        text = f"Write a {kind} for {vendor} in {city}: the prices of {goods[0]} and {goods[1]} fall by {points[-1]} next month."  # fmt: skip
        rows.append({"text": text, "rubric": points})
    return rows


def as_rows(rows: list[dict[str, Any]], system: str, text: str, **columns: str) -> list[Row]:
    """Rows with a chat prompt: `text` is the key of the user's turn, `columns` the other keys."""
    return [
        {"prompt": chat(row[text], system), **{name: row[key] for name, key in columns.items()}}
        for row in rows
    ]
