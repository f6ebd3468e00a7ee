"""Twelve faults and eight healthy sets of unusual kinds, written before any check was run on them.

Translation, SQL, tool calls, Chinese, chemistry, several turns, several answers, dates, programs,
intervals, completions for a base model, and very short prompts.
"""

from __future__ import annotations

import json
import random
from datetime import date, timedelta

from tests.preflight.planted import tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, CHATML, GEMMA, LLAMA

_TEXT = """
import json, re
def _text(completion):
    return completion if isinstance(completion, str) else completion[-1]["content"]
"""
_PORTS = [
    "Bristol",
    "Malaga",
    "Odense",
    "Trieste",
    "Stavanger",
    "Galway",
    "Ostend",
    "Piraeus",
    "Gdynia",
    "Riga",
]
_GOODS = [
    "timber",
    "wool",
    "copper",
    "salt",
    "barley",
    "marble",
    "resin",
    "amber",
    "cider",
    "slate",
]


def _reward(body: str, column: str = "answer") -> str:
    """A reward function for one completion `t` and its answer `a`."""
    return (
        f"{_TEXT}\ndef _score(t, a):\n{body}\n\ndef score(completions, {column}, **kwargs):\n"
        f"    return [float(_score(_text(c), a)) for c, a in zip(completions, {column})]\n"
    )


def _chat(question: str, answer: object, system: str = "", **columns: object) -> t.Row:
    messages = [{"role": "system", "content": system}] if system else []
    return {
        "prompt": [*messages, {"role": "user", "content": question}],
        "answer": answer,
        **columns,
    }


