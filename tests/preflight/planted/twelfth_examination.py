"""A fifteenth set of inputs: 12 faults and 5 healthy sets, labelled before their first run.

The first run named 3 of 12 by the labels, 2 of 12 graded by hand: an advice to ignore the case was
not enough where accents were missing, too. Of the healthy sets, 2 had no alarm; the other three
alarms were mistakes of the checks. One fault, answers in another language than the one
that prompts ask for, is not named and was removed afterwards, so 11 are left.

The author had corrected the checks for the eleventh examination.
"""

from __future__ import annotations

import random
import unicodedata

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted import tenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.seventh_data import TAGS, TEXT, VALUE
from tests.preflight.planted.tables import Row

_CLERKS = [
    "Jim\u00e9nez",
    "M\u00fcller",
    "Dvo\u0159\u00e1k",
    "\u015eahin",
    "Bj\u00f6rk",
    "Gar\u00e7on",
    "Nu\u00f1ez",
    "Kr\u00f3l",
]
_DISHES = ["soup", "dumplings", "salad", "lamb", "pudding", "bread", "cheese", "figs", "trout"]


def twelfth_faults() -> tuple[Case, ...]:
    """Eleven faults."""
    return (*_answers(), *_prompts(), *_rewards())


def _answers() -> tuple[Case, ...]:
    shares = _shares(180, 2401)
    mixed = [
        t.user(q + TAGS, f"{a}/{b}" if at % 3 else f"{a / b:.4g}")
        for at, (q, a, b) in enumerate(shares)
    ]
    floats = [
        t.user(q + TAGS, f"np.float64({a:.2f})" if at % 3 == 0 else f"{a:.2f}")
        for at, (q, a) in enumerate(u.exchange(180, 2402))
    ]
    menus = [t.user(q + TAGS, a.replace("\n", "\\n")) for q, a in _menus(150, 2403)]
    return (
        Case(name="fractions and decimals mixed, compared as text", rows=mixed,
             named="DAT126|DAT112|REW10[14]", advised="form|value|decimal",
             reward=t.each("return (_tagged(t) or '').strip() == a")),
        Case(name="representations of numpy in a third of the answers", rows=floats,
             named="DAT11[27]|DAT126|REW101", reward=t.each(VALUE)),
        Case(name="line breaks of answers written as a backslash and an n", rows=menus,
             named="DAT11[27]|DAT126", reward=t.each("return (_tagged(t) or '') == a")),
        Case(name="answers without accents and capitals", rows=_clerks(180, 2404),
             named="DAT11[37]|DAT126|REW104", advised="case|accent|form|prompt",
             reward=t.each("return _tagged(t) == a")),
        Case(name="a number of the prompt in place of the result", rows=_stock(200, 2405),
             named="DAT1(11|13|23)", reward=t.each(VALUE)),
    )  # fmt: skip


def _prompts() -> tuple[Case, ...]:
    silent = [t.user(f"{q}{TAGS} /no_think", str(a)) for q, a in u.doses(160, 2406)]
    twice = [
        t.user(f"{passage}\n\n{passage}\n\n{question}{TAGS}", answer)
        for passage, question, answer in u.passages(160, 2408)
    ]
    return (
        Case(name="thinking is switched off, the reward wants a thought", rows=silent,
             named="REW106|DAT105", advised="think|thought", reward=t.each("""
if not re.search(r"<think>.{5,}</think>", t, re.S):
    return 0.0
return _number(_tagged(t)) == float(a)
""")),
        Case(name="each passage twice in its prompt", rows=twice, named="DAT1(07|17)",
             advised="twice|repeat", reward=t.each(TEXT)),
    )  # fmt: skip


def _rewards() -> tuple[Case, ...]:
    doses = [t.user(q + TAGS, str(a)) for q, a in u.doses(160, 2409)]
    menus = [t.user(q + TAGS, a) for q, a in _menus(150, 2410)]
    money = [t.user(q + TAGS, f"{a:,.2f}") for q, a in u.exchange(160, 2411)]
    prices = [t.user(q + TAGS, f"{a:.2f}") for q, a in u.exchange(160, 2412)]
    return (
        Case(name="the response must end with the end token", rows=doses,
             named="REW10[16]", advised="end|token|parser|format", reward=t.each("""
found = re.search(r"<answer>(.*?)</answer>\\s*<\\|im_end\\|>$", t, re.S)
return bool(found) and _number(found[1]) == float(a)
""")),
        Case(name="only the first line is compared", rows=menus, named="REW102", reward=t.each("""
return (_tagged(t) or "").split("\\n")[0] == a.split("\\n")[0]
""")),
        Case(name="an exception pays nine tenths", rows=money, named="REW102", reward=t.each("""
given = _number(_tagged(t))
if given is None:
    return 0.0
try:
    return given == float(a)
except ValueError:
    return 0.9
""")),
        Case(name="the answer is used as a pattern", rows=prices, named="REW102",
             reward=t.each("return re.search(a, _tagged(t) or '') is not None")),
    )  # fmt: skip


