"""Ten healthy sets of the tenth examination, which look odd for honest reasons."""

from __future__ import annotations

import json
import random

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted import tenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, GEMMA, LLAMA
from tests.preflight.planted.seventh_data import TAGS, TEXT, VALUE
from tests.preflight.planted.tables import Row


def tenth_healthy() -> tuple[Case, ...]:
    """Ten sets without a fault."""
    sums = [
        {"question": f"{a} + {b} * {c} =", "answer": str(a + b * c)}
        for a, b, c in _triples(200, 2101)
    ]
    turkish = [
        {"question": f"{n} numaralı sipariş: {a} kutuda {b} elma var, {c} elma çürük. Kaç sağlam "
                     "elma var? Yanıtı <answer> etiketleri arasında ver.", "answer": str(a * b - c)}
        for n, (a, b, c) in enumerate(_triples(200, 2102))
    ]  # fmt: skip
    arabic = [
        t.user(f"الطلب {n}: في المخزن {a} صندوقا وفي كل صندوق {b} كتابا. كم كتابا في المخزن؟ ضع "
               "الجواب بين <answer> و </answer>.", str(a * b))
        for n, (a, b, _) in enumerate(_triples(200, 2103))
    ]  # fmt: skip
    return (
        Case(name="sums without a word", rows=sums, model=BASE, suffix=".csv",
             reward=t.each("return _number(t) is not None and _number(t) == float(a)")),
        Case(name="minus one for a wrong answer, zero for a right one", model=LLAMA,
             rows=[t.user(q + TAGS, a) for q, a in u.notes(180, 2104)],
             reward=t.each("return 0.0 if (_tagged(t) or '').upper() == a else -1.0")),
        Case(name="a ranking by Kendall's tau", rows=_rankings(160, 2105), reward=t.each("""
given, wanted = (_tagged(t) or "").split(), a.split()
if sorted(given) != sorted(wanted):
    return 0.0
at = [given.index(one) for one in wanted]
pairs = [(i, j) for i in range(len(at)) for j in range(i)]
return sum((at[i] > at[j]) for i, j in pairs) / len(pairs)
""")),
        Case(name="instructions that a program verifies", rows=_constraints(200, 2106),
             reward=f"""{t.HEAD}
def score(completions, constraint, **kwargs):
    rewards = []
    for c, given in zip(completions, constraint):
        given, words = json.loads(given), _text(c).split()
        rewards.append(float(len(words) <= given["most"] and given["word"] in _text(c).lower()
                             and len(words) >= 3))
    return rewards
"""),
        Case(name="estimates by their relative distance", model=GEMMA,
             rows=[t.user(q + TAGS, str(a)) for q, a in u.doses(180, 2107)], reward=t.each("""
given = _number(_tagged(t))
return 0.0 if given is None else math.exp(-5 * abs(given - float(a)) / abs(float(a)))
""")),
        Case(name="Turkish word problems", rows=turkish, suffix=".csv", reward=t.each(VALUE)),
        Case(name="Arabic word problems", rows=arabic, model=LLAMA, reward=t.each(VALUE)),
        Case(name="reverse complements", rows=[t.user(q + TAGS, a) for q, a in u.strands(170, 2108)],
             reward=t.each("return (_tagged(t) or '').upper() == a")),
        Case(name="a passage for five questions", rows=_shared(2109), model=LLAMA,
             reward=t.each(TEXT)),
        Case(name="squares of a chess board in verl's layout", suffix=".parquet",
             rows=[t.verl_row(q + TAGS, a, "chess/rooks", at)
                   for at, (q, a) in enumerate(u.squares(190, 2110))],
             reward=t.verl_each("return (_tagged(t) or '').lower() == a")),
    )  # fmt: skip


def _triples(count: int, seed: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    return [(rng.randint(12, 99), rng.randint(3, 60), rng.randint(1, 11)) for _ in range(count)]


def _rankings(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        cities = rng.sample(("Quito", "Perth", "Turin", "Accra", "Hanoi", "Malmo"), 5)
        people = rng.sample(range(50, 999), 5)
        text = ", ".join(f"{city} has {n} members" for city, n in zip(cities, people, strict=True))
        order = [city for _, city in sorted(zip(people, cities, strict=True), reverse=True)]
        rows.append(t.user(f"Club {at}: {text}. Order the cities from most to fewest members, with "
                           f"blanks between them.{TAGS}", " ".join(order)))  # fmt: skip
    return rows


def _constraints(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for at in range(count):
        word, most = rng.choice(u.PEOPLE).lower(), rng.randint(12, 60)
        rows.append({
            "prompt": [{"role": "user", "content": f"Write letter {at} to the editor with at most "
                        f"{most} words. It must contain the name {word.title()}."}],
            "constraint": json.dumps({"word": word, "most": most}),
        })  # fmt: skip
    return rows


def _shared(seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for passage in range(36):
        names = rng.sample(u.PEOPLE, 5)
        jobs = dict(zip(("cook", "pilot", "nurse", "smith", "judge"), names, strict=True))
        text = " ".join(f"{name} works as a {job}." for job, name in jobs.items())
        rows += [
            t.user(f"Village {passage}. {text} Who is the {job}?{TAGS}", name)
            for job, name in jobs.items()
        ]
    return rows
