"""Data sets of the fifteenth examination, written on the spot."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from tests.preflight.planted.fourteenth_tables import distinct, latex
from tests.preflight.planted.models import CHATML
from tests.preflight.planted.tables import Row

VISION = replace(
    CHATML, specials=(*CHATML.specials, "<image>"),
    config={"model_type": "qwen2_5_vl", "vision_config": {"depth": 2}},
    template=(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}"
        "{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
)  # fmt: skip
"""A model that reads pictures."""
_NAMES = ["Abena", "Boris", "Clara", "Dmitri", "Eun", "Faisal", "Gina", "Henrik", "Imani", "Jorge", "Kiran", "Lotte", "Marek", "Nia", "Otto", "Petra", "Rafi", "Selma", "Tomas", "Uma"]  # fmt: skip


@distinct
def school(rng: random.Random, at: int) -> Row:
    """Word problems as in GSM8K: q, steps, a (int)."""
    who, other = rng.sample(_NAMES, 2)
    a, b, c, d = rng.randint(15, 95), rng.randint(4, 48), rng.randint(2, 9), rng.randint(2, 6)
    q, steps, value = rng.choice((
        (f"{who} sells {a} tickets at ${b} each for the school play and {other} sells {c} times as many tickets at the same price. How much money do they collect together?",
         f"{other} sells {c}*{a}=<<{c}*{a}={c * a}>>{c * a} tickets.\nTogether that is {a}+{c * a}=<<{a}+{c * a}={a + c * a}>>{a + c * a} tickets.\nThey collect {a + c * a}*{b}=<<{(a + c * a)}*{b}={(a + c * a) * b}>>{(a + c * a) * b} dollars.",
         (a + c * a) * b),
        (f"A farm has {a} hens. Each hen lays {c} eggs a week. {who} sells the eggs of {d} weeks but drops {b} of them. How many eggs are sold?",
         f"In one week there are {a}*{c}=<<{a}*{c}={a * c}>>{a * c} eggs.\nIn {d} weeks there are {a * c}*{d}=<<{a * c}*{d}={a * c * d}>>{a * c * d}.\nWithout the dropped ones {a * c * d}-{b}=<<{a * c * d}-{b}={a * c * d - b}>>{a * c * d - b}.",
         a * c * d - b),
        (f"{who} runs {c} miles every weekday and {c + d} miles on each day of the weekend. How many miles does {who} run in {b} weeks?",
         f"On weekdays {who} runs 5*{c}=<<5*{c}={5 * c}>>{5 * c} miles.\nOn the weekend it is 2*{c + d}=<<2*{c + d}={2 * (c + d)}>>{2 * (c + d)}.\nIn {b} weeks: {7 * c + 2 * d}*{b}=<<{7 * c + 2 * d}*{b}={(7 * c + 2 * d) * b}>>{(7 * c + 2 * d) * b}.",
         (7 * c + 2 * d) * b),
        (f"{who} has {a * d} beads and gives a {d}th of them to {other}, who already has {b}. How many beads does {other} have then?",
         f"{other} gets {a * d}/{d}=<<{a * d}/{d}={a}>>{a} beads.\n{other} has {a}+{b}=<<{a}+{b}={a + b}>>{a + b}.", a + b),
        (f"A bus starts with {a} passengers. At the first stop {min(b, a)} get off and {c} get on, at the second {d} get on. How many passengers are on the bus now?",
         f"After the first stop {a}-{min(b, a)}+{c}=<<{a}-{min(b, a)}+{c}={a - min(b, a) + c}>>{a - min(b, a) + c}.\nThen {a - min(b, a) + c}+{d}=<<{a - min(b, a) + c}+{d}={a - min(b, a) + c + d}>>{a - min(b, a) + c + d}.",
         a - min(b, a) + c + d),
    ))  # fmt: skip
    return {"q": q, "steps": steps, "a": value}


@distinct
def algebra(rng: random.Random, at: int) -> Row:
    """Problems as in MATH: q, solution with a box, a (LaTeX)."""
    a, b, c, d = rng.randint(2, 19), rng.randint(2, 30), rng.randint(2, 12), rng.randint(3, 40)
    slope = Fraction(b - d, a + c)
    q, steps, value = rng.choice((
        (f"What is the slope of the line through $(-{a}, {d})$ and $({c}, {b})$?",
         f"The slope is $\\frac{{{b} - {d}}}{{{c} + {a}}}$.", ("-" if slope < 0 else "") + latex(abs(slope))),
        (f"Solve for $x$: ${a}x - {b} = {d}$.", f"We get ${a}x = {b + d}$, so we divide by ${a}$.", latex(Fraction(b + d, a))),
        (f"Simplify $({a}x + {b})({c}x - {d})$.", "We expand and collect the terms.",
         f"{a * c}x^2 {'+' if b * c - a * d >= 0 else '-'} {abs(b * c - a * d)}x - {b * d}"),
        (f"For which $x$ is $|x - {b}| < {c}$? Give an interval.", f"It means $-{c} < x - {b} < {c}$.", f"({b - c}, {b + c})"),
        (f"What is the remainder when ${a}^{{{c}}}$ is divided by ${d}$?", f"We reduce the powers of ${a}$ modulo ${d}$.", str(a**c % d)),
    ))  # fmt: skip
    return {"q": q, "steps": f"{steps} The answer is $\\boxed{{{value}}}$.", "a": value}


@distinct
def physics(rng: random.Random, at: int) -> Row:
    """Physics with units: q, q_tex (numbers in $), steps, a (text), unit."""
    m, v, t, h = rng.randint(2, 60), rng.randint(3, 40), rng.randint(2, 25), rng.randint(5, 90)
    text, steps, value, unit = rng.choice((
        ("A body with a mass of {} kg moves at {} m/s. What is its momentum?", f"p = m * v = {m} * {v}", m * v, "kg*m/s"),
        ("A train travels at {} m/s for {} s. How far does it get?", f"s = v * t = {v} * {t}", v * t, "m"),
        ("What work is done by a force of {} N over a path of {} m?", f"W = F * s = {h} * {t}", h * t, "J"),
        ("A resistor of {} ohm carries a current of {} A. What is the voltage across it?", f"U = R * I = {h} * {v}", h * v, "V"),
        ("A crate of {} kg is lifted by {} m. What potential energy does it gain, with g = 10 m/s^2?", f"E = m * g * h = {m} * 10 * {h}", m * 10 * h, "J"),
        ("A machine does {} J of work in {} s. What is its power?", f"P = W / t = {h * t} / {t}", h, "W"),
    ))  # fmt: skip
    numbers = {"p": (m, v), "s": (v, t), "W": (h, t), "U": (h, v), "E": (m, h), "P": (h * t, t)}[steps[0]]  # fmt: skip
    return {
        "q": text.format(*numbers), "q_tex": text.format(*(f"${n}$" for n in numbers)),
        "steps": f"{steps} = {value} {unit}", "a": str(value), "unit": unit,
    }  # fmt: skip


@distinct
def charts(rng: random.Random, at: int) -> Row:
    """Questions about pictures: q, image, a."""
    kind, place = rng.choice(["bar chart", "line chart", "pie chart"]), rng.choice(["Lyon", "Porto", "Ghent", "Turin", "Graz", "Malmo"])  # fmt: skip
    year, thing = rng.randint(1990, 2023), rng.choice(["rainfall in mm", "visitors in thousands", "exports in millions", "new flats"])  # fmt: skip
    q, a = rng.choice((
        (f"What does the {kind} show for {thing} in {place} in {year}?", str(rng.randint(12, 980))),
        (f"Which colour has {place} in the {kind} of {thing} of {year}?", rng.choice(["red", "blue", "green", "orange", "violet", "grey"])),
    ))  # fmt: skip
    return {"q": q, "image": f"charts/{at:05d}.png", "a": a}


@distinct
def articles(rng: random.Random, at: int) -> Row:
    """News with a summary: q, a."""
    town = rng.choice(["Brunswick", "Leeds", "Tampere", "Varna", "Cork", "Zadar", "Nantes", "Gera"])
    who, boss = rng.sample(_NAMES, 2)
    thing, cause = rng.choice(["library", "swimming pool", "tram line", "museum", "market hall", "bridge"]), rng.choice(["a burst pipe", "a strike", "missing permits", "a storm", "rising costs"])  # fmt: skip
    n, money, month = rng.randint(2, 18), rng.randint(3, 95), rng.choice(["March", "June", "August", "October"])  # fmt: skip
    text = (
        f"The {thing} in {town} will open {n} months later than planned. {who}, who speaks for the town, said on Tuesday that {cause} had delayed the work. "
        f"The council had promised the opening for {month}. The cost has grown to {money} million euros, which {boss} of the opposition called hard to explain. "
        f"Residents have been asked to use the old {thing} until then. A decision on further funds is expected after the summer."
    )  # fmt: skip
    short = f"The opening of the {thing} in {town} is delayed by {n} months because of {cause}. The cost has grown to {money} million euros."
    return {"q": text, "a": short}


@distinct
def countdown(rng: random.Random, at: int) -> Row:
    """The countdown game: nums, target, q."""
    nums = rng.sample(range(2, 60), rng.choice([3, 4]))
    target = nums[0]
    for n in nums[1:]:
        target = rng.choice([target + n, abs(target - n), target * n if target * n < 2000 else target + n])  # fmt: skip
    return {"q": [nums, target], "nums": nums, "target": target}


_PIECES = "KQRBN"


@distinct
def positions(rng: random.Random, at: int) -> Row:
    """Chess positions in which a rook takes a queen: q (FEN), a (UCI), san, other (legal moves)."""
    rook = (rng.randrange(8), rng.randrange(2, 6))
    along = rng.random() < 0.5
    spots = [x for x in range(8) if abs(x - rook[0]) >= 2] if along else [y for y in range(8) if abs(y - rook[1]) >= 2]  # fmt: skip
    spot = rng.choice(spots)
    queen = (spot, rook[1]) if along else (rook[0], spot)
    free = [(x, y) for x in range(8) for y in (0, 7) if x not in (rook[0], queen[0]) and y not in (rook[1], queen[1])]  # fmt: skip
    king = rng.choice([s for s in free if s[1] == 0] or [((queen[0] + 4) % 8, 1)])
    foe = rng.choice([s for s in free if s[1] == 7 and abs(s[0] - queen[0]) > 2] or [((king[0] + 3) % 8, 6)])  # fmt: skip
    board = [["" for _ in range(8)] for _ in range(8)]
    for piece, (x, y) in (("K", king), ("k", foe), ("R", rook), ("q", queen)):
        board[y][x] = piece
    lines = []
    for line in reversed(board):
        text, gap = "", 0
        for cell in line:
            if cell and gap:
                text += str(gap)
            gap = 0 if cell else gap + 1
            text += cell
        lines.append(text + (str(gap) if gap else ""))
    fen = "/".join(lines) + f" w - - 0 {rng.randint(20, 70)}"
    squares = [f"{'abcdefgh'[x]}{y + 1}" for x, y in (rook, queen)]
    return {"q": fen, "a": "".join(squares), "san": f"Rx{squares[1]}"}


@distinct
def passages(rng: random.Random, at: int) -> Row:
    """Questions with retrieved passages: docs, question, a."""
    docs, facts = [], []
    for number, town in enumerate(rng.sample(["Ardenne", "Bellmoor", "Castrel", "Dunholt", "Eskara", "Fernby", "Galmont", "Hollin"], 5)):  # fmt: skip
        first, last = rng.choice(_NAMES), rng.choice(["Lindqvist", "Moreau", "Okonkwo", "Petrov", "Salazar", "Whitfield"])  # fmt: skip
        river, craft = rng.choice(["Tarn", "Olma", "Grey Water", "Lesser Isk", "Vole"]), rng.choice(["blown glass", "wool blankets", "clay pipes", "church bells"])  # fmt: skip
        docs.append(f"[{number + 1}] {town} lies on the river {river} and is known for its {craft}. The town was laid out by {first} {last} after the great fire.")  # fmt: skip
        facts += [(f"Who laid out {town}?", f"{first} {last}"), (f"What is {town} known for?", craft), (f"On which river does {town} lie?", river)]  # fmt: skip
    question, answer = rng.choice(facts)
    return {"q": [docs, question], "docs": "\n".join(docs), "question": question, "a": answer}


@distinct
def pairs(rng: random.Random, at: int) -> Row:
    """Two responses to a question, one of them wrong: q, key (A or B), scores."""
    a, b = rng.randint(12, 99), rng.randint(3, 40)
    who = rng.choice(_NAMES)
    question, value = rng.choice((
        (f"{who} has {a} stamps and buys {b} more. How many are there?", a + b),
        (f"A box holds {a + b} nails. {who} takes {b} out. How many are left?", a),
        (f"One ticket costs {b} euros. What do {a} tickets cost?", a * b),
    ))  # fmt: skip
    wrong = value + rng.choice([-10, -2, -1, 1, 3, 10])
    right = rng.choice([f"The result is {value}.", f"That makes {value}.", f"We get {value}."])
    false = rng.choice([f"The result is {wrong}.", f"That makes {wrong}.", f"We get {wrong}."])
    key = rng.choice("AB")
    first, second = (right, false) if key == "A" else (false, right)
    text = f"Question: {question}\n\nResponse A: {first}\n\nResponse B: {second}"
    return {"q": text, "key": key, "score": str(rng.randint(6, 10) if key == "A" else rng.randint(1, 5)), "question": question}  # fmt: skip


_TICKETS = {
    "billing": ["I was charged twice for {}", "the invoice for {} shows a wrong sum", "why did {} become dearer this month"],
    "shipping": ["{} has not arrived yet", "the parcel with {} went to my old address", "when will {} be delivered"],
    "defect": ["{} stopped working after two days", "{} makes a strange noise", "{} came with a crack"],
    "return": ["I would like to send {} back", "how do I get a label to give {} back", "{} does not suit me, I do not want to keep it"],
    "account": ["I cannot log in to see {} in my orders", "my password mail for the page of {} never comes", "please delete my profile, I only bought {}"],
}  # fmt: skip


@distinct
def tickets(rng: random.Random, at: int) -> Row:
    """Mails to a shop with one of five labels."""
    label = rng.choice(list(_TICKETS))
    thing = rng.choice(["the kettle", "the desk lamp", "my headphones", "the garden chair", "the blender", "the rucksack", "the router", "the toy train"])  # fmt: skip
    start, end = rng.choice(["Hello! ", "Hi team, ", "", "Good morning. ", "To whom it may concern: "]), rng.choice(["", " Regards", " Please help", f" {rng.choice(_NAMES)}"])  # fmt: skip
    return {"q": f"{start}{rng.choice(_TICKETS[label]).format(thing)}.{end}", "a": label}


@distinct
def quiz(rng: random.Random, at: int) -> Row:
    """Multiple choice with four options: q, options, key (index)."""
    a, b, c = rng.randint(3, 30), rng.randint(4, 25), rng.randint(2, 12)
    stem, value = rng.choice((
        (f"A rectangle is {a} cm wide and {b} cm long. What is its perimeter in cm?", 2 * (a + b)),
        (f"A right triangle has legs of {2 * a} cm and {b} cm. What is its area in square cm?", a * b),
        (f"A cube of side {c} cm is cut from a block of {c**3 + a * b} cubic cm. What volume remains in cubic cm?", a * b),
        (f"The mean of three numbers is {a}. Two of them are {b} and {c}. What is the third?", 3 * a - b - c),
    ))  # fmt: skip
    wrong = rng.sample([value + x for x in (-9, -6, -4, -1, 2, 5, 7, 12)], 3)
    options = [*wrong, value]
    rng.shuffle(options)
    return {"q": stem, "options": [str(x) for x in options], "key": options.index(value)}


_GERMAN = {
    "subject": {"The nurse": "Die Krankenschwester", "My uncle": "Mein Onkel", "The gardener": "Der Gärtner", "Their aunt": "Ihre Tante", "The judge": "Der Richter", "A student": "Ein Student"},
    "verb": {"finds": "findet", "paints": "malt", "needs": "braucht", "carries": "trägt", "hides": "versteckt", "cleans": "putzt"},
    "object": {"the green coat": "den grünen Mantel", "an empty bottle": "eine leere Flasche", "five plates": "fünf Teller", "the heavy suitcase": "den schweren Koffer", "a wooden table": "einen Holztisch", "two keys": "zwei Schlüssel"},
    "time": {"before breakfast": "vor dem Frühstück", "on Fridays": "freitags", "in winter": "im Winter", "behind the house": "hinter dem Haus", "with great care": "mit großer Sorgfalt", "at the station": "am Bahnhof"},
}  # fmt: skip


@distinct
def german(rng: random.Random, at: int) -> Row:
    """English sentences and German translations."""
    parts = [rng.choice(list(words.items())) for words in _GERMAN.values()]
    return {"q": " ".join(p[0] for p in parts) + ".", "a": " ".join(p[1] for p in parts) + "."}


TOOLS = {
    "search_flights": {"origin": "string", "destination": "string", "day": "integer"},
    "add_event": {"title": "string", "hour": "integer"},
    "convert_currency": {"amount": "integer", "source": "string", "target": "string"},
    "play_song": {"artist": "string"},
}  # fmt: skip


def schema(name: str) -> Row:
    """The JSON schema of a tool."""
    fields = {key: {"type": kind} for key, kind in TOOLS[name].items()}
    return {"type": "function", "function": {"name": name, "description": name.replace("_", " "),
            "parameters": {"type": "object", "properties": fields, "required": list(fields)}}}  # fmt: skip


@distinct
def requests(rng: random.Random, at: int) -> Row:
    """Requests for tools: q, name, arguments."""
    one, two = rng.sample(["Oslo", "Madrid", "Riga", "Nairobi", "Lima", "Quebec", "Perth"], 2)
    number = rng.randint(1, 28)
    money = rng.sample(["EUR", "USD", "JPY", "CHF", "SEK"], 2)
    name, arguments, q = rng.choice((
        ("search_flights", {"origin": one, "destination": two, "day": number}, f"Which flights go from {one} to {two} on day {number} of this month?"),
        ("add_event", {"title": f"call with {rng.choice(_NAMES)}", "hour": number % 24}, ""),
        ("convert_currency", {"amount": number * 35, "source": money[0], "target": money[1]}, f"How much is {number * 35} {money[0]} in {money[1]}?"),
        ("play_song", {"artist": f"{rng.choice(_NAMES)} and the {rng.choice(['Owls', 'Comets', 'Bakers', 'Foxes', 'Tides'])}"}, ""),
    ))  # fmt: skip
    if name == "add_event":
        q = f"Put a {arguments['title']} into my calendar at {arguments['hour']} o'clock."
    if name == "play_song":
        q = f"I would like to hear something by {arguments['artist']}{rng.choice(['', ' now', ', please', ' in the kitchen'])}."
    return {"q": q, "name": name, "arguments": arguments}


@distinct
def italian(rng: random.Random, at: int) -> Row:
    """Word problems in Italian, Dutch and Russian: q, a (int)."""
    a, b, c = rng.randint(4, 45), rng.randint(3, 28), rng.randint(2, 11)
    who = rng.choice(_NAMES)
    q, value = rng.choice((
        (f"{who} compra {a} scatole con {b} matite ciascuna e ne regala {c}. Quante matite restano?", a * b - c),
        (f"In een zaal staan {a} rijen met {b} stoelen. {who} zet er {c} stoelen bij. Hoeveel stoelen zijn er nu?", a * b + c),
        (f"У {who} было {a} монет, а в каждом из {c} кошельков нашлось ещё по {b} монет. Сколько монет стало всего?", a + b * c),
    ))  # fmt: skip
    return {"q": q, "a": value}


@distinct
def edits(rng: random.Random, at: int) -> Row:
    """Instructions with one right result: q, a."""
    words = rng.sample(["amber", "basket", "cedar", "dune", "ember", "fjord", "glacier", "hollow", "island", "juniper", "kettle", "lagoon"], rng.randint(4, 7))  # fmt: skip
    text = " ".join(words)
    q, a = rng.choice((
        (f"Write these words in alphabetical order, separated by spaces: {text}", " ".join(sorted(words))),
        (f"Write these words in capitals: {text}", text.upper()),
        (f"Write these words in the reverse order, separated by spaces: {text}", " ".join(reversed(words))),
        (f"Leave out the second word: {text}", " ".join(words[:1] + words[2:])),
    ))  # fmt: skip
    return {"q": q, "a": a}


@distinct
def notes(rng: random.Random, at: int) -> Row:
    """Writing tasks with rules: q, bullets, keyword, ending."""
    topic = rng.choice(["a rainy market", "moving house", "a school trip", "learning to swim", "a lost dog", "an allotment", "night shifts"])  # fmt: skip
    n, keyword = rng.randint(3, 6), rng.choice(["bridge", "pepper", "silver", "quiet", "ladder", "window"])  # fmt: skip
    ending = rng.choice(["Is there anything else?", "That is all for today.", "Thank you for reading."])  # fmt: skip
    q = f"Write about {topic}: exactly {n} bullet points that start with '* ', use the word {keyword} at least twice, and end the whole text with the sentence \"{ending}\""
    return {"q": q, "bullets": n, "keyword": keyword, "ending": ending}


@distinct
def counters(rng: random.Random, at: int) -> Row:
    """Programs that read standard input: q, inputs, outputs, solution."""
    k = rng.randint(2, 9)
    letter = rng.choice("aeiorstn")
    what, body, run = rng.choice((
        (f"how many of its words contain the letter '{letter}', times {k}", f"{k} * sum('{letter}' in w for w in s.split())", lambda s: k * sum(letter in w for w in s.split())),
        (f"the first {k} characters of it in capitals, followed by the number of its words", f"s[:{k}].upper() + str(len(s.split()))", lambda s: s[:k].upper() + str(len(s.split()))),
        (f"the sum of the lengths of its words that do not start with '{letter}', plus {k}", f"sum(len(w) for w in s.split() if w[0] != '{letter}') + {k}", lambda s: sum(len(w) for w in s.split() if w[0] != letter) + k),
    ))  # fmt: skip
    texts = [" ".join(rng.sample(["stone", "river", "apple", "engine", "north", "tiger", "radio", "salt", "omen"], rng.randint(3, 6))) for _ in range(3)]  # fmt: skip
    return {"q": f"The input is one line of text. Print {what}.", "inputs": [t + "\n" for t in texts],
            "outputs": [str(run(t)) for t in texts], "solution": f"s = input()\nprint({body})"}  # fmt: skip
