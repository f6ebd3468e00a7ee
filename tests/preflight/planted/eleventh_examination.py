"""A fourteenth set of inputs: 12 faults and 5 healthy sets, labelled before their first run.

The first run named 1 of 12, by the labels and graded by hand. Of the healthy sets, 3 had no alarm:
one had a quarter of equal answers, and one plant had no column of prompts and was corrected.

The author had corrected the checks for the tenth examination.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted import tenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE, GEMMA, LLAMA
from tests.preflight.planted.seventh_data import BOX, TAGS, TEXT, VALUE
from tests.preflight.planted.tables import Row

_MINERALS = ["beryl", "galena", "topaz", "zircon", "garnet", "gypsum", "pyrite", "quartz"]


def eleventh_faults() -> tuple[Case, ...]:
    """Twelve faults."""
    return (*_tables(), *_prompts(), *_rewards())


def _tables() -> tuple[Case, ...]:
    parcels = _parcels(200, 2201)
    receivers = sorted(name for _, name in parcels)
    ordered = [t.user(q + TAGS, a) for (q, _), a in zip(parcels, receivers, strict=True)]
    return (
        Case(name="the column of answers was sorted alone", rows=ordered, named="DAT113",
             reward=t.each(TEXT)),
        Case(name="options shuffled after the key was made", rows=_minerals(180, 2202),
             named="DAT113", reward=t.each(TEXT)),
        Case(name="products that exceed 32 bits", rows=_distances(180, 2203),
             named="DAT11[23]|DAT126|overflow", reward=t.each(VALUE)),
        Case(name="codes without their leading zeros", rows=_codes(180, 2204), suffix=".csv",
             named="DAT11[23]|DAT126|zero", reward=t.each("return _tagged(t) == str(a)")),
    )  # fmt: skip


def _prompts() -> tuple[Case, ...]:
    doses = u.doses(180, 2205)
    halves = [t.user(q + (BOX if at % 2 else TAGS), str(a)) for at, (q, a) in enumerate(doses)]
    lower = replace(
        CHATML, template=CHATML_TEMPLATE.replace("{{ m.content }}", "{{ m.content | lower }}")
    )
    tables = [
        t.user(("The table below lists the dose of each ward.\n\n"
                + ("" if at % 3 == 0 else f"| ward | mg |\n|---|---|\n| A | {a} |\n| B | {a + 7} |\n\n")
                + f"Sheet {at}: how many mg does ward B get?{TAGS}"), str(a + 7))
        for at, (_, a) in enumerate(doses)
    ]  # fmt: skip
    french = [
        t.user(f"Dossier {at}: {n} est-il divisible par {k} ? Répondez par oui ou non entre "
               "<answer> et </answer>.", "no" if n % k else "yes")
        for at, (n, k) in enumerate(_pairs(200, 2206))
    ]  # fmt: skip
    return (
        Case(name="half of the prompts ask for a box, the reward reads tags", rows=halves,
             named="REW10[146]", advised="format|ask|read", reward=t.each(VALUE)),
        Case(name="the template writes lower case", named="DAT119", advised="case|lower|chang",
             rows=[t.user(q + TAGS, a) for q, a in u.notes(150, 2207)], model=lower,
             reward=t.each(TEXT)),
        Case(name="the table below is missing in a third of the prompts", rows=tables,
             named="DAT11[0-9]", advised="table|missing", reward=t.each(VALUE)),
        Case(name="prompts ask for oui or non, answers are yes and no", rows=french,
             named="REW106|DAT126", reward=t.each(TEXT)),
    )  # fmt: skip


def _rewards() -> tuple[Case, ...]:
    doses = [t.user(q + TAGS, str(a)) for q, a in u.doses(160, 2208)]
    rates = [t.user(q + TAGS, f"{a:.2f}") for q, a in u.exchange(160, 2209)]
    names = [
        t.user(f"Which stone lies in drawer {at}, row {at * 7 % 31}?{TAGS}",
               [stone.title(), f"{stone} {at % 9}", f"a piece of {stone}"])
        for at, stone in enumerate(_MINERALS * 20)
    ]  # fmt: skip
    return (
        Case(name="a correct answer is worth its length", rows=doses, named="REW10[124]",
             advised="length|long|short", reward=t.each("""
return (_number(_tagged(t)) == float(a)) * min(1.0, len(t) / 1500)
""")),
        Case(name="decimals are dropped before the comparison", rows=rates, named="REW102",
             reward=t.each("""
given = _number(_tagged(t))
return given is not None and int(given) == int(float(a))
""")),
        Case(name="a judge that is seeded by the hash of the text", rows=doses, named="REW103",
             reward=t.each("""
noise = random.Random(hash(t)).random()
return 0.6 * (_number(_tagged(t)) == float(a)) + 0.4 * noise
""")),
        Case(name="only the first of several accepted answers counts", rows=names,
             named="REW10[146]", advised="accept|alternativ|all|list", reward=t.each("""
return (_tagged(t) or "").casefold() == a[0].casefold()
""")),
    )  # fmt: skip


def eleventh_healthy() -> tuple[Case, ...]:
    """Five sets without a fault."""
    both = [
        t.user(q + (BOX if at % 2 else TAGS), str(a))
        for at, (q, a) in enumerate(u.doses(180, 2301))
    ]
    return (
        Case(name="two formats, and the reward reads both", rows=both, model=LLAMA,
             reward=t.each("""
