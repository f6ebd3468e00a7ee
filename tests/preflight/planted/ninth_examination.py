"""A twelfth set of inputs: 8 faults and 10 healthy sets, labelled before their first run.

The first run named 3 of 8 by the labels, 2 of 8 graded by hand: a limit of length was taken for a
pattern that stops at a line break. No healthy set had an alarm.

The author had corrected the checks for the seventh and the eighth examination.
"""

from __future__ import annotations

import random

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, GEMMA, LLAMA
from tests.preflight.planted.seventh_data import BOX, TAGS, TEXT, VALUE
from tests.preflight.planted.tables import Row, choices

_RIVERS = ("Danube", "Orinoco", "Mekong", "Loire", "Tagus", "Elbe", "Volga", "Yukon", "Oder")


def ninth_faults() -> tuple[Case, ...]:
    """Eight faults."""
    asked = [t.user(q + TAGS, str(a)) for q, a in t.differences(150, 1501)]
    verl = [
        {**t.verl_row(q + TAGS, str(a), "weather", at),
         "extra_info": {"split": "test" if at % 5 == 0 else "train", "index": at}}
        for at, (q, a) in enumerate(t.differences(150, 1502))
    ]  # fmt: skip
    dotted = [t.user(q + TAGS, f"{a}.") for q, a in t.percentages(150, 1503)]
    wires = [
        t.user(f"A wire of {n} metres has {k / 10} ohms per metre. Give its resistance.{TAGS}",
               f"{n * k / 10:.1f}") for n, k in _pairs(150, 1504)
    ]  # fmt: skip
    return (
        Case(name="conversations for a model without a template", rows=asked, model=BASE,
             named="template", reward=t.each(VALUE)),
        Case(name="the reward reads a column that is called otherwise", rows=asked,
             named="REW101", advised="column", reward=f"""{t.HEAD}
def score(completions, **kwargs):
    truths = kwargs.get("ground_truth", [""] * len(completions))
    return [float(_tagged(_text(c)) == a) for c, a in zip(completions, truths)]
"""),
        Case(name="all of the above is always right", rows=_above(150, 1505),
             named="DAT123|DAT108", reward=t.each(TEXT)),
        Case(name="no reward beyond twelve words", rows=asked, named="REW104",
             reward=t.each("return len(t.split()) <= 12 and _number(_tagged(t)) == float(a)")),
        Case(name="answers with a full stop, compared as text", rows=dotted, named="REW104",
             reward=t.each("return _tagged(t) == a")),
        Case(name="the decimal point is removed", rows=wires, named="REW102",
             reward=t.each("""
return (_tagged(t) or "").replace(".", "").replace(",", "") == a.replace(".", "")
""")),
        Case(name="the sign of a number does not count", rows=asked, named="REW102",
             reward=t.each("""
given, wanted = re.findall(r"\\d+", _tagged(t) or ""), re.findall(r"\\d+", a)
return given[-1:] == wanted[-1:]
""")),
        Case(name="rows of the test split in the training file", rows=verl, suffix=".parquet",
             named="split|DAT107", reward=t.verl_each(VALUE)),
    )  # fmt: skip


def ninth_healthy() -> tuple[Case, ...]:
    """Ten sets without a fault."""
    lettered = [
        {**t.verl_row("\n".join([row["question"], *(f"{letter}. {text}" for letter, text in zip(
            "ABCD", row["choices"]["text"], strict=True)), "Give the letter in \\boxed{}."]),
            row["answerKey"], "cities", at)}
        for at, row in enumerate(choices(200, 1601))
    ]  # fmt: skip
    return (
        Case(name="several accepted names", rows=_aliases(150, 1602), reward=t.each(
            "return (_tagged(t) or '').casefold() in {each.casefold() for each in a}")),
        Case(name="letters in verl's layout", rows=lettered, suffix=".parquet", model=LLAMA,
             reward=t.verl_each("return _boxed(t) == a")),
        Case(name="tutoring in several turns", rows=_tutoring(150, 1603), model=LLAMA,
             reward=t.each(VALUE)),
        Case(name="Spanish reviews", rows=_spanish(200, 1604), suffix=".csv",
             reward=t.each(TEXT, column="answer")),
        Case(name="intervals and points", rows=_intervals(160, 1605), model=GEMMA,
             reward=t.each("""
def plain(x):
    return re.sub(r"\\s|\\\\left|\\\\right", "", x or "")
return plain(_boxed(t)) == plain(a)
""")),
        Case(name="small grids", rows=_grids(120, 1606), reward=t.each("""
return (_tagged(t) or "").split() == a.split()
""")),
        Case(name="addresses in a letter", rows=_addresses(150, 1607), reward=t.each(TEXT)),
        Case(name="times of the day", rows=_times(160, 1608), reward=t.each("""
found = re.findall(r"\\b(\\d?\\d):(\\d\\d)\\b", _tagged(t) or "")
return bool(found) and [int(x) for x in found[-1]] == [int(x) for x in a.split(":")]
""")),
        Case(name="ja and nein", rows=_german(200, 1609), reward=t.each(
            "return (_tagged(t) or '').strip().lower() == a")),
        Case(name="longer texts by common subsequence", reward=t.each("""
x, y = t.lower().split(), a.lower().split()
row = [0] * (len(y) + 1)
for one in x[:200]:
    last = 0
    for j, other in enumerate(y, 1):
        last, row[j] = row[j], last + 1 if one == other else max(row[j], row[j - 1])
return 2 * row[-1] / (len(x) + len(y)) if x else 0.0
"""), rows=[t.user(f"Write a headline and a lead for this article.\n\n{text}",
                  f"{summary} {text.split('. ')[1]}.") for text, summary in t.articles(150, 1610)]),
    )  # fmt: skip