def _sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Dutch sentences and their translations."""
    rng = random.Random(seed)
    who = {"De schipper": "The skipper", "Mijn tante": "My aunt", "De leraar": "The teacher",
           "Een soldaat": "A soldier", "De molenaar": "The miller"}  # fmt: skip
    what = {"verkoopt": "sells", "zoekt": "looks for", "tekent": "draws", "bewaart": "keeps"}
    thing = {"een oude klok": "an old clock", "twee boten": "two boats", "het brood": "the bread",
             "een rode jas": "a red coat", "de sleutels": "the keys"}  # fmt: skip
    where = {"op de markt": "at the market", "bij het kanaal": "by the canal",
             "in de schuur": "in the barn", "achter de kerk": "behind the church"}  # fmt: skip
    pairs = set()
    while len(pairs) < count:
        parts = [rng.choice(list(part.items())) for part in (who, what, thing, where)]
        pairs.add((" ".join(part[0] for part in parts), " ".join(part[1] for part in parts)))
    return sorted(pairs, key=lambda _: rng.random())


def _queries(count: int, seed: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        port, goods, number = rng.choice(_PORTS), rng.choice(_GOODS), rng.randint(10, 9000)
        pairs.append(rng.choice((
            (f"Which ships carried more than {number} tons of {goods} to {port}?",
             f"SELECT ship FROM cargo WHERE goods = '{goods}' AND port = '{port}' AND tons > {number}"),
            (f"How many cargoes of {goods} arrived in {port} since the year {number}?",
             f"SELECT COUNT(*) FROM cargo WHERE goods = '{goods}' AND port = '{port}' AND year >= {number}"),
            (f"List all goods unloaded in {port} below a price of {number}.",
             f"SELECT DISTINCT goods FROM cargo WHERE port = '{port}' AND price < {number}"),
        )))  # fmt: skip
    return list(dict(pairs).items())  # no question twice


def _calls(count: int, seed: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        minutes, port = rng.randint(2, 600), rng.choice(_PORTS)
        name, arguments, question = rng.choice((
            ("set_timer", {"minutes": minutes}, f"Wake me in {minutes} minutes, please."),
            ("get_tide", {"port": port, "days": minutes % 14 + 1},
             f"I need the tides of {port} for the coming {minutes % 14 + 1} days."),
            ("book_berth", {"port": port, "length": minutes},
             f"Reserve a berth in {port} for a vessel of {minutes} feet."),
        ))  # fmt: skip
        pairs.append((question, json.dumps({"name": name, "arguments": arguments})))
    return list(dict(pairs).items())  # no question twice


def _chinese(count: int, seed: int) -> list[tuple[str, int]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        a, b, c = rng.randint(3, 70), rng.randint(3, 60), rng.randint(2, 30)
        name, thing = (
            rng.choice(("小王", "李老师", "奶奶", "张师傅")),
            rng.choice(("苹果", "铅笔", "瓷砖", "邮票")),
        )
        pairs.append(rng.choice((
            (f"{name}有{a}盒{thing}，每盒{b}个，又买来{c}个。现在一共有多少个{thing}？", a * b + c),
            (f"仓库里有{a * b}个{thing}，平均分给{a}个班，每个班再丢失{c % b}个，每班还剩多少个？", b - c % b),
            (f"{name}每天用掉{b}个{thing}，{a}天以后还剩{c}个。原来有多少个？", a * b + c),
        )))  # fmt: skip
    return list(dict(pairs).items())  # no question twice


def _chemistry(count: int, seed: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        grams, volume, molar = (
            rng.randint(2, 90),
            rng.randint(1, 40) * 50,
            rng.choice((40, 58, 98, 180)),
        )
        heat, factor = rng.randint(11, 95), rng.randint(2, 9)
        pairs.append(rng.choice((
            (f"{grams * molar} g of a compound (molar mass {molar} g/mol) are weighed in. Give the amount of substance.",
             str(grams)),
            (f"A sample of {volume} mL is diluted to {volume * factor} mL. State the dilution factor's volume of solvent.",
             str(volume * factor - volume)),
            (f"The mixture warms from {heat} \u00b0C to {heat + grams} \u00b0C within {volume} s. Find the rise in temperature.",
             str(grams)),
        )))  # fmt: skip
    return list(dict(pairs).items())  # no question twice


def _arrivals(count: int, seed: int) -> list[tuple[str, date]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        start = date(rng.randint(1700, 1990), rng.randint(1, 12), rng.randint(1, 28))
        days, port = rng.randint(2, 60), rng.choice(_PORTS)
        question = (
            f"A ship with {rng.choice(_GOODS)} leaves {port} on {start.day} {start:%B} {start.year} and "
            f"sails for {days} days. On which date does it arrive?"
        )
        pairs.append((question, start + timedelta(days=days)))
    return list(dict(pairs).items())  # no question twice


def _roots(count: int, seed: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        low, high = sorted(rng.sample(range(-40, 60), 2))
        pairs.append((f"Find all real solutions of $x^2 - ({low + high})x + ({low * high}) = 0$.",
                      f"{low}, {high}"))  # fmt: skip
    return list(dict(pairs).items())  # no question twice


def _intervals(count: int, seed: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        low, high, under = rng.randint(-20, 5), rng.randint(6, 40), rng.choice((2, 3, 5, 7))
        top = rng.choice([str(high), f"\\frac{{{high * under + 1}}}{{{under}}}"])
        opening, sign = rng.choice((("[", "\\le"), ("(", "<")))
        pairs.append((
            f"Determine the set of $x$ with ${low} {sign} x < {top}$ as an interval.",
            f"\\left{opening}{low}, {top}\\right)",
        ))  # fmt: skip
    return list(dict(pairs).items())  # no question twice


_ESSAYS = (
    "The {goods} trade of {port} began in {year}, when the first warehouse was built. Merchants "
    "from {other} settled near the quay, and their guild soon owned {count} ships. After the fire "
    "the council moved the market outside the walls, where it stayed for two generations.",
    "In {year} a storm closed the harbour of {port}. {count} vessels loaded with {goods} had to wait, "
    "and prices in {other} doubled. The harbour master wrote a report about it. It was never read, "
    "and the breakwater was built only much later by his grandson.",
    "Nobody in {port} remembered who had planted the trees. An old map from {year} shows {count} of "
    "them along the road to {other}. Carts with {goods} passed below, day and night, until the "
    "railway came. Then the road was quiet again and the trees grew taller than the tower.",
)


def _essays(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [
        rng.choice(_ESSAYS).format(
            goods=rng.choice(_GOODS), port=rng.choice(_PORTS), other=rng.choice(_PORTS),
            year=rng.randint(1650, 1900), count=rng.randint(3, 240),
        )
        for _ in range(count)
    ]  # fmt: skip


_RUNS = """
    code = t.split("```python")[-1].split("```")[0]
    try:
        exec(code, {})
    except Exception:
        return 0.0
    return 1.0
"""
_FIRST_BOX = """
    found = re.findall(r"\\\\boxed\\{(.*?)\\}", t)
    return bool(found) and found[-1].replace(" ", "") == a.replace(" ", "")
