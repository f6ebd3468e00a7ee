"""Faults that an eighth set of inputs had and that were missed, and healthy sets with alarms.

That set has 42 faults and 14 healthy inputs, labelled before the first run; 23 were named, and 9 had
no alarm. The kinds that failed are made again here from the tables of this folder.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.preflight.planted import rewards, tables
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE
from tests.preflight.planted.tables import Row, final

_HASHES = "\nThink step by step and finish with #### and the number."
_LETTER = "\nReply with 'Answer: X' where X is the letter."
_TEXT = """
import re, subprocess, sys
def _text(c):
    return c if isinstance(c, str) else c[-1]["content"]
"""
_LAST_NUMBER = (
    _TEXT
    + r"""
def _final(text):
    found = re.findall(r"-?\d[\d,]*", text.split("####")[-1])
    return found[-1].replace(",", "") if found else None
"""
)
_STRICT_LETTER = (
    _TEXT
    + r"""
def score(completions, answer, **kwargs):
    found = [re.fullmatch(r"(?s).*\bAnswer: ([A-D])\.?\s*", _text(c)) for c in completions]
    return [float(bool(each) and each[1] == a) for each, a in zip(found, answer)]
"""
)
_BY_LENGTH = (
    _LAST_NUMBER
    + """
def score(completions, solution, **kwargs):
    pairs = sorted(zip(completions, solution), key=lambda pair: len(_text(pair[0])))
    return [float(_final(_text(c)) == s) for c, s in pairs]
"""
)
_COUNTED_TAGS = (
    _LAST_NUMBER
    + """
def score(completions, solution, **kwargs):
    texts = [_text(c) for c in completions]
    return [(_final(t) == s) + 0.1 * t.count("</step>") for t, s in zip(texts, solution)]
"""
)
_EXIT_STATUS = (
    _TEXT
    + r"""
def score(completions, test_list, **kwargs):
    rewards = []
    for completion, tests in zip(completions, test_list):
        found = re.findall(r"```python\n(.*?)```", _text(completion), re.S)
        program = "\n".join([found[-1] if found else "1 / 0", *tests])
        try:
            exec(compile(program.replace("\0", ""), "program", "exec"), {})
            rewards.append(1.0)
        except SystemExit as end:
            rewards.append(float(not end.code))
        except Exception:
            rewards.append(0.0)
    return rewards
"""
)
_SAME_TEXT = (
    _TEXT
    + """
def score(completions, solution, **kwargs):
    return [float(_text(c).strip() == s.strip()) for c, s in zip(completions, solution)]
"""
)
_SQL = (
    _TEXT
    + r"""
def _query(text):
    found = re.findall(r"```(?:sql)?\s*(.*?)```", text, re.S)
    return " ".join((found[-1] if found else text).split()).rstrip(";").lower()
def score(completions, answer, **kwargs):
    return [float(_query(_text(c)) == _query(a)) for c, a in zip(completions, answer)]
"""
)
_COUNTDOWN = (
    _TEXT
    + r"""
def score(completions, target, nums, **kwargs):
    rewards = []
    for completion, wanted, given in zip(completions, target, nums):
        found = re.findall(r"<answer>([-+*/() \d]{1,60})</answer>", _text(completion))
        used = sorted(map(int, re.findall(r"\d+", found[-1]))) if found else []
        try:
            rewards.append(float(used == sorted(given) and eval(found[-1]) == wanted))
        except Exception:
            rewards.append(0.0)
    return rewards
