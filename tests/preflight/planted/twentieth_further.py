"""Twelve further sound sets, written after the corrections for the 48 and before their own run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.nineteenth_tables import chat
from tests.preflight.planted.tables import Row
from tests.preflight.planted.twentieth_further_rewards import (
    BRIER,
    CHECKED,
    CSV,
    DEVANAGARI,
    JACCARD,
    LIGHTS,
    OVERLONG,
    RANKING,
    ROMAN,
    RULES,
    TARGETS,
    YAML,
)
from tests.preflight.planted.twentieth_texts import rows

_WHO = ("Anouk", "Benat", "Carmel", "Devi", "Eero", "Fatou", "Gero", "Hilde", "Ismail", "Jonas", "Keiko", "Lale")  # fmt: skip
_WHERE = ("Brest", "Cadiz", "Delft", "Espoo", "Faro", "Graz", "Hilo", "Imola", "Jena", "Kiel")
_WHAT = ("chairs", "ovens", "pumps", "violins", "kites", "helmets", "radios", "ladders", "sofas", "clocks")  # fmt: skip


def _ranking(rng: random.Random, _: int) -> Row:
    item = rng.choice(_WHAT)
    texts = [
        (3, f"{item.title()} are repaired in {rng.choice(_WHERE)} for {rng.randint(10, 90)} euros within {rng.randint(2, 9)} days."),
        (2, f"A shop in {rng.choice(_WHERE)} repairs {item} on request."), (1, f"{item.title()} were invented {rng.randint(50, 400)} years ago."),
        (0, f"The harbor of {rng.choice(_WHERE)} freezes in some winters."),
    ]  # fmt: skip
    rng.shuffle(texts)
    listed = "\n".join(f"[{at}] {text}" for at, (_, text) in enumerate(texts, 1))
    return {
        "prompt": chat(f"Query: what does it cost to repair {item}?\n{listed}\n\nRank the passages by relevance. Explain, then end with a line such as 'Ranking: [2] > [1] > [4] > [3]'."),
        "relevance": [grade for grade, _ in texts],
        "best": " > ".join(f"[{at}]" for _, at in sorted(((-grade, at) for at, (grade, _) in enumerate(texts, 1)))),
    }  # fmt: skip


def _yaml(rng: random.Random, _: int) -> Row:
    name, port, copies = f"{rng.choice(_WHAT)}-{rng.choice(_WHERE).lower()}", rng.randint(1024, 9999), rng.randint(1, 9)  # fmt: skip
    tls = rng.random() < 0.5
    gold = f"name: {name}\nport: {port}\nreplicas: {copies}\ntls: {str(tls).lower()}"
    text = f"The service {name} listens on port {port}, runs {copies} times and {'uses' if tls else 'does not use'} TLS."
    return {"prompt": chat(f"{text}\nWrite its settings as YAML in a ```yaml block with the keys name, port, replicas and tls."), "settings": gold}  # fmt: skip


_SIGNS = {"fire": "It smells of smoke.", "water": "The floor is wet.", "noise": "A loud hum is heard.", "cold": "The room is freezing.", "power": "The lights are out."}  # fmt: skip


def _labels(rng: random.Random, at: int) -> Row:
    chosen = rng.sample(sorted(_SIGNS), rng.randint(1, 3))
    text = f"Report {at} from {rng.choice(_WHERE)}, {rng.choice(_WHO)}: {' '.join(_SIGNS[each] for each in chosen)}"
    return {
        "prompt": chat(f"{text}\nWhich alarms apply? Choose from cold, fire, noise, power, water. Think, then list them in any order between <alarms> and </alarms>, separated by commas."),
        "alarms": ", ".join(chosen),
    }  # fmt: skip


def _checked(rng: random.Random, _: int) -> Row:
    who, item = rng.choice(_WHO), rng.choice(_WHAT)
    a, b, c = rng.randint(12, 90), rng.randint(3, 40), rng.randint(2, 11)
    wrong = a * b + c if rng.random() < 0.5 else a * b - c + 10
    return {
        "prompt": [
            {"role": "user", "content": f"{who} makes {a} {item} a day for {b} days; {c} of them break. How many are left?"},
            {"role": "assistant", "content": f"I multiply and correct for the broken ones. My result is {wrong}."},
            {"role": "user", "content": "Check your solution step by step and correct it if necessary. Finish with \\boxed{N}."},
        ],
        "answer": str(a * b - c),
    }  # fmt: skip


def _hindi(rng: random.Random, _: int) -> Row:
    a, b, c = rng.randint(11, 98), rng.randint(11, 98), rng.randint(2, 10)
    name = rng.choice(("रमेश", "सीता", "अमित", "कविता", "मोहन", "गीता"))
    thing = rng.choice(("आम", "किताबें", "कलम", "दीये", "पतंगें"))
    text = f"{name} के पास {a} {thing} हैं। वह {b} और खरीदता है और {c} बाँट देता है। अब कितने {thing} बचे? सोचकर उत्तर 'उत्तर: संख्या' के रूप में अंत में लिखें।"
    return {"prompt": chat(text), "answer": str(a + b - c)}


def _dapo(rng: random.Random, at: int) -> Row:
    a, b, c = rng.randint(5, 99), rng.randint(5, 60), rng.randint(7, 97)
    text, result = (
        (f"Let $a_n = {a}n + {b}$. Find the remainder of $a_1 + a_2 + \\dots + a_{{{c}}}$ divided by $1000$.", sum(a * n + b for n in range(1, c + 1)) % 1000),
        (f"How many lattice points $(x, y)$ satisfy $0 \\le x \\le {a}$ and $0 \\le y \\le {b + c}$?", (a + 1) * (b + c + 1)),
        (f"The positive integer $n$ has remainder ${b % 5}$ modulo $5$ and remainder ${c % 7}$ modulo $7$. Find the least such $n$ above ${a}$.", next(n for n in range(a + 1, a + 40) if n % 5 == b % 5 and n % 7 == c % 7)),
    )[at % 3]  # fmt: skip
    ask = "Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    return {
        "data_source": "math_dapo", "prompt": chat(f'{ask}{text}\n\nRemember to put your answer on its own line after "Answer:".'), "ability": "MATH",
        "reward_model": {"style": "rule-lighteval/MATH_v2", "ground_truth": str(result)}, "extra_info": {"index": f"{at:08x}"},
    }  # fmt: skip


def _target(rng: random.Random, at: int) -> Row:
    who, town, year = rng.choice(_WHO), rng.choice(_WHERE), rng.randint(1650, 1980)
    work = f"The {rng.choice(('Silent', 'Golden', 'Broken', 'Last', 'Hidden'))} {rng.choice(_WHAT).title()}"
    question, targets = rng.choice((
        (f"who wrote {work} in {year}", [f"{who} {town}", f"{who[0]}. {town}"]),
        (f"in which town was {who}, author of {work}, born in {year}", [town, f"{town} city"]),
        (f"when did {who} of {town} publish {work}", [str(year), f"the year {year}"]),
    ))  # fmt: skip
    ask = "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new information. You can call a search engine by <search> query </search>, and it returns results between <information> and </information>. If no further knowledge is needed, give the answer inside <answer> and </answer> without detailed illustrations. For example, <answer> Beijing </answer>. Question: "
    return {
        "data_source": "nq", "prompt": chat(f"{ask}{question}?"), "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": targets}}, "extra_info": {"index": at, "split": "train"},
    }  # fmt: skip


def _rules(rng: random.Random, _: int) -> Row:
    who, item = rng.choice(_WHO), rng.choice(_WHAT)
    word = rng.choice(("lantern", "winter", "promise", "river", "ladder"))
    words, end = rng.randint(30, 120), rng.choice(("Is there anything else?", "Thank you for reading.", "That is all."))  # fmt: skip
    given = {"min_words": words, "keyword": word, "end": end}
    return {
        "prompt": chat(f"Write a letter to {who} about {item}. Use at least {words} words, use the word '{word}' at least twice, and end with the sentence \"{end}\""),
        "constraints": json.dumps(given),
    }  # fmt: skip


_VALUES = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


def _roman(rng: random.Random, _: int) -> Row:
    number = rng.randint(40, 3900)
    left, text = number, ""
    for value, sign in _VALUES:
        text += sign * (left // value)
        left %= value
    return {"prompt": chat(f"Write {number} as a Roman numeral. Go digit by digit, then finish with 'Numeral: ' and the numeral."), "numeral": text}  # fmt: skip


def _table(rng: random.Random, _: int) -> Row:
    lines = [(rng.choice(_WHO), rng.choice(_WHERE), rng.randint(2, 99)) for _ in range(rng.randint(2, 4))]  # fmt: skip
    html = "<table>" + "".join(f"<tr><td>{a}</td><td>{b}</td><td>{c}</td></tr>" for a, b, c in lines) + "</table>"  # fmt: skip
    gold = "\n".join(["name,town,count", *(f"{a},{b},{c}" for a, b, c in lines)])
    return {"prompt": chat(f"Turn this HTML into CSV with the header name,town,count. Put the CSV into a ```csv block.\n\n{html}"), "csv": gold}  # fmt: skip


def _lights(rng: random.Random, _: int) -> Row:
    while True:
        presses = sorted(rng.sample(range(9), rng.randint(1, 3)))
        grid = [0] * 9
        for at in presses:
            for other in range(9):
                near = abs(at // 3 - other // 3) + abs(at % 3 - other % 3) <= 1
                grid[other] ^= near
        if any(grid):
            break
    shown = "\n".join("".join("🟨" if grid[3 * r + c] else "⬛" for c in range(3)) for r in range(3))  # fmt: skip
    return {
        "prompt": chat(f"Lights Out: pressing a cell switches it and its neighbors. Yellow cells are on.\n\n{shown}\n\nCells are numbered 1 to 9 by rows. Which cells must be pressed to switch all lights off? Reason, then give the numbers as a JSON list in <press> tags, such as <press>[1, 5]</press>, in any order."),
        "grid": grid, "presses": json.dumps([at + 1 for at in presses]),
    }  # fmt: skip


def _brier(rng: random.Random, at: int) -> Row:
    who, other = rng.sample(_WHO, 2)
    a, b, c, d = (rng.randint(12, 99) for _ in range(4))
    yes = a * b > c * d
    return {
        "prompt": chat(f"Round {at}: {who} stacks {a} rows of {b} bricks, {other} stacks {c} rows of {d}. Does {who} use more bricks? Think, then write the answer between <answer> and </answer> as yes or no, and how sure you are between <confidence> and </confidence> as a number from 0 to 1."),
        "answer": "yes" if yes else "no",
    }  # fmt: skip


def further_sets() -> Iterator[Case]:
    """Twelve sets without a mistake."""
    yield Case(name="rankings of passages by NDCG", rows=rows(300, 9701, _ranking), reward=RANKING)
    yield Case(name="settings in YAML", rows=rows(300, 9702, _yaml), reward=YAML, model=LLAMA)
    yield Case(name="alarms by the Jaccard index", rows=rows(300, 9703, _labels), reward=JACCARD, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="a solution to check in the dialog", rows=rows(300, 9704, _checked), reward=CHECKED)  # fmt: skip
    yield Case(name="Hindi problems, digits of both scripts", rows=rows(300, 9705, _hindi), reward=DEVANAGARI, model=GEMMA)  # fmt: skip
    yield Case(name="DAPO's layout with an overlong penalty", rows=rows(400, 9706, _dapo), reward=OVERLONG, suffix=".parquet", framework="verl", run_config=verl())  # fmt: skip
    yield Case(name="Search-R1's targets", rows=rows(300, 9707, _target), reward=TARGETS, suffix=".parquet", framework="verl", run_config=verl())  # fmt: skip
    yield Case(name="letters with constraints in JSON", rows=rows(250, 9708, _rules), reward=RULES)
    yield Case(name="Roman numerals", rows=rows(300, 9709, _roman), reward=ROMAN, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="HTML tables as CSV", rows=rows(240, 9710, _table), reward=CSV)
    yield Case(name="Lights Out with colored squares", rows=rows(120, 9711, _lights), reward=LIGHTS)
    yield Case(name="answers with a confidence by the Brier score", rows=rows(300, 9712, _brier), reward=BRIER)  # fmt: skip