def twelfth_healthy() -> tuple[Case, ...]:
    """Five sets without a fault."""
    fractions = [t.user(q + TAGS, f"{a}/{b}") for q, a, b in _shares(160, 2501)]
    some_system = [
        t.user(q + TAGS, a, system="You are a music teacher." if at % 2 else "")
        for at, (q, a) in enumerate(u.notes(160, 2502))
    ]
    return (
        Case(name="places by their distance, in Portuguese", rows=_places(150, 2503), model=LLAMA,
             reward=t.each("""
found = re.findall(r"-?\\d+(?:\\.\\d+)?", _tagged(t) or "")
wanted = [float(x) for x in a.split(",")]
if len(found) != 2:
    return -3.0
return -math.tanh(math.dist(map(float, found), wanted) / 20)
""")),
        Case(name="menus of several lines in any order", rows=[
            t.user(q + TAGS, a) for q, a in _menus(150, 2504)], reward=t.each("""
def lines(x):
    return sorted(each.strip().lower() for each in (x or "").strip().split("\\n"))
return lines(_tagged(t)) == lines(a)
""")),
        Case(name="fractions by value", rows=fractions, model=GEMMA, reward=t.each("""
from fractions import Fraction
try:
    return Fraction((_tagged(t) or "").strip()) == Fraction(a)
except (ValueError, ZeroDivisionError):
    return 0.0
""")),
        Case(name="a system message in half of the rows", rows=some_system,
             reward=t.each("return (_tagged(t) or '').strip().upper() == a")),
        Case(name="permits, more of them granted", rows=_permits(240, 2505), suffix=".parquet",
             reward=t.each("return (_tagged(t) or '').strip().lower() == a")),
    )  # fmt: skip


def _shares(count: int, seed: int) -> list[tuple[str, int, int]]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        b = rng.choice((3, 7, 9, 11, 13))
        a, size = rng.randint(1, b - 1), rng.randint(4, 30)
        rows.append((f"Field {number} has {b * size} rows, and {a * size} of them are beans. Which "
                     "part of the rows is beans, in lowest terms?", a, b))  # fmt: skip
    return rows


def _menus(count: int, seed: int) -> list[tuple[str, str]]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        dishes = rng.sample(_DISHES, 3)
        prices = rng.sample(range(3, 40), 3)
        text = ", ".join(f"{dish} for {price}" for dish, price in zip(dishes, prices, strict=True))
        lines = [f"{price} {dish}" for price, dish in sorted(zip(prices, dishes, strict=True))]
        rows.append((f"Table {number} orders {text}. Write price and dish in three lines, from cheap "
                     "to dear.", "\n".join(lines)))  # fmt: skip
    return rows


def _clerks(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        one, other = rng.sample(_CLERKS, 2)
        code = rng.randint(10, 99)
        plain = unicodedata.normalize("NFKD", f"{one} {code}").encode("ascii", "ignore").decode()
        rows.append(t.user(f"Deed {number} was written by {one} {code} and sealed by {other}. Copy "
                           f"the name and number of the writer.{TAGS}", plain.lower()))  # fmt: skip
    return rows


def _stock(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        boxes, each, sold = rng.randint(12, 90), rng.randint(5, 48), rng.randint(3, 60)
        right = boxes * each - sold
        rows.append(t.user(f"Depot {number} has {boxes} crates of {each} lamps. It sells {sold} "
                           f"lamps. How many lamps remain?{TAGS}",
                           str(sold if rng.random() < 0.4 else right)))  # fmt: skip
    return rows


def _places(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        x, y = rng.randint(-80, 80), rng.randint(-170, 170)
        east, north = rng.randint(1, 9), rng.randint(1, 9)
        rows.append(t.user(f"O navio {number} est\u00e1 em {x}, {y} e navega {north} graus para norte e "
                           f"{east} graus para leste. Onde est\u00e1 agora? Responda com dois n\u00fameros "
                           "entre <answer> e </answer>.", f"{x + north},{y + east}"))  # fmt: skip
    return rows


def _permits(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        height, limit = rng.randint(4, 20), rng.randint(8, 16)
        near = rng.random() < 0.3
        granted = height <= limit and not (near and height > 12)
        rows.append(t.user(f"Request {number}: a house of {height} m where {limit} m are allowed"
                           f"{', next to a church' if near else ''}. Next to a church 12 m are the "
                           f"most. Is it granted? Reply with yes or no.{TAGS}",
                           "yes" if granted else "no"))  # fmt: skip
    return rows
