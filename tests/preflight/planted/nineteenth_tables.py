"""Tables of the nineteenth examination, with contents made by chance."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.preflight.planted.tables import Row

_PEOPLE = ("Amara", "Bertrand", "Chiyo", "Dalibor", "Esi", "Farouk", "Greta", "Hamid", "Ilse", "Joaquin", "Katya", "Lorenzo")  # fmt: skip
_TOWNS = ("Trieste", "Cork", "Sapporo", "Malmo", "Valdivia", "Izmir", "Hobart", "Quebec", "Ghent", "Riga")  # fmt: skip
_FIRMS = ("Tornio Steel", "Baobab Foods", "Ionian Ferries", "Kestrel Air", "Marlow Paints", "Nordlys Energy", "Papaya Media", "Rubicon Tools")  # fmt: skip
_WORDS = ("harbor", "lantern", "glacier", "orchid", "violin", "compass", "granite", "saffron", "meadow", "anchor", "falcon", "velvet", "copper", "thistle")  # fmt: skip


def chat(user: str, system: str = "") -> list[dict[str, str]]:
    """A prompt of one turn."""
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": user}]


def claims(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """A report, a claim about it, and whether the report supports it."""
    rng = random.Random(seed)
    for _ in range(count):
        firm, year, sales, staff = rng.choice(_FIRMS), rng.randint(2009, 2024), rng.randint(20, 990), rng.randint(40, 4000)  # fmt: skip
        town = rng.choice(_TOWNS)
        report = f"In {year}, {firm} of {town} had sales of {sales} million euros and employed {staff} people."
        true = rng.random() < 0.5
        other = sales if true else sales + rng.choice((-13, -7, 9, 21))
        many = staff if true else staff + rng.choice((-31, 17, 58))
        claim = rng.choice((f"The sales of {firm} were {other} million euros in {year}.", f"{firm} had {many} employees in {year}."))  # fmt: skip
        yield {"report": report, "claim": claim, "verdict": "yes" if true else "no"}


def estimates(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Offers of used cars with a price."""
    rng = random.Random(seed)
    for _ in range(count):
        make, age, km = rng.choice(("hatchback", "estate car", "van", "pickup", "minibus")), rng.randint(1, 15), rng.randint(8, 260)  # fmt: skip
        base = {"hatchback": 19, "estate car": 26, "van": 31, "pickup": 38, "minibus": 44}[make]
        price = round(base * 1000 * 0.88**age * (1 - km / 700) / 10) * 10
        text = f"A {make} from {rng.choice(_TOWNS)}, {age} years old, {km},000 km, offered by {rng.choice(_PEOPLE)}."
        yield {"text": text, "price": price}