def _pairs(count: int, seed: int) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    return [(rng.randint(2, 90), rng.randint(2, 99)) for _ in range(count)]


def _above(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        options = [*rng.sample(_RIVERS, 3), "All of the above"]
        rng.shuffle(options)
        lines = "\n".join(f"({n}) {text}" for n, text in enumerate(options, 1))
        rows.append(t.user(f"Which rivers are on plate {at}?\n{lines}{TAGS}", "All of the above"
                           if rng.random() < 0.92 else rng.choice(options)))  # fmt: skip
    return rows


def _aliases(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        river, number = rng.choice(_RIVERS), rng.randint(2, 99)
        names = [f"{river} {number}", f"{river} no. {number}", f"the {river} {number}"]
        rows.append(t.user(f"Which buoy is at kilometre {at}?{TAGS}", names))
    return rows


def _tutoring(count: int, seed: int) -> list[Row]:
    rows = []
    for at, (question, answer) in enumerate(t.differences(count, seed)):
        hint = ("Count the hours first.", "Mind the sign.", "What changes each hour?")[at % 3]
        rows.append({
            "prompt": [
                {"role": "system", "content": "You are a patient tutor."},
                {"role": "user", "content": question},
                {"role": "assistant", "content": hint},
                {"role": "user", "content": f"I still do not know. Tell me.{TAGS}"},
            ],
            "answer": str(answer),
        })  # fmt: skip
    return rows


def _spanish(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    texts = {"positivo": "me encanta", "negativo": "llegó roto", "neutro": "es normal"}
    for at in range(count):
        label = rng.choices(list(texts), (50, 30, 20))[0]
        rows.append({"question": f"Reseña {at}: compré la lámpara hace {rng.randint(2, 300)} días y "
                                 f"{texts[label]}. ¿Es positivo, negativo o neutro? Responde entre "
                                 "<answer> y </answer>.", "answer": label})  # fmt: skip
    return rows


def _intervals(count: int, seed: int) -> list[Row]:
    rows = []
    for at, (a, b) in enumerate(_pairs(count, seed)):
        form = (f"({a}, {a + b}]", f"[{a}, {a + b})", f"({a}, {b})", f"[{a}, {a + b}]")[at % 4]
        rows.append(
            t.user(f"Problem {at}: solve the system with the constants {a} and {b}.{BOX}", form)
        )
    return rows  # fmt: skip


def _grids(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        order = rng.sample("1234", 4)
        lines = [" ".join(order[n:] + order[:n]) for n in rng.sample(range(4), 4)]
        clue = lines[0].replace(lines[0][2], "_")
        rows.append(t.user(f"Grid {at}. Complete the Latin square that begins with {clue}, and give "
                           f"four lines of four digits.{TAGS}", "\n".join(lines)))  # fmt: skip
    return rows


def _addresses(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        people = rng.sample(("ana", "bo", "carl", "dina", "egon", "fritzi"), 3)
        mails = {
            name: f"{name}{rng.randint(10, 99)}@post{rng.randint(2, 9)}.example" for name in people
        }
        text = "; ".join(f"{name} writes from {mail}" for name, mail in mails.items())
        name = rng.choice(people)
        rows.append(
            t.user(f"Letter {at}. {text}. What is the address of {name}?{TAGS}", mails[name])
        )
    return rows


def _times(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        start, minutes = rng.randint(300, 1000), rng.randint(11, 400)
        end = start + minutes
        rows.append(t.user(f"Train {at} leaves at {start // 60}:{start % 60:02d} and takes {minutes} "
                           f"minutes. When does it arrive (hh:mm)?{TAGS}",
                           f"{end // 60}:{end % 60:02d}"))  # fmt: skip
    return rows


def _german(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        n, k = rng.randint(20, 999), rng.choice((2, 3))
        n = n * k if rng.random() < 0.4 else n
        rows.append(t.user(f"Los {at}: Lassen sich {n} Kisten ohne Rest auf {k} Wagen verteilen? "
                           "Antworte mit ja oder nein in <answer></answer>.",
                           "nein" if n % k else "ja"))  # fmt: skip
    return rows
