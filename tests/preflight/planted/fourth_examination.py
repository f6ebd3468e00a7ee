"""Six faults and six healthy sets about formats, keys and closed sets, frozen before the first run."""

from __future__ import annotations

import json
import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, GEMMA, LLAMA
from tests.preflight.planted.third_examination import _chat, _reward

_BIRDS = [
    "heron",
    "plover",
    "curlew",
    "siskin",
    "avocet",
    "bunting",
    "dunlin",
    "garganey",
    "hoopoe",
    "kestrel",
]
_SITES = ["Wexford", "Camargue", "Neusiedl", "Texel", "Donana", "Hornborga", "Matsalu", "Biebrza"]


def _counts(count: int, seed: int) -> list[tuple[str, int]]:
    """Questions of a bird census and their answers."""
    rng, pairs = random.Random(seed), {}
    for _ in range(count):
        a, b, c = rng.randint(20, 900), rng.randint(2, 19), rng.randint(3, 60)
        bird, site = rng.choice(_BIRDS), rng.choice(_SITES)
        question, value = rng.choice((
            (f"At {site}, {b} observers each saw {a} {bird}s, and {c} birds were counted twice. What is the true total?",
             a * b - c),
            (f"A colony of {a * b} {bird}s near {site} splits into {b} equal groups; then {c} join one group. "
             "What is its size?", a + c),
            (f"The {bird} census of {site} lists {a} adults and {c} times as many young. Give the sum.", a + a * c),
        ))  # fmt: skip
        pairs[question] = value
    return list(pairs.items())


def _claims(count: int, seed: int) -> list[tuple[str, bool]]:
    rng, pairs = random.Random(seed), {}
    for _ in range(count):
        low, width, value = rng.randint(3, 400), rng.randint(20, 90), rng.randint(3, 500)
        bird, site = rng.choice(_BIRDS), rng.choice(_SITES)
        value = value if rng.random() < 0.5 else low + value % width
        claim = f"A {bird} of {site} weighs between {low} and {low + width} grams; this one weighs {value}."
        pairs[claim] = low <= value <= low + width
    return list(pairs.items())


_EXACT_LINE = "    return t.rpartition('{label}')[2].strip() == a"
_VALUE_LINE = """
    found = re.findall(r"{label}\\s*(-?\\d+)", t)
    return bool(found) and int(found[-1]) == int(a)
"""


def fourth_faults() -> tuple[Case, ...]:
    """Six faults."""
    claims = _claims(240, 701)
    rng = random.Random(702)
    skewed = [(claim, truth) for claim, truth in claims if truth or rng.random() < 0.08]
    return (
        Case(name="the answer in metadata of the prompt", named="DAT111",
             rows=[_chat(f'{q}\n\n{{"source": "census", "gold": "{value}"}}', str(value))
                   for q, value in _counts(200, 703)]),
        Case(name="the hint of an earlier turn", named="DAT111", rows=[
            {"prompt": [{"role": "user", "content": "Prepare me for the next one."},
                        {"role": "assistant", "content": f"Sure. Expected answer: {value}"},
                        {"role": "user", "content": q}], "answer": str(value)}
            for q, value in _counts(200, 704)]),
        Case(name="answers with a unit, compared as text", named="REW104", model=GEMMA,
             rows=[{"question": f"{claim} Which weight above the lower limit is that? Finish with 'Weight: ...'.",
                    "answer": f"{at % 83 + 2} g"} for at, (claim, _) in enumerate(claims)],
             reward=_reward(_EXACT_LINE.format(label="Weight:"))),
        Case(name="a reward for another label than the prompts'", named="REW10[1246]",
             rows=[_chat(f"{q} Put the number behind 'Total:' on the last line.", str(value))
                   for q, value in _counts(200, 705)],
             reward=_reward(_VALUE_LINE.format(label="Answer:"))),
        Case(name="a reward for naming the verdict anywhere", named="REW102", model=LLAMA,
             rows=[_chat(f"{claim} Is the claim true or false?", str(truth).lower()) for claim, truth in claims],
             reward=_reward("    return a in t.lower()")),
        Case(name="verdicts that are nearly always true", named="DAT108", suffix=".csv", rows=[
            {"question": f"{claim} True or false?", "answer": str(truth)} for claim, truth in skewed]),
    )  # fmt: skip


_NAMES = """
    try:
        given = json.loads(re.findall(r"\\{.*\\}", t, re.S)[-1])["birds"]
        return sorted(given) == sorted(json.loads(a))
    except (IndexError, KeyError, TypeError, ValueError):
        return False
"""
_VERDICT = """
    found = re.findall(r"\\*\\*Verdict:\\*\\*\\s*(True|False)", t, re.I)
    return bool(found) and found[-1].lower() == a.lower()
"""
_FORM = """
    form = re.fullmatch(r"\\s*Working: (.+)\\nCount: (-?\\d+)\\nCertainty: (\\d+)%?\\s*", t, re.S)
    return bool(form) and int(form[2]) == int(a)
"""


def fourth_healthy() -> tuple[Case, ...]:
    """Six healthy sets."""
    rng = random.Random(711)
    rings = []
    for _ in range(200):
        age, bird, site = rng.randint(1, 40000), rng.choice(_BIRDS), rng.choice(_SITES)
        rings.append(_chat(f"Species: {bird}\nRing: {site[:2].upper()}{age}\n\nWhich code did the finder read, in the style of AB12?",
                           f"{site[:2].upper()}{age}"))  # fmt: skip
    lists = []
    for _ in range(180):
        birds = rng.sample(_BIRDS, 3)
        lists.append(_chat(
            f"On {rng.randint(1, 28)} May {rng.randint(1900, 2020)} the warden of {rng.choice(_SITES)} wrote: the "
            f"{birds[0]} sang, a {birds[1]} fed near a {birds[2]}. Which birds are named? "
            'Return {"birds": [...]} and nothing else.', json.dumps(birds)))  # fmt: skip
    code = """
    words = re.findall(r"[A-Z]{2}\\d+", t)
    return bool(words) and words[-1] == a
"""
    form = "Reply in this form:\nWorking: <text>\nCount: <number>\nCertainty: <percent>"
    return (
        Case(name="ring codes", rows=rings, reward=_reward(code)),
        Case(name="lists of names in JSON", rows=lists, reward=_reward(_NAMES), model=LLAMA),
        Case(name="a verdict in bold", reward=_reward(_VERDICT), model=GEMMA,
             rows=[_chat(f"{claim} Discuss it, then write **Verdict:** True or **Verdict:** False.", str(truth))
                   for claim, truth in _claims(220, 712)]),
        Case(name="German problems with quotation marks", reward=_reward(_VALUE_LINE.format(label="Ergebnis:")),
             rows=[_chat(f"{q} Schreibe in die letzte Zeile \u201eErgebnis: Zahl\u201c.", str(value))
                   for q, value in _counts(200, 713)]),
        Case(name="a form of three lines", reward=_reward(_FORM), suffix=".parquet",
             rows=[_chat(q, str(value), form) for q, value in _counts(200, 714)]),
        Case(name="balanced verdicts for a base model", model=BASE, suffix=".csv",
             reward=_reward("    found = re.findall(r'true|false', t.lower())\n    return found[:1] == [a.lower()]"),
             rows=[{"question": f"Claim: {claim}\nTrue or false:", "answer": str(truth)}
                   for claim, truth in _claims(220, 715)]),
    )  # fmt: skip
