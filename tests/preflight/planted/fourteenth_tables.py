"""Data sets of the fourteenth examination: sixteen kinds of tasks, written on the spot."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from fractions import Fraction

from tests.preflight.planted.tables import Row

_PEOPLE = ["Ada", "Bilal", "Carmen", "Dong", "Esra", "Femi", "Greta", "Hugo", "Ilse", "Jomo", "Katya", "Luis", "Mei", "Noor", "Olga", "Pavel"]  # fmt: skip


def distinct(draw: Callable[[random.Random, int], Row]) -> Callable[[int, int], list[Row]]:
    """Rows with different questions, from a function that draws one."""

    def drawn(count: int, seed: int) -> list[Row]:
        rng, rows = random.Random(seed), {}
        for at in range(count * 40):
            row = draw(rng, at)
            rows.setdefault(json.dumps(row["q"]), row)
            if len(rows) == count:
                break
        assert len(rows) == count
        return list(rows.values())

    return drawn


def chat(text: str, system: str = "") -> list[Row]:
    """Messages of a prompt."""
    start = [{"role": "system", "content": system}] if system else []
    return [*start, {"role": "user", "content": text}]


@distinct
def words(rng: random.Random, at: int) -> Row:
    """Word problems: q, steps, a."""
    who, a, b, c = rng.choice(_PEOPLE), rng.randint(12, 60), rng.randint(3, 11), rng.randint(2, 9)
    price, percent = 20 * rng.randint(1, 9), 5 * rng.randint(1, 10)
    reduced = price * (100 - percent) // 100
    q, steps, answer = (
        (f"A pump brings {a} litres per minute into an empty tank that loses {b} litres per minute. How many litres are in the tank after {c} minutes?",
         f"Each minute the tank gains {a} - {b} = {a - b} litres.\nIn {c} minutes it gains {a - b} * {c} = {(a - b) * c} litres.", (a - b) * c),
        (f"{who} paints a wall that is {a} metres long and {b} metres high. One tin is enough for {c} square metres. How many tins does {who} have to buy?",
         f"The wall has {a} * {b} = {a * b} square metres.\n{a * b} / {c} rounded up is {-(-a * b // c)}.", -(-a * b // c)),
        (f"{who} reads {a} pages on the first day and on each further day {b} pages more than on the day before. How many pages has {who} read after {c} days?",
         f"The first pages of each day are {a} * {c} = {a * c}.\nThe further ones are {b} * {c * (c - 1) // 2} = {b * c * (c - 1) // 2}.\nTogether {a * c + b * c * (c - 1) // 2}.",
         a * c + b * c * (c - 1) // 2),
        (f"A cinema has {a} rows with {b} seats each. During repairs {c} rows stay closed. How many seats can {who} sell?",
         f"{a} - {c} = {a - c} rows are open.\nThey have {a - c} * {b} = {(a - c) * b} seats.", (a - c) * b),
        (f"A coat costs {price} euros and is reduced by {percent} percent. What do {c} coats cost {who} now, in euros?",
         f"One coat costs {price} * {100 - percent} / 100 = {reduced} euros.\n{c} coats cost {reduced} * {c} = {reduced * c} euros.", reduced * c),
    )[at % 5]  # fmt: skip
    return {"q": q, "steps": steps, "a": answer}


def latex(value: Fraction) -> str:
    """A positive number in LaTeX."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


@distinct
def contest(rng: random.Random, at: int) -> Row:
    """Competition problems with answers in LaTeX."""
    a, b, c = rng.randint(2, 40), rng.randint(2, 25), rng.randint(3, 19)
    k = rng.randint(2, 5)
    n = rng.randint(30, 900)
    root = rng.choice([2, 3, 5, 6, 7, 10, 11, 13])
    q, answer = (
        (f"How many positive divisors does ${n}$ have?", str(sum(n % d == 0 for d in range(1, n + 1)))),
        (f"Let $x_1 = {a}$ and $x_{{n+1}} = x_n + {b}$ for $n \\ge 1$. Find $x_{{{c}}}$.", str(a + b * (c - 1))),
        (f"Two fair dice have ${a}$ and ${b}$ sides. What is the probability that both show their greatest number?", latex(Fraction(1, a * b))),
        (f"Find the area of the triangle with the vertices $(0, 0)$, $({a}, 0)$ and $({b}, {c})$.", latex(Fraction(a * c, 2))),
        (f"What is the positive solution of $x^2 = {a * a * root}$, in simplest radical form?", f"{a}\\sqrt{{{root}}}"),
        (f"Compute $\\binom{{{c + 4}}}{{{k}}} + {a}$.", str(math.comb(c + 4, k) + a)),
    )[at % 6]  # fmt: skip
    return {"q": q, "a": answer}