"""


def third_faults() -> tuple[Case, ...]:
    """Twelve faults."""
    dates = _arrivals(200, 508)
    talks = [_chat(question, answer) for question, answer in _calls(160, 506)]
    for row in talks[::4]:
        row["prompt"] += [{"role": "assistant", "content": row["answer"]}]
    colors = [("sky", "blue"), ("grass", "green"), ("coal", "black"), ("milk", "white")]
    short = [
        {"question": f"{thing} {n}", "answer": color} for n in range(40) for thing, color in colors
    ]
    short += [
        {"question": f"{thing} {n}", "answer": "red"} for n in range(9) for thing, _ in colors[:2]
    ]
    code = [{"prompt": [{"role": "user", "content": row["prompt"]}], "answer": row["code"],
             "test_list": row["test_list"]} for row in t.functions(120, 509)]  # fmt: skip
    return (
        Case(name="a translation compared letter by letter", named="REW104",
             rows=[_chat(f"Translate from Dutch: {nl}. Begin the last line with 'English:'.", en)
                   for nl, en in _sentences(160, 501)],
             reward=_reward("    return t.rpartition('English: ')[2] == a")),
        Case(name="SQL compared as text", named="REW104", model=LLAMA,
             rows=[_chat(f"Table cargo(ship, goods, port, tons, price, year). {q} Put the query into "
                         "a ```sql block.", sql) for q, sql in _queries(160, 502)],
             reward=_reward("    return t.partition('```sql\\n')[2].partition('\\n```')[0] == a")),
        Case(name="the expected call in the system message", named="DAT111",
             rows=[_chat(q, call, f"You call tools.\nexpected = {call}") for q, call in _calls(160, 503)]),
        Case(name="Chinese problems with their key", named="DAT111", suffix=".parquet",
             rows=[{"problem": f"{q}\n参考：{value}", "solution": str(value)}
                   for q, value in _chinese(200, 504)]),
        Case(name="chemistry without tolerance for units", named="REW104.*unit", model=GEMMA,
             rows=[_chat(q + " Write it in \\boxed{}.", a) for q, a in _chemistry(160, 505)],
             reward=_reward("    return re.findall(r'boxed\\{([^{}]*(?:\\{[^{}]*\\})?[^{}]*)\\}', t)[-1:] == [a]")),
        Case(name="a quarter of the conversations answered", named="DAT111", rows=talks),
        Case(name="several roots in one order only", named="REW104",
             rows=[_chat(f"{q} Finish with 'x = ...', separated by commas.", a) for q, a in _roots(160, 507)],
             reward=_reward("    return t.rpartition('x =')[2].replace(' ', '').strip() == a.replace(' ', '')")),
        Case(name="dates shifted by one row", named="DAT113", suffix=".csv", rows=[
            {"question": q, "answer": dates[at - 1][1].isoformat()} for at, (q, _) in enumerate(dates)]),
        Case(name="a reward for programs that run", named="REW102", rows=code,
             reward=_reward(_RUNS)),
        Case(name="intervals cut at the first brace", named="REW101",
             rows=[_chat(q + " Put it in \\boxed{}.", a) for q, a in _intervals(160, 510)],
             reward=_reward(_FIRST_BOX)),
        Case(name="completions cut at 40 words", named="DAT115", model=BASE, rows=[
            {"prompt": " ".join(text.split()[:40])} for text in _essays(200, 511)]),
        Case(name="very short questions with two keys", named="DAT107", model=BASE, rows=short),
    )  # fmt: skip


_LAST_LABEL = """
    found = re.findall(r"positive|negative|neutral", t.lower())
    return bool(found) and found[-1] == a
"""
_QUERY = """
    found = re.findall(r"```sql\\s*(.*?)```", t, re.S)
    plain = lambda text: "".join(text.casefold().split()).rstrip(";")
    return bool(found) and plain(found[-1]) == plain(a)
"""
_CALL = """
    found = re.findall(r"<tool_call>(.*?)</tool_call>", t, re.S)
    try:
        return bool(found) and json.loads(found[-1]) == json.loads(a)
    except ValueError:
        return False
"""
_ANSWER_ZH = """
    found = re.findall(r"答案\\s*[:：]\\s*(-?\\d+)", t)
    return bool(found) and int(found[-1]) == int(a)
"""
_CONCENTRATION = """
    found = re.findall(r"RESULT\\s*[:=]\\s*(-?[\\d.]+)", t)
    try:
        return bool(found) and abs(float(found[-1].rstrip(".")) - float(a)) < 1e-3
    except ValueError:
        return False