given = _tagged(t) or _boxed(t)
return _number(given) is not None and _number(given) == float(a)
""")),
        Case(name="a quarter of the questions has no answer in the passage",
             rows=_unanswerable(200, 2302), reward=t.each(TEXT)),
        Case(name="wages with overtime", rows=_wages(200, 2303), suffix=".csv",
             reward=t.each(VALUE)),
        Case(name="quantities in their own units", rows=_quantities(180, 2304), model=GEMMA,
             reward=t.each("""
def plain(x):
    found = re.search(r"(-?\\d+(?:\\.\\d+)?)\\s*([a-z]*)", (x or "").lower())
    return found and (float(found[1]), found[2])
given, wanted = plain(_tagged(t)), plain(a)
return bool(given) and given[0] == wanted[0] and given[1] in ("", wanted[1])
""")),
        # The first version had no time limit; its alarm, once programs were tried, was right.
        Case(name="short programs earn more", rows=_named_prompt(t.programs(60, 2305)), reward=f"""{t.HEAD}
import signal
def _stop(*_):
    raise TimeoutError
def score(completions, tests, **kwargs):
    signal.signal(signal.SIGALRM, _stop)
    rewards = []
    for c, given in zip(completions, tests):
        found = re.search(r"```python\\n(.*?)```", _text(c), re.S)
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        try:
            space = {{}}
            exec(found[1], space)
            for test in given:
                exec(test, space)
            rewards.append(1.0 - min(len(found[1]), 2000) / 10000)
        except BaseException:
            rewards.append(0.0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return rewards
"""),
    )  # fmt: skip


def _named_prompt(rows: list[Row]) -> list[Row]:
    return [{"prompt": [{"role": "user", "content": row["task"]}], **row} for row in rows]


def _pairs(count: int, seed: int) -> list[tuple[int, int]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        k = rng.choice((3, 4, 6, 7))
        n = rng.randint(30, 900)
        pairs.append((n * k if rng.random() < 0.35 else n, k))
    return pairs


def _parcels(count: int, seed: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(seed), []
    for number in range(count):
        sender, receiver = rng.sample(u.PEOPLE, 2)
        code = rng.randint(100, 999)
        pairs.append((f"Parcel {number}: {sender} sends {rng.randint(1, 30)} kg to {receiver}-{code} "
                      f"by rail. Who receives it?", f"{receiver}-{code}"))  # fmt: skip
    return pairs


def _minerals(count: int, seed: int) -> list[Row]:
    """The explanation names the right stone; the key is that of the order before the shuffle."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        options = rng.sample(_MINERALS, 4)
        right = rng.randrange(4)
        shown = rng.sample(options, 4)
        lines = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", shown, strict=True))
        rows.append({
            **t.user(f"Sample {number} weighs {rng.randint(5, 90)} g and scratches glass in test "
                     f"{rng.randint(1, 9)}. Which stone is it?\n{lines}\nReply with the letter."
                     f"{TAGS}", "ABCD"[right]),
            "explanation": f"The colour of the streak shows that it is {options[right]}.",
        })  # fmt: skip
    return rows


def _distances(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        speed, seconds = rng.randint(20000, 99000), rng.randint(9000, 90000)
        product = speed * seconds
        wrapped = (product + 2**31) % 2**32 - 2**31
        rows.append(t.user(f"Probe {number} flies {speed} metres a second for {seconds} seconds. How "
                           f"many metres is that?{TAGS}", str(wrapped)))  # fmt: skip
    return rows


def _codes(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        code = f"{rng.randint(1, 99999):05d}" if number % 3 else f"{rng.randint(1, 999):05d}"
        rows.append({
            "question": f"Letter {number} goes to {rng.choice(u.PEOPLE)}, {code} "
                        f"{rng.choice(('Ponce', 'Agawam', 'Nashua', 'Keene'))}, box "
                        f"{rng.randint(1, 90)}. Copy the postal code.{TAGS}",
            "answer": str(int(code)),
        })  # fmt: skip
    return rows


def _unanswerable(count: int, seed: int) -> list[Row]:
    rows = []
    for at, (passage, question, answer) in enumerate(u.passages(count, seed)):
        asked = f"Who paid for the survey number {at}?" if at % 4 == 0 else question
        rows.append(
            t.user(f"{passage}\n\n{asked} If the text does not say it, answer 'unknown'.{TAGS}",
                   "unknown" if at % 4 == 0 else answer)
        )  # fmt: skip
    return rows


def _wages(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        hours, wage = rng.randint(20, 55), rng.randint(9, 40) * 2
        pay = wage * hours + wage // 2 * max(hours - 40, 0)
        rows.append({
            "question": f"Sheet {number}: a clerk works {hours} hours for {wage} crowns an hour. "
                        "Hours above forty are paid one and a half times. How many crowns does she "
                        f"get?{TAGS}", "answer": str(pay),
        })  # fmt: skip
    return rows


def _quantities(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        speed, hours, litres = rng.randint(20, 130), rng.randint(2, 9), rng.randint(3, 12)
        question, answer = (
            (f"a car drives {hours} h at {speed} km/h. How far?", f"{speed * hours} km"),
            (f"a tank loses {litres} l an hour for {hours} h. How much?", f"{litres * hours} l"),
            (f"a lorry drives {speed * hours} km at {speed} km/h. How long?", f"{hours} h"),
        )[number % 3]
        rows.append(t.user(f"Trip {number}: {question}{TAGS}", answer))
    return rows