@distinct
def functions(rng: random.Random, at: int) -> Row:
    """Python functions with assertions: q, name, tests, solution."""
    k, sign = rng.randint(2, 8), rng.choice("-+/_:;")
    name = f"{rng.choice(['make', 'run', 'get', 'do', 'form'])}_{rng.choice(['text', 'label', 'line', 'note', 'key', 'mark'])}"
    q, body, call = (
        (f"returns the words of a text that have at least {k} letters, joined by '{sign}'", f"'{sign}'.join(w for w in text.split() if len(w) >= {k})",
         lambda text: sign.join(w for w in text.split() if len(w) >= k)),
        (f"returns the text with every {k + 1}th character replaced by '{sign}', starting at the first", f"''.join('{sign}' if i % {k + 1} == 0 else c for i, c in enumerate(text))",
         lambda text: "".join(sign if i % (k + 1) == 0 else c for i, c in enumerate(text))),
        (f"returns the last {k} characters of a text in reverse order, followed by '{sign}'", f"text[-{k}:][::-1] + '{sign}'",
         lambda text: text[-k:][::-1] + sign),
        (f"returns the number of words of a text plus {k}, between two '{sign}' signs", f"'{sign}' + str(len(text.split()) + {k}) + '{sign}'",
         lambda text: sign + str(len(text.split()) + k) + sign),
    )[at % 4]  # fmt: skip
    texts = [" ".join(rng.sample(["moss", "lantern", "a", "river", "of", "granite", "tin", "orchard", "sea", "willow"], rng.randint(3, 7))) for _ in range(3)]  # fmt: skip
    return {
        "q": f"Write a Python function `{name}(text)` that {q}.", "name": name,
        "tests": [f"assert {name}({text!r}) == {call(text)!r}" for text in texts],
        "solution": f"def {name}(text):\n    return {body}",
    }  # fmt: skip


@distinct
def programs(rng: random.Random, at: int) -> Row:
    """Programs that read standard input: q, inputs, outputs, solution."""
    k, m = rng.randint(2, 12), rng.randint(1, 30)
    what, body, run = (
        (f"the sum of the numbers that {k} divides, plus {m}", f"sum(x for x in v if x % {k} == 0) + {m}", lambda v: sum(x for x in v if x % k == 0) + m),
        (f"how many of the numbers are greater than {m}, times {k}", f"{k} * sum(x > {m} for x in v)", lambda v: k * sum(x > m for x in v)),
        (f"the largest number modulo {k + 5}, minus {m}", f"max(v) % {k + 5} - {m}", lambda v: max(v) % (k + 5) - m),
    )[at % 3]  # fmt: skip
    vectors = [[rng.randint(1, 99) for _ in range(rng.randint(3, 8))] for _ in range(3)]
    return {
        "q": f"The first line holds n, the second n integers. Print {what}.",
        "inputs": [f"{len(v)}\n{' '.join(map(str, v))}\n" for v in vectors],
        "outputs": [str(run(v)) for v in vectors],
        "solution": f"input()\nv = list(map(int, input().split()))\nprint({body})",
    }  # fmt: skip


@distinct
def exam(rng: random.Random, at: int) -> Row:
    """Multiple choice: q, options, key."""
    a, b, c = rng.randint(11, 90), rng.randint(2, 12), rng.randint(2, 9)
    q, value, unit = (
        (f"A cyclist rides at {a} km/h for {b} hours and then {c} km on foot. How far is the journey?", a * b + c, "km"),
        (f"A crate of {a} kg is loaded {b} times, and the empty cart weighs {c} kg. What is moved in all?", a * b + c, "kg"),
        (f"A tap gives {a} ml per second. After {b} seconds, {c} ml are spilt. What is left?", a * b - c, "ml"),
    )[at % 3]  # fmt: skip
    wrong = rng.sample([value + d for d in (-20, -11, -7, -2, 3, 5, 10, 13, 21) if value + d > 0], 3)  # fmt: skip
    options = [*wrong, value]
    rng.shuffle(options)
    return {"q": q, "options": [f"{each} {unit}" for each in options], "key": options.index(value)}