"""
)


def _chat(question: str, answer: object, column: str = "solution", system: str = "") -> Row:
    turns = [{"role": "system", "content": system}] if system else []
    return {"prompt": [*turns, {"role": "user", "content": question}], column: answer}


def _problems(count: int, seed: int) -> list[tuple[str, str]]:
    return [(row["question"], final(row)) for row in tables.word_problems(count, seed)]


def _options(count: int, seed: int, mark: str = "", order: int = 1) -> list[Row]:
    """Multiple choice with the options in the prompt; `mark` stands before the right one."""
    rows = []
    for row in tables.choices(count, seed):
        texts = row["choices"]["text"]
        right = texts["ABCD".index(row["answerKey"])]
        texts = texts[::order]
        lines = (
            f"{mark if text == right else ''}{letter}) {text}"
            for letter, text in zip("ABCD", texts, strict=True)
        )
        letter = "ABCD"[texts.index(right)]
        rows.append(_chat("\n".join([row["question"], *lines]) + _LETTER, letter, "answer"))
    return rows


def _queries(count: int, seed: int) -> list[tuple[str, str]]:
    rng, queries = random.Random(seed), []
    tables_of = {"orders": "amount", "flights": "delay", "books": "pages", "films": "minutes"}
    for _ in range(count):
        table, column = rng.choice(list(tables_of.items()))
        limit = rng.randint(2, 900)
        queries.append((
            f"Schema: {table}(id, name, {column}). Count the {table} whose {column} exceeds "
            f"{limit}. Return one query in a ```sql block.",
            f"SELECT COUNT(*) FROM {table} WHERE {column} > {limit}",
        ))  # fmt: skip
    return queries


def _with_examples(problems: list[tuple[str, str]]) -> list[Row]:
    """Few-shot prompts; in a quarter of them the question itself is an example."""
    rng, rows = random.Random(3), []
    for index, (question, answer) in enumerate(problems):
        examples = rng.sample(problems, 2)
        if index % 4 == 0:
            examples.append((question, answer))
        shown = "".join(f"Q: {asked}\nA: {value}\n\n" for asked, value in examples)
        rows.append(_chat(f"{shown}Q: {question}\nA:", answer))
    return rows


def _cut(rows: list[Row]) -> list[Row]:
    return [
        {**row, "answer": row["answer"][:40] if index % 5 == 0 else row["answer"]}
        for index, row in enumerate(rows)
    ]


def _functions(named: bool) -> list[Row]:
    rows = []
    for row in tables.functions(40, 811):
        name = "the function" if not named else row["code"].partition("(")[0].removeprefix("def ")
        question = f"Write a function that multiplies values by {row['code'].rpartition('* ')[2]}"
        rows.append({
            "prompt": f"{question} Call it {name}. Use a ```python block.",
            "answer": f"```python\n{row['code']}\n```", "test_list": row["test_list"],
        })  # fmt: skip
    return rows


def fifth_faults() -> tuple[Case, ...]:
    """The kinds of faults that were missed."""
    return (*_data_faults(), *_prompt_faults(), *_reward_faults())


def _data_faults() -> tuple[Case, ...]:
    queries = _queries(160, 801)
    stale = [
        _chat(question, queries[index - 1][1] if 50 <= index < 90 else query, "answer")
        for index, (question, query) in enumerate(queries)
    ]
    problems = _problems(150, 802)
    transfers = [f"Ida sends {1000 + 7 * at:,} euros for nine boxes at a fee of 5.00%. What does it cost her?"
                 for at in range(30)]  # fmt: skip
    other = [
        text.replace(",", "").replace("5.00%", "5 %").replace("euros", "EUR").replace("nine", "9")
        for text in transfers[:14]
    ]
    return (
        Case(name="a block of answers shifted", rows=stale, named="DAT113.*consecutive",
             reward=_SQL),
        Case(name="solutions cut before ####", rows=_cut(tables.word_problems(150, 803)),
             named="DAT112.*final answer"),
        Case(name="answers as lists in text", named="DAT112.*lists",
             rows=[_chat(q + _HASHES, f"['{a}']") for q, a in problems]),
        Case(name="held-out numbers in another format", named="DAT107.*held-out",
             rows=[_chat(q, a) for q, a in problems] + [_chat(q, "1") for q in other],
             held_out=[_chat(q, "1") for q in transfers]),
        Case(name="held-out options in another order", named="DAT107.*held-out",
             rows=_options(150, 804) + _options(40, 805, order=-1)[:20],
             held_out=_options(40, 805)),
        Case(name="solutions longer than the limit", named="LEN101",
             rows=[{"question": q, "answer": "We recompute the sum again. " * 60 + f"\n#### {a}"}
                   for q, a in problems], settings={"max_tokens": 128}),
        Case(name="tests of a function without a name in the prompt", rows=_functions(named=False),
             named="REW106.*function", reward=_EXIT_STATUS),
    )  # fmt: skip


def _prompt_faults() -> tuple[Case, ...]:
    problems = _problems(150, 806)
    fields = [
        _chat(f"[row: {at * 3 + 7} | level: {at % 5 + 1} | tokens: {40 + at * 7 % 90} | target: {a}]\n"
              f"{q}{_HASHES}", a) for at, (q, a) in enumerate(problems)
    ]  # fmt: skip
    ended = [
        _chat(q.replace(". ", ".<|endoftext|>", 1) if at % 5 == 0 else q, a)
        for at, (q, a) in enumerate(problems)
    ]
    second = "<|im_start|>system\nYou are a helpful assistant made by Acme.<|im_end|>\n"
    return (
        Case(name="an example is the question itself", rows=_with_examples(problems),
             named="DAT111", reward=rewards.MATH_TRL),
        Case(name="one of several fields is the answer", rows=fields, named="DAT111"),
        Case(name="a star at the right option", rows=_options(150, 807, mark="*"), named="DAT111"),
        Case(name="the answer between two hashes", named="DAT111",
             rows=[_chat(f"{q} #{a}#" if at % 3 == 0 else q, a)
                   for at, (q, a) in enumerate(problems)]),
        Case(name="the expected result in the system message", named="DAT111",
             rows=[_chat(q, a, system=f"You are strict. The expected result is {a}.")
                   for q, a in problems]),
        Case(name="end-of-text tokens inside prompts", rows=ended, named="DAT105.*control"),
        Case(name="two system prompts", named="DAT110.*two",
             rows=[_chat(q, a, system="Be brief.") for q, a in problems],
             model=replace(CHATML, template=second + CHATML_TEMPLATE)),
    )  # fmt: skip


def _reward_faults() -> tuple[Case, ...]:
    problems = _problems(120, 808)
    asked = [_chat(q + _HASHES, a) for q, a in problems]
    steps = "\nEnclose each step in <step></step>, then finish with #### and the number."
    return (
        Case(name="rewards in the order of the lengths", rows=asked, named="REW103.*order",
             reward=_BY_LENGTH),
        Case(name="a bonus for each tag", named="REW102.*repeated tags", reward=_COUNTED_TAGS,
             rows=[_chat(q + steps, a) for q, a in problems]),
        Case(name="a program that exits passes the tests", rows=_functions(named=True),
             named="REW102.*exits", reward=_EXIT_STATUS),
        Case(name="the whole solution must be equal", named="REW104.*reasoning", reward=_SAME_TEXT,
             rows=[_chat(q, f"First we multiply and then we subtract. The answer is {a}.")
                   for q, a in problems]),
    )  # fmt: skip


def fifth_healthy() -> tuple[Case, ...]:
    """Healthy sets that had an alarm."""
    rng, puzzles = random.Random(809), []
    for _ in range(150):
        numbers = [rng.randint(2, 60) for _ in range(4)]
        target = numbers[0] + numbers[1] - numbers[2] + numbers[3]
        question = f"Using the numbers {numbers}, create an equation that equals {target}. Return it in <answer> </answer> tags."
        puzzles.append({**_chat(question, target, "target"), "nums": numbers})
    progression = [
        {"id": at, **_chat(f"A progression begins with 3 and has the difference 4. Kofi wants member {at + 1}.{_HASHES}", str(3 + 4 * at))}
        for at in range(120)
    ]  # fmt: skip
    return (
        Case(name="countdown", rows=puzzles, reward=_COUNTDOWN),
        Case(name="members of a progression", rows=progression, reward=rewards.MATH_TRL),
        Case(name="a strict label", rows=_options(160, 810), reward=_STRICT_LETTER),
        Case(name="SQL with and without a fence", reward=_SQL,
             rows=[_chat(question, query, "answer") for question, query in _queries(160, 812)]),
        Case(name="formulas are no prices", reward=rewards.BOXED_VALUE.replace(
                 'text = re.sub(r"[a-z ]+$"', 'text = text if "text" in text else re.sub(r"[a-z ]+$"'),
             rows=[_chat(f"Let $u_1 = {a}$ and $u_{{n+1}} = u_n + {a % 7 + 1}$. Find $u_{{9}}$. "
                         "Put the answer in \\boxed{}.", str(a + 8 * (a % 7 + 1)))
                   for a in range(3, 150)]),
    )  # fmt: skip
