"""Mistakes of the twenty-first examination in the data."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from tests.preflight.planted import nineteenth_sets as s
from tests.preflight.planted import nineteenth_tables as n
from tests.preflight.planted import twentyfirst_rewards as w
from tests.preflight.planted import twentyfirst_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.tables import Row


def data_faults() -> Iterator[Case]:
    """Eighteen mistakes."""
    yield from _of_held_out()
    yield from _of_rows()
    yield from _of_answers()
    yield from _of_prompts()


def _user(row: Row) -> str:
    return str(row["prompt"][-1]["content"])


def _of_held_out() -> Iterator[Case]:
    train = t.tagged_rows(t.factories(300, 2101), "total")
    numbered = [
        {**row, "prompt": n.chat(f"Exercise {at + 1}. {_user(row)} Finish with <answer>number</answer>.")}
        for at, row in enumerate(train[100:160])
    ]  # fmt: skip
    yield Case(
        name="held-out problems are training problems with a number in front", rows=train, held_out=numbered, reward=w.TAG,
        named=r"DAT107.*held-out", accepted="Held-out prompts are in the training data, under another number and instruction.",
    )  # fmt: skip
    menus = t.tagged_rows(t.menus(300, 2102), "dish", t.ASK_DISH)
    plain = [
        {**row, "prompt": n.chat("".join(c for c in unicodedata.normalize("NFD", _user(row)) if not unicodedata.combining(c)).upper(), t.ASK_DISH)}
        for row in menus[40:100]
    ]  # fmt: skip
    yield Case(
        name="held-out questions are training questions in capitals without accents", rows=menus, held_out=plain, reward=w.TAG,
        named=r"DAT107.*held-out", accepted="Held-out prompts are in the training data, in capitals and without accents.",
    )  # fmt: skip


def _of_rows() -> Iterator[Case]:
    rows = s.passage_rows(300, 2103)
    paths = [{**row, "answer": f"answers/part-{at // 100}/{at:05d}.txt"} for at, row in enumerate(rows)]  # fmt: skip
    yield Case(
        name="answers are the paths of files with the answers", rows=paths, reward=w.TAG,
        named=r"(DAT112|DAT113|DAT117|DAT126).*(file|path|\bid|number of the row)", accepted="The answers are paths of files, not answers.",
    )  # fmt: skip
    rows = t.tagged_rows(t.posts(300, 2104), "name", t.ASK_NAME)
    pairs = [{**row, "answer": rows[at ^ 1]["answer"]} for at, row in enumerate(rows)]
    yield Case(
        name="each answer has changed places with its neighbor's", rows=pairs, reward=w.NAME, framework="trl", run_config=trl(),
        named=r"DAT113.*(other rows|another row|neighbor|row before|shift|does not occur|exchanged)", accepted="The answers belong to other rows: each pair of rows has exchanged answers.",
    )  # fmt: skip
    rows = t.tagged_rows(t.mixtures(300, 2105), "value")
    repeated = [{**row, "answer": rows[at % 150]["answer"]} for at, row in enumerate(rows)]
    yield Case(
        name="the second half has the answers of the first half", rows=repeated, reward=w.NUMBER,
        named=r"(DAT113|DAT107|DAT112).*(other rows|another row|repeat|shift|same order|earlier row)", accepted="Rows 150 to 299 have the answers of rows 0 to 149.",
    )  # fmt: skip
    stories = s.story_rows(300, 2106)
    levels = [{**row, "answer": str(1 + (7 * at + at // 11) % 5)} for at, row in enumerate(stories)]
    yield Case(
        name="the answer is the level of the problem, the solution ends in another number", rows=levels, reward=w.BOX, model=LLAMA,
        named=r"DAT113.*solution", accepted="The answers contradict the solutions of their rows (they are levels from 1 to 5).",
    )  # fmt: skip
    first = t.tagged_rows(t.reviews(220, 2107), "mood", t.ASK_MOOD)
    flip = {"positive": "negative", "negative": "positive"}
    second = [{**row, "answer": flip[row["answer"]]} for row in t.tagged_rows(t.reviews(140, 2117), "mood", t.ASK_MOOD)]  # fmt: skip
    rows = [{**row, "source": "shop"} for row in first] + [{**row, "source": "market"} for row in second]  # fmt: skip
    yield Case(
        name="one of two sources counts its labels the other way round", rows=rows, reward=w.TAG,
        named=r"(DAT127|DAT113|DAT129).*(label|contradict|market|answers)(?!.*sorted)", accepted="The labels of the source 'market' are inverted; labels contradict those of similar prompts.",
    )  # fmt: skip


def _of_answers() -> Iterator[Case]:
    ask = "Think step by step, then give the number and the unit between <answer> and </answer>."
    rows = [{"prompt": n.chat(r["text"], ask), "answer": f"{r['value']} kg"} for r in t.mixtures(300, 2108)]  # fmt: skip
    units = [{**row, "answer": "kg"} if at % 7 == 4 else row for at, row in enumerate(rows)]
    yield Case(
        name="a seventh of the answers has lost its number and is only the unit", rows=units, reward=w.TAG,
        named=r"(DAT112|DAT113|DAT126|DAT117|DAT108).*(unit|no number|without a number|'kg'|kg|kind)", accepted="Some answers are only 'kg': their number is missing.",
    )  # fmt: skip
    twelve = [
        {**row, "answer": f"{(int(row['answer'][:2]) + 11) % 12 + 1}{row['answer'][2:]}"} if at % 3 == 1 else row
        for at, row in enumerate(t.journey_rows(300, 2109))
    ]  # fmt: skip
    yield Case(
        name="a third of the times is of the twelve-hour clock", rows=twelve, reward=w.TAG, framework="trl", run_config=trl(),
        named=r"(DAT113|DAT126|REW101).*(hour|clock|form|zero|time|HH)", accepted="A third of the answers is on the 12-hour clock (1:20), where the prompts ask for HH:MM of the 24-hour clock.",
    )  # fmt: skip
    rows = t.tagged_rows(t.factories(300, 2110), "total")
    rounded = [{**row, "answer": f"{int(row['answer']):.6g}"} for row in rows]
    yield Case(
        name="large numbers were written with an exponent and six digits", rows=rounded, reward=w.TAG,
        named=r"(DAT126|DAT113|DAT117|DAT112|REW101|REW104).*(exponent|scientific|e\+0|rounded|digits|notation)", accepted="The answers are written as 1.23457e+07: they lost digits, or right whole numbers earn nothing.",
    )  # fmt: skip
    import struct

    noisy = [
        {**row, "answer": repr(struct.unpack("f", struct.pack("f", float(row["answer"])))[0])}
        for row in t.tagged_rows(t.mixtures(300, 2111), "value")
    ]  # fmt: skip
    yield Case(
        name="decimals went through 32 bits and are compared as text", rows=noisy, reward=w.TAG, model=GEMMA,
        named=r"(DAT126|DAT113|DAT117|DAT112|REW101|REW104).*(32|float|precision|digits|decimals)", accepted="Answers such as 12.399999618530273 are the rounding of 32-bit floats; the right 12.4 earns nothing.",
    )  # fmt: skip
    windows = [{**row, "answer": row["answer"] + "\r"} for row in t.tagged_rows(t.posts(300, 2112), "name", t.ASK_NAME)]  # fmt: skip
    yield Case(
        name="answers end with a carriage return", rows=windows, reward=w.NAME,
        named=r"(DAT126|DAT117|DAT112|REW101|REW104).*(carriage|line end|line break|white space|\\r|blank)", accepted="The answers end with a carriage return (Windows line ends), so that right answers earn nothing.",
    )  # fmt: skip


def _of_prompts() -> Iterator[Case]:
    cut = [{**row, "prompt": n.chat(_user(row).split("\n")[0], t.ASK_LINE)} for row in t.tour_rows(300, 2113)]  # fmt: skip
    yield Case(
        name="prompts end at their first line break, before the options", rows=cut, reward=w.LINE, framework="trl", run_config=trl(),
        named=r"(DAT115|DAT117|DAT113|DAT112|DAT126).*(option|cut|lack|choice)", accepted="The prompts ask for the letter of an option and contain no options.",
    )  # fmt: skip
    filler = " ".join(f"The {w_} wing was rebuilt in {1800 + at}." for at, w_ in enumerate(("north", "east", "south", "west", "upper", "lower", "old", "new")))  # fmt: skip
    long = []
    for at, (row, r) in enumerate(zip(s.passage_rows(300, 2114), n.passages(300, 2114), strict=True)):  # fmt: skip
        whole = f"{filler[: 90 + 37 * at % 190]} {r['passage']}"
        text = whole if at % 4 else whole[: len(whole) - len(r["passage"]) + 20] + "... [truncated]"
        long.append({**row, "prompt": n.chat(f"{text}\n\n{r['question']}", row["prompt"][0]["content"])})  # fmt: skip
    yield Case(
        name="a quarter of the passages was shortened and marked so", rows=long, reward=w.TAG,
        named=r"(DAT115|DAT117|DAT112).*(truncat|cut|shorten|omit)", accepted="A quarter of the passages ends with '... [truncated]', so that the answer is missing.",
    )  # fmt: skip
    chinese = "请逐步思考，然后把答案写在 <answer> 和 </answer> 之间。"
    mixed = [{**row, "prompt": n.chat(_user(row), chinese)} if at % 6 == 2 else row for at, row in enumerate(t.tagged_rows(t.factories(300, 2115), "total"))]  # fmt: skip
    yield Case(
        name="a sixth of the system messages is Chinese", rows=mixed, reward=w.TAG,
        named=r"DAT114", accepted="A sixth of the prompts has its instruction in another language.",
    )  # fmt: skip
    dotted = []
    for r in t.tours(300, 2116):
        options = [each + "." if mark == r["key"] else each for mark, each in zip("ABCD", r["options"], strict=True)]  # fmt: skip
        dotted.append({"prompt": n.chat(t.letters(r["text"], options), t.ASK_LINE), "answer": r["key"]})  # fmt: skip
    yield Case(
        name="only the right option ends with a full stop", rows=dotted, reward=w.LINE,
        named=r"(DAT111|DAT123|DAT108).*(full stop|option|punctuation|mark)", accepted="The right option is the only one that ends with a full stop: prompts give the answer away.",
    )  # fmt: skip
    asked = []
    for row in t.tagged_rows(t.menus(300, 2118), "dish", t.ASK_DISH):
        lost = row["prompt"][1]["content"].encode("ascii", "replace").decode()
        asked.append({**row, "prompt": n.chat(lost, t.ASK_DISH)})
    yield Case(
        name="accented letters of the prompts became question marks", rows=asked, reward=w.TAG,
        named=r"(DAT117|DAT132|DAT113|DAT126).*(question mark|wrong character|\?|replac)", accepted="Letters of the prompts were replaced by question marks (encoding).",
    )  # fmt: skip
    silent = []
    for at, row in enumerate(t.device_rows(300, 2119)):
        last = {**row["prompt"][-1], "content": "" if at % 4 == 1 else row["prompt"][-1]["content"]}
        silent.append({**row, "prompt": [*row["prompt"][:-1], last]})
    yield Case(
        name="a quarter of the tools' replies is empty", rows=silent, reward=w.TAG,
        named=r"(DAT112|DAT117|DAT121|DAT113|DAT119).*(empty|lack|tool|missing)", accepted="A quarter of the prompts has an empty message of the tool, which holds the number.",
    )  # fmt: skip