def lettered(row: Row) -> str:
    """A question of `exam` with its options."""
    lines = [f"{key}) {text}" for key, text in zip("ABCD", row["options"], strict=True)]
    return "\n".join([row["q"], *lines])


_SCHEMAS = {
    "book_table": {"restaurant": "string", "people": "integer"},
    "send_money": {"recipient": "string", "amount": "integer"},
    "set_thermostat": {"room": "string", "degrees": "integer"},
    "rent_bike": {"station": "string", "hours": "integer"},
}
_TEXTS = {
    "book_table": ["Chez Paul", "Trattoria Lido", "Sakura", "The Anchor", "Casa Mono", "Zum Hirsch"],
    "send_money": _PEOPLE,
    "set_thermostat": ["kitchen", "nursery", "hall", "attic", "study", "bathroom"],
    "rent_bike": ["Harbour", "Old Town", "Campus", "Zoo", "North Gate", "Museum"],
}  # fmt: skip
_WISHES = {
    "book_table": "I need a table at {} for {} people tonight.",
    "send_money": "Could you transfer to {} the sum of {} euros?",
    "set_thermostat": "It is cold in the {}, make it {} degrees please.",
    "rent_bike": "Get me a bike at the {} station for {} hours.",
}


def schema(name: str) -> Row:
    """The JSON schema of a tool."""
    properties = {key: {"type": kind} for key, kind in _SCHEMAS[name].items()}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Tool {name}", "parameters": {
            "type": "object", "properties": properties, "required": list(properties)}},
    }  # fmt: skip


@distinct
def calls(rng: random.Random, at: int) -> Row:
    """Requests for tools: q, name, arguments."""
    name = rng.choice(list(_SCHEMAS))
    text, number = rng.choice(_TEXTS[name]), rng.randint(2, 40)
    polite = rng.choice(["", " Thank you.", " Soon, if you can.", " It matters to me."])
    arguments = dict(zip(_SCHEMAS[name], (text, number), strict=True))
    return {"q": _WISHES[name].format(text, number) + polite, "name": name, "arguments": arguments}


@distinct
def dialogs(rng: random.Random, at: int) -> Row:
    """Orders in two turns: q (messages), a (total)."""
    item, other = rng.sample(["coffee", "bagel", "salad", "soup", "juice", "muffin"], 2)
    p, r = rng.randint(2, 9), rng.randint(2, 9)
    n, m, less = rng.randint(3, 12), rng.randint(2, 12), rng.randint(1, 2)
    messages = [
        {"role": "user", "content": f"A {item} is {p} euros and a {other} is {r} euros. I take {n} of the first and {m} of the second."},
        {"role": "assistant", "content": f"Noted: {n} times {item}, {m} times {other}. Anything else?"},
        {"role": "user", "content": f"Take {less} {item} off again. What do I pay in euros? End with 'Total: N'."},
    ]  # fmt: skip
    return {"q": messages, "a": (n - less) * p + m * r}


@distinct
def notices(rng: random.Random, at: int) -> Row:
    """Letters and the fields to extract: q, a (nested object)."""
    sender = f"{rng.choice(['Nordlicht', 'Alvarez', 'Brightwell', 'Okafor', 'Tanaka', 'Delmas'])} {rng.choice(['Ltd', 'GmbH', 'SA', 'Inc'])}"
    amount, day, number = rng.randint(40, 3000), rng.randint(1, 28), rng.randint(1000, 9999)
    month = rng.choice(["January", "March", "May", "July", "September"])
    text = (
        f"Dear customer, {sender} has not received your payment for invoice {number}. Please send "
        f"{amount} euros before {day} {month}. {rng.choice(_PEOPLE)} from our accounts team will "
        f"{rng.choice(['call you', 'write again', 'be glad to help'])}."
    )
    fields = {"sender": sender, "amount": amount, "due": {"day": day, "month": month}}
    return {"q": text, "a": fields}


_FRENCH = {
    "subject": {"The teacher": "Le professeur", "My neighbour": "Mon voisin", "The baker": "Le boulanger", "A doctor": "Un médecin", "The captain": "Le capitaine", "His brother": "Son frère", "The writer": "L'écrivain"},
    "verb": {"buys": "achète", "sells": "vend", "repairs": "répare", "forgets": "oublie", "looks for": "cherche", "draws": "dessine"},
    "object": {"a red boat": "un bateau rouge", "the old bicycle": "le vieux vélo", "three chairs": "trois chaises", "a long letter": "une longue lettre", "the white horse": "le cheval blanc", "two lamps": "deux lampes", "a small house": "une petite maison"},
    "time": {"on Monday": "lundi", "every summer": "chaque été", "after lunch": "après le déjeuner", "this morning": "ce matin", "in the evening": "le soir", "without a word": "sans un mot"},
}  # fmt: skip