"""
_AMOUNT = """
    found = re.findall(r"\\d+(?:\\.\\d+)?", t)
    return bool(found) and float(found[-1]) == float(a)
"""
_JSON_DATE = """
    found = re.findall(r"\\{[^{}]*\\}", t)
    try:
        value = json.loads(found[-1]).get("arrival") if found else None
    except ValueError:
        return False
    return isinstance(value, str) and value.strip() == a
"""
_FIRST_WORD = """
    words = re.findall(r"[a-z]+", t.split("\\nThing:")[0].lower())
    return bool(words) and words[-1] == a
"""


def third_healthy() -> tuple[Case, ...]:
    """Eight healthy sets."""
    rng = random.Random(601)
    moods = {"positive": ("a joy", "splendid", "worth every mile"), "negative": ("a bore", "filthy", "far too dear"),
             "neutral": ("as described", "neither good nor bad", "average")}  # fmt: skip
    reviews = []
    for _ in range(240):
        mood = rng.choice(list(moods))
        text = f"The ferry from {rng.choice(_PORTS)} to {rng.choice(_PORTS)} (cabin {rng.randint(1, 900)}) was {rng.choice(moods[mood])}."
        reviews.append({"answer": mood, "prompt": [
            {"role": "user", "content": "I will send you a review."},
            {"role": "assistant", "content": "Please do."},
            {"role": "user", "content": f"{text}\nIs this positive, negative or neutral?"}]})  # fmt: skip
    bills = []
    for _ in range(200):
        net, fee = rng.randint(20, 900), rng.randint(2, 19)
        bills.append({"answer": str(net + fee), "question": (
            f"Invoice {rng.randint(1000, 9999)}\nGoods: {rng.choice(_GOODS)}\nNet: {net}\nPort fee: {fee}\n"
            f"Total: {net + fee}\nBilled to: harbour of {rng.choice(_PORTS)}, quay {rng.randint(1, 19)}\n\nWhat has to be paid?")})  # fmt: skip
    colors = {"sulphur": "yellow", "soot": "black", "chalk": "white", "poppy": "red", "moss": "green", "lime": "green",
              "ruby": "red", "snow": "white", "raven": "black", "canary": "yellow", "sapphire": "blue", "cobalt": "blue"}  # fmt: skip
    things = [(f"{size} {thing}", color) for thing, color in colors.items()
              for size in ("old", "wet", "dry", "big", "tiny", "cold")]  # fmt: skip
    rng.shuffle(things)
    shots = "Thing: lemon\nColor: yellow\nThing: tar\nColor: black\n"
    ask = "最后一行写“答案：数字”。"
    layout = "Call exactly one tool in the form <tool_call>{...}</tool_call>."
    form = 'Finish with a JSON object {"steps": "...", "arrival": "YYYY-MM-DD"}.'
    return (
        Case(name="a review at the end of a conversation", rows=reviews, reward=_reward(_LAST_LABEL), model=LLAMA),
        Case(name="SQL in a block", reward=_reward(_QUERY), model=GEMMA, suffix=".parquet",
             rows=[_chat(f"{q}\nSchema: cargo(ship, goods, port, tons, price, year). Answer with a ```sql block.", sql)
                   for q, sql in _queries(180, 602)]),
        Case(name="tool calls in tags", reward=_reward(_CALL),
             rows=[_chat(q, call, layout) for q, call in _calls(180, 603)]),
        Case(name="Chinese problems with an answer line", reward=_reward(_ANSWER_ZH, "solution"), model=CHATML,
             rows=[{"prompt": [{"role": "user", "content": q + ask}], "solution": str(value)}
                   for q, value in _chinese(220, 604)]),
        Case(name="chemistry by value", reward=_reward(_CONCENTRATION), model=LLAMA,
             rows=[_chat(f"{q} End with a line RESULT: number and unit.", a) for q, a in _chemistry(180, 605)]),
        Case(name="invoices", rows=bills, reward=_reward(_AMOUNT), suffix=".csv", model=BASE),
        Case(name="dates in JSON", reward=_reward(_JSON_DATE),
             rows=[_chat(f"{q} {form}", day.isoformat()) for q, day in _arrivals(200, 607)]),
        Case(name="few-shot completion, very short", reward=_reward(_FIRST_WORD), model=BASE,
             rows=[{"prompt": f"{shots}Thing: {thing}\nColor:", "answer": color} for thing, color in things]),
    )  # fmt: skip