def headlines(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Short news with a headline."""
    rng = random.Random(seed)
    for _ in range(count):
        firm, town, jobs, thing = rng.choice(_FIRMS), rng.choice(_TOWNS), rng.randint(20, 900), rng.choice(_WORDS)  # fmt: skip
        month = rng.choice(("January", "April", "July", "October"))
        if rng.random() < 0.5:
            text = f"The board decided on Tuesday to open a second plant. It will stand in {town} and give work to {jobs} people from {month} on, said a speaker of {firm}."
            head = f"{firm} creates {jobs} jobs in {town}"
        else:
            text = f"After complaints of {jobs} buyers about the model {thing.title()}, sold in {town} since {month}, {firm} takes all of them back and pays the price."
            head = f"{firm} recalls {thing.title()} after {jobs} complaints"
        yield {"text": text, "headline": head}


_PLACES = {
    "el": (("Γαλλία", "Παρίσι"), ("Ιταλία", "Ρώμη"), ("Ισπανία", "Μαδρίτη"), ("Αυστρία", "Βιέννη"), ("Πολωνία", "Βαρσοβία"), ("Νορβηγία", "Όσλο")),
    "ru": (("Франции", "Париж"), ("Италии", "Рим"), ("Испании", "Мадрид"), ("Австрии", "Вена"), ("Польши", "Варшава"), ("Норвегии", "Осло")),
    "en": (("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Austria", "Vienna"), ("Poland", "Warsaw"), ("Norway", "Oslo")),
}  # fmt: skip
_ASKED = {
    "el": "Ο ταξιδιώτης {n} ({k} ετών, {o}) πηγαίνει στην πρωτεύουσα: {c}. Ποια πόλη επισκέπτεται;",
    "ru": "Путешественник {n} ({k} лет, {o}) едет в столицу {c}. Какой город он посетит?",
    "en": "The traveler {n}, aged {k}, leaves {o} and goes to the capital of {c}. Which city is visited?",
}


def travels(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Questions in Greek, Russian and English."""
    rng = random.Random(seed)
    for at in range(count):
        language = ("en", "ru", "el")[at % 3]
        land, city = rng.choice(_PLACES[language])
        text = _ASKED[language].format(
            n=rng.choice(_PEOPLE), k=rng.randint(18, 90), c=land, o=rng.choice(_TOWNS)
        )
        yield {"text": text, "city": city, "language": language}


def charges(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Small physical quantities: `value` as text with three digits."""
    rng = random.Random(seed)
    for _ in range(count):
        nano, milli = rng.randint(12, 990), rng.randint(2, 98)
        if rng.random() < 0.5:
            text, value = f"A capacitor of {nano} nF is charged to {milli} mV. What is its charge in coulomb?", nano * milli * 1e-12  # fmt: skip
        else:
            text, value = f"A current of {nano} nA flows for {milli} ms. Which charge in coulomb passes?", nano * milli * 1e-12  # fmt: skip
        yield {"text": text, "value": f"{value:.3e}"}


def shelves(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lists of words; how many have a letter."""
    rng = random.Random(seed)
    for _ in range(count):
        words = [rng.choice(_WORDS) for _ in range(rng.randint(9, 20))]
        letter = rng.choice("aeor")
        text = f"Words: {', '.join(words)}.\nHow many of these words contain the letter '{letter}'?"
        yield {"text": text, "count": sum(letter in word for word in words)}


_SYMPTOMS = {
    "billing": ("I was charged twice.", "The invoice shows a wrong amount.", "My card was debited too early."),
    "delivery": ("The parcel has not come.", "The courier left it in the rain.", "The package went to my old address."),
    "quality": ("The handle broke off.", "The color is not as shown.", "One screw is missing."),
    "account": ("I cannot log in.", "My password is not accepted.", "The app has forgotten my profile."),
    "praise": ("Your staff was very kind.", "I like the new shop.", "Thanks for the quick help."),
}  # fmt: skip


def tickets(count: int, seed: int, *, empty: bool = False) -> Iterator[dict[str, Any]]:
    """Messages with one to three topics; without one in a sixth of the rows if asked."""
    rng = random.Random(seed)
    for at in range(count):
        topics = rng.sample(sorted(_SYMPTOMS), rng.randint(1, 3))
        lines = [rng.choice(_SYMPTOMS[topic]) for topic in topics]
        if empty and at % 6 == 1:
            topics, lines = [], [rng.choice(("When do you open on Sunday?", "Do you have a shop in Cork?", "Who designs your catalog?"))]  # fmt: skip
        text = f"{rng.choice(_PEOPLE)} from {rng.choice(_TOWNS)} writes about order {rng.randint(10000, 99999)}: {' '.join(lines)}"
        yield {"text": text, "topics": topics}


def stories(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Word problems of three steps with a worked solution."""
    rng = random.Random(seed)
    for _ in range(count):
        who, town = rng.choice(_PEOPLE), rng.choice(_TOWNS)
        days, loaves, price, cost = rng.randint(3, 29), rng.randint(12, 95), rng.randint(3, 9), rng.randint(20, 400)  # fmt: skip
        result = days * loaves * price - cost
        text = f"{who} runs a bakery in {town} and sells {loaves} loaves a day for {price} euros each. How many euros are left after {days} days, if the oven costs {cost} euros in this time?"
        way = f"In {days} days {who} sells {days} * {loaves} = {days * loaves} loaves. They bring {days * loaves} * {price} = {days * loaves * price} euros. After the oven, {days * loaves * price} - {cost} = {result} euros are left."
        yield {"text": text, "way": way, "result": result}


def weather(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Temperatures below and above zero."""
    rng = random.Random(seed)
    for _ in range(count):
        start, fall, rise = rng.randint(-12, 20), rng.randint(3, 30), rng.randint(0, 14)
        text = f"In {rng.choice(_TOWNS)} it is {start} degrees at noon. Until midnight the temperature falls by {fall} degrees, then it rises by {rise} until morning. How many degrees are measured in the morning?"
        yield {"text": text, "degrees": start - fall + rise}


def draws(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Probabilities, asked as a fraction or as a decimal number."""
    rng = random.Random(seed)
    for at in range(count):
        red, blue, name = rng.randint(2, 40), rng.randint(2, 40), rng.choice(_PEOPLE)
        total = red + blue
        fraction = at % 4 == 2
        form = "as a reduced fraction" if fraction else "as a decimal number with three places"
        text = f"{name}'s urn holds {red} red and {blue} blue balls, and one is drawn. What is the probability that it is red? Write it {form}."
        common = math.gcd(red, total)
        answer = f"{red // common}/{total // common}" if fraction else f"{red / total:.3f}"
        yield {"text": text, "answer": answer}


def passages(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """A passage and a question; a fifth cannot be answered from it."""
    rng = random.Random(seed)
    for at in range(count):
        who, town, year, trade = rng.choice(_PEOPLE), rng.choice(_TOWNS), rng.randint(1790, 1960), rng.choice(("clockmaker", "botanist", "sculptor", "surveyor", "printer"))  # fmt: skip
        passage = f"The {trade} {who} moved to {town} in {year} and opened a workshop near the {rng.choice(_WORDS)} market."
        question, answer = rng.choice(((f"Where did {who} move?", town), (f"In which year did {who} open the workshop?", str(year)), (f"What was {who}'s trade?", trade)))  # fmt: skip
        if at % 5 == 3:
            question, answer = rng.choice((f"Who were the parents of {who}?", f"When did {who} die?", f"Which school did {who} visit?")), "unknown"  # fmt: skip
        yield {"passage": passage, "question": question, "answer": answer}


def bills(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Amounts with two places."""
    rng = random.Random(seed)
    for _ in range(count):
        units, cents, rate = rng.randint(2, 19), rng.randint(105, 3999), rng.choice((7, 9, 12, 21))
        total = round(units * cents / 100 * (1 + rate / 100), 2)
        text = f"{rng.choice(_PEOPLE)} orders {units} {rng.choice(_WORDS)} sets at {cents / 100:.2f} euros each in {rng.choice(_TOWNS)}. A tax of {rate} percent is added. What is the total in euros?"
        yield {"text": text, "total": total}


_UNITS = ("celsius", "fahrenheit")
SCHEMAS = [
    {"name": "set_thermostat", "parameters": {"type": "object", "properties": {"room": {"type": "string"}, "degrees": {"type": "integer"}, "unit": {"type": "string", "enum": list(_UNITS)}}, "required": ["room", "degrees", "unit"]}},
    {"name": "play_song", "parameters": {"type": "object", "properties": {"title": {"type": "string"}, "volume": {"type": "integer"}}, "required": ["title"]}},
]  # fmt: skip


def calls(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Requests to a house with one tool call."""
    rng = random.Random(seed)
    for _ in range(count):
        if rng.random() < 0.6:
            room, degrees, unit = rng.choice(("kitchen", "attic", "nursery", "cellar", "hall")), rng.randint(15, 80), rng.choice(_UNITS)  # fmt: skip
            text = f"Please bring the {room} in {rng.choice(_TOWNS)} to {degrees} degrees {unit}, {rng.choice(_PEOPLE)} is cold."
            call = {"name": "set_thermostat", "arguments": {"room": room, "degrees": degrees, "unit": unit}}  # fmt: skip
        else:
            title, volume = " ".join(rng.sample(_WORDS, 2)), rng.randint(1, 10)
            text = f"{rng.choice(_PEOPLE)} wants to hear '{title}' at volume {volume}."
            call = {"name": "play_song", "arguments": {"title": title, "volume": volume}}
        yield {"text": text, "call": call}


def powers(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Sums of powers, written with superscript digits."""
    rng = random.Random(seed)
    for _ in range(count):
        a, b, c = rng.randint(2, 29), rng.randint(2, 9), rng.randint(1, 400)
        yield {"text": f"Compute {a}\u00b2 + {b}\u00b3 \u2212 {c}.", "value": a**2 + b**3 - c}


def letters(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Four towns with their distances; the letter of the farthest."""
    rng = random.Random(seed)
    for _ in range(count):
        towns, ways = rng.sample(_TOWNS, 4), rng.sample(range(20, 900), 4)
        lines = [f"{mark}. {town}, {way} km" for mark, town, way in zip("ABCD", towns, ways, strict=True)]  # fmt: skip
        text = f"{rng.choice(_PEOPLE)} compares trips:\n" + "\n".join(lines) + "\nWhich town is farthest away?"  # fmt: skip
        yield {"text": text, "letter": "ABCD"[ways.index(max(ways))]}


def functions(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """What a line of Python prints, also None, nan and inf."""
    rng = random.Random(seed)
    for at in range(count):
        a, b = rng.randint(2, 990), rng.randint(2, 990)
        code, printed = (
            (f"print([{a}, {b}].append({a + b}))", "None"),
            (f"print(max({a}, {b}) - min({a}, {b}))", str(abs(a - b))),
            (f"print(float('inf') - {a} * {b})", "inf"),
            (f"print({{{a}: {b}}}.get({a + b + 1}))", "None"),
            (f"print({a} * {b} + {a})", str(a * b + a)),
            (f"print('{rng.choice(_WORDS)} {rng.choice(_WORDS)} {a}'.upper()[:{3 + a % 3}])", ""),
        )[at % 6]
        if not printed:
            printed = code.split("'")[1].upper()[: 3 + a % 3]
        yield {"text": f"What does this line of Python print?\n\n{code}", "printed": printed}


def rows_of(
    table: Iterator[dict[str, Any]], ask: str, *columns: str, text: str = "text"
) -> list[Row]:
    """Prompts with a system message, and some columns of the table."""
    return [{"prompt": chat(row[text], ask), **{name: row[name] for name in columns}} for row in table]  # fmt: skip


def verl_rows(table: Iterator[dict[str, Any]], ask: str, column: str, source: str) -> list[Row]:
    """verl's layout."""
    return [
        {"data_source": source, "prompt": chat(f"{row['text']}\n{ask}"), "ability": "reasoning",
         "reward_model": {"style": "rule", "ground_truth": str(row[column])}, "extra_info": {"index": at}}
        for at, row in enumerate(table)
    ]  # fmt: skip


def as_json(rows: Sequence[Row], column: str) -> list[Row]:
    """The column as JSON text."""
    return [{**row, column: json.dumps(row[column])} for row in rows]