@distinct
def sentences(rng: random.Random, at: int) -> Row:
    """English sentences and French translations."""
    parts = [rng.choice(list(words.items())) for words in _FRENCH.values()]
    return {"q": " ".join(p[0] for p in parts) + ".", "a": " ".join(p[1] for p in parts) + "."}


@distinct
def sudokus(rng: random.Random, at: int) -> Row:
    """Sudokus of four by four: q (rows with dots), a (rows)."""
    digits = rng.sample("1234", 4)
    base = [[0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2], [3, 2, 1, 0]]
    if rng.random() < 0.5:
        base[0], base[1] = base[1], base[0]
    if rng.random() < 0.5:
        base[2], base[3] = base[3], base[2]
    if rng.random() < 0.5:
        base = [list(column) for column in zip(*base, strict=True)]
    full = ["".join(digits[cell] for cell in row) for row in base]
    hidden = set(rng.sample(range(16), 6))
    shown = ["".join("." if 4 * y + x in hidden else full[y][x] for x in range(4)) for y in range(4)]  # fmt: skip
    return {"q": shown, "a": full}


@distinct
def records(rng: random.Random, at: int) -> Row:
    """Long documents with a question: context, q, a, start."""
    places = rng.sample(["Bergen", "Malaga", "Tartu", "Izmir", "Kyoto", "Dakar", "Salta", "Hobart", "Leipzig", "Galway", "Gdansk", "Pune", "Recife", "Aarhus", "Fez", "Cusco"], 14)  # fmt: skip
    lines, facts = [], []
    for place in places:
        boss, year, staff = rng.choice(_PEOPLE), rng.randint(1931, 2019), rng.randint(23, 980)
        lines.append(
            f"The office in {place} was opened in {year} {rng.choice(['after long talks', 'without a ceremony', 'in a former mill'])}. "
            f"It has {staff} employees, and since {rng.choice(['spring', 'the merger', 'last year'])} it is led by {boss}."
        )  # fmt: skip
        facts += [
            (f"How many employees does the office in {place} have?", str(staff)),
            (f"Who leads the office in {place}?", boss),
            (f"In which year was the office in {place} opened?", str(year)),
        ]
    context = " ".join(lines)
    question, answer = rng.choice(facts)
    return {"context": context, "q": [context[:80], question], "question": question, "a": answer,
            "start": context.index(answer)}  # fmt: skip


INTENTS = {
    "lost_card": ["I cannot find my card since {}", "my card was left in a taxi {}"],
    "stolen_card": ["someone took my card {}", "a thief got my wallet {}"],
    "failed_transfer": ["the transfer I made {} did not go through", "my money was not sent {}"],
    "exchange_rate": ["which rate did you use {}", "the currency was converted badly {}"],
    "change_pin": ["I want other digits for my card than {}", "my secret number must be new {}"],
    "close_account": ["please end my contract {}", "I leave your bank {}"],
}


@distinct
def intents(rng: random.Random, at: int) -> Row:
    """Messages to a bank with one of six labels."""
    label = rng.choice(list(INTENTS))
    when = rng.choice(["on Sunday", "in Lisbon", "last week", "at the airport", "yesterday", "during the trip"])  # fmt: skip
    start = rng.choice(["Hello,", "Good day,", "Hi,", "Help:", "Dear team,", "Excuse me,", ""])
    end = rng.choice(["What now?", "Thanks.", "Please answer.", f"{rng.choice(_PEOPLE)}", ""])
    return {"q": f"{start} {rng.choice(INTENTS[label]).format(when)}. {end}".strip(), "a": label}


FACTS = {
    "a heat pump": ["compressor", "refrigerant", "evaporator", "condenser"],
    "a bicycle gear": ["chain", "sprocket", "ratio", "derailleur"],
    "a vaccine": ["antigen", "antibody", "immune", "memory"],
    "a tide": ["moon", "gravity", "ocean", "rotation"],
    "a mortgage": ["interest", "collateral", "lender", "repayment"],
    "a violin": ["bow", "string", "vibration", "body"],
    "a rainbow": ["refraction", "droplets", "sunlight", "angle"],
}


@distinct
def essays(rng: random.Random, at: int) -> Row:
    """Open questions with the facts that a good answer names."""
    thing = rng.choice(list(FACTS))
    who = rng.choice(["a child", "a new colleague", "my grandmother", "a tourist", "an engineer", "a judge"])  # fmt: skip
    place = rng.choice(["in a letter", "for a leaflet", "in a short talk", "on a website", "by phone"])  # fmt: skip
    verb = rng.choice(["Explain", "Describe", "Tell"])
    facts = rng.sample(FACTS[thing], 3)
    if verb == "Tell":
        q = f"Tell {who} {place} how {thing} works."
    else:
        q = f"{verb} {place} to {who} how {thing} works."
    return {"q": q, "facts": facts}


_FOREIGN = [
    "{who} hat {a} Körbe mit je {b} Birnen und verschenkt {c} Birnen. Wie viele Birnen bleiben {who}?",
    "{who} tiene {a} cestas con {b} peras cada una y regala {c} peras. ¿Cuántas peras le quedan a {who}?",
    "{who}는 배가 {b}개씩 든 바구니 {a}개를 가지고 있고 배 {c}개를 나누어 주었습니다. {who}에게 남은 배는 몇 개입니까?",
    "لدى {who} {a} سلال في كل منها {b} كمثرى وأهدى {c} منها. كم كمثرى بقيت عند {who}؟",
]


@distinct
def foreign(rng: random.Random, at: int) -> Row:
    """Word problems in German, Spanish, Korean and Arabic."""
    a, b, c = rng.randint(3, 40), rng.randint(5, 30), rng.randint(1, 14)
    text = _FOREIGN[at % 4].format(who=rng.choice(_PEOPLE), a=a, b=b, c=c)
    return {"q": text, "a": a * b - c}


TABLES = {
    "staff": ("name TEXT, team TEXT, salary INTEGER", "salary", "team", ["sales", "legal", "design"]),
    "boats": ("name TEXT, harbour TEXT, length INTEGER", "length", "harbour", ["Kiel", "Bari", "Nice"]),
    "films": ("name TEXT, genre TEXT, minutes INTEGER", "minutes", "genre", ["drama", "comedy", "crime"]),
}  # fmt: skip


@distinct
def queries(rng: random.Random, at: int) -> Row:
    """Questions about a table: q, schema, fill (statements), a (SQL)."""
    table = rng.choice(list(TABLES))
    columns, number, group, values = TABLES[table]
    rows = [(rng.choice(_PEOPLE) + str(i), rng.choice(values), rng.randint(20, 200)) for i in range(12)]  # fmt: skip
    value, bound = rng.choice(values), rng.randint(30, 150)
    q, answer = (
        (f"What are the names in {table} whose {group} is {value} and whose {number} is below {bound}?",
         f"SELECT name FROM {table} WHERE {group} = '{value}' AND {number} < {bound}"),
        (f"How many entries of {table} have a {number} above {bound}?",
         f"SELECT COUNT(*) FROM {table} WHERE {number} > {bound}"),
        (f"What is the greatest {number} in {table} where the {group} is not {value} and the {number} stays under {bound + 60}?",
         f"SELECT MAX({number}) FROM {table} WHERE {group} <> '{value}' AND {number} < {bound + 60}"),
    )[at % 3]  # fmt: skip
    fill = [f"CREATE TABLE {table} ({columns})"]
    fill += [f"INSERT INTO {table} VALUES ('{n}', '{g}', {v})" for n, g, v in rows]
    return {"q": q, "schema": f"CREATE TABLE {table} ({columns});", "fill": ";\n".join(fill), "a": answer}  # fmt: skip


@distinct
def orders(rng: random.Random, at: int) -> Row:
    """Writing tasks with rules that a program checks: q, rules."""
    topic = rng.choice(["a lost umbrella", "the smell of rain", "a night bus", "an old map", "a noisy flat", "the first snow", "a broken clock"])  # fmt: skip
    n, word = rng.randint(3, 9), rng.choice(["harbour", "violet", "seldom", "copper", "drift", "candle"])  # fmt: skip
    rules = {"lines": n, "word": word}
    return {"q": f"Write a text about {topic} in exactly {n} lines. One of them must contain the word {word}, and every line must end with a full stop.", "rules": rules}  # fmt: skip
