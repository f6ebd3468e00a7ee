"""Mistakes in data sets of the thirteenth examination, as users report them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.preflight.planted import thirteenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.tables import Row
from tests.preflight.planted.thirteenth_rewards import BOXED

BOX = r"""
import re
def _box(text):
    at = text.rfind("\\boxed{")
    if at < 0:
        return None
    depth, start = 1, at + 7
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start:end].strip()
    return None
def accuracy(completions, answer, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [float(_box(text) == str(right).strip()) for text, right in zip(texts, answer)]
"""
TESTS = r"""
import re, subprocess, sys
def passes(completions, tests, **kwargs):
    rewards = []
    for completion, asserts in zip(completions, tests):
        found = re.findall(r"```(?:python)?\n(.*?)```", completion[0]["content"], re.DOTALL)
        if not found:
            rewards.append(0.0)
            continue
        program = found[-1] + "\n" + "\n".join(asserts) + "\nprint('all passed')"
        try:
            done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=5)
        except subprocess.TimeoutExpired:
            rewards.append(0.0)
            continue
        rewards.append(float(done.stdout.strip().endswith("all passed")))
    return rewards
"""
CALL = r"""
import json, re
def call(completions, expected, **kwargs):
    rewards = []
    for completion, right in zip(completions, expected):
        found = re.search(r"<tool_call>(.*?)</tool_call>", completion[0]["content"], re.DOTALL)
        try:
            given = json.loads(found.group(1)) if found else None
        except ValueError:
            given = None
        rewards.append(float(given == json.loads(right)))
    return rewards
"""


def data_faults() -> Iterator[Case]:
    """Eleven mistakes."""
    yield from _answers()
    yield from _rows()
    yield from _prompts()


def boxed(pairs: list[tuple[str, object]]) -> list[Row]:
    """Prompts that ask for a box."""
    return [{"prompt": u.chat(q + BOXED), "answer": a} for q, a in pairs]


def _answers() -> Iterator[Case]:
    pairs = [(p["question"], str(p["final"])) for p in u.gsm(600, 3201)]
    cut = 360
    shifted = [(q, a if at < cut else pairs[(at + 1) % 600][1]) for at, (q, a) in enumerate(pairs)]
    yield Case(
        name="from row 360 on, the answers are those of the next row", rows=boxed(shifted),
        reward=BOX, named="DAT113.*shifted",
        accepted="Answers do not belong to their prompts (wrong, shifted) in part of the rows.",
    )  # fmt: skip
    rng = random.Random(3202)
    gaps = [
        {"question": p["question"], "answer": rng.choice(["", "nan"]) if rng.random() < 0.09
         else f"{p['final']}.0"} for p in u.gsm(800, 3202)
    ]  # fmt: skip
    yield Case(
        name="a CSV from pandas with empty and nan answers", suffix=".csv", rows=gaps, named="DAT112.*empty",
        accepted="Answers are missing (empty or nan) in about 9% of the rows.",
    )  # fmt: skip
    olympiad = [
        (f"Prove that {q[0].lower()}{q[1:]}" if at % 16 == 0 else q, "proof" if at % 16 == 0
         else "notfound" if at % 16 == 7 else a)
        for at, (q, a) in enumerate(u.competition(800, 3203))
    ]  # fmt: skip
    yield Case(
        name="NuminaMath's answers proof and notfound", rows=boxed(olympiad), reward=BOX,
        suffix=".parquet", named="DAT112.*notes",
        accepted="Some answers (proof, notfound) are not answers that a response can be compared with.",
    )  # fmt: skip
    rows = u.tool_rows(500, 3204, missing=5)
    yield Case(
        name="in a fifth of the rows the tool of the answer is not offered", rows=rows,
        reward=CALL, named="DAT124.*no tool",
        accepted="Answers call a tool that the prompt does not offer.",
    )  # fmt: skip


def _rows() -> Iterator[Case]:
    rng = random.Random(3211)
    once = boxed([(q, a) for q, a in u.competition(160, 3211)])
    many = once * 6
    rng.shuffle(many)
    yield Case(
        name="each row six times, as DAPO-Math-17k was uploaded", rows=many, suffix=".parquet",
        reward=BOX, named="DAT107.*repeat", accepted="Rows are duplicates.",
    )  # fmt: skip
    problems = u.gsm(700, 3212)
    train = [{"prompt": u.chat(p["question"] + BOXED), "answer": str(p["final"])} for p in problems]
    test = [
        {"prompt": u.chat("  ".join(p["question"].split(". ")).replace("metres", "meters") + BOXED),
         "answer": str(p["final"])} for p in problems[::18]
    ] + [{"prompt": u.chat(p["question"] + BOXED), "answer": str(p["final"])}
         for p in u.gsm(80, 3213)]  # fmt: skip
    yield Case(
        name="a third of the evaluation prompts is in the training data, in other spacing",
        rows=train, held_out=test, reward=BOX, named="DAT107.*held-out",
        accepted="Evaluation prompts occur in the training data.",
    )  # fmt: skip
    tasks = [
        {"prompt": u.chat(row["text"] + " Put the code into a ```python block."), "tests": row["tests"]}
        for row in u.code(160, 3214)
    ]  # fmt: skip
    yield Case(
        name="the tests call a function that the prompt does not name", rows=tasks, reward=TESTS,
        named="REW106.*name the function", accepted="The prompts do not tell the name of the function that the tests call.",
    )  # fmt: skip


def _prompts() -> Iterator[Case]:
    yield Case(
        name="the prompt column is the full text with the solution", model=LLAMA,
        rows=[{"prompt": f"Question: {p['question']}\nAnswer: {p['steps']}\n#### {p['final']}",
               "answer": str(p["final"])} for p in u.gsm(600, 3221)],
        suffix=".json", named="DAT111.*contain", accepted="The prompts contain the answers.",
    )  # fmt: skip
    figures = [
        ("In the figure below, the shaded region is bounded by two chords. " + q if at % 4 == 0
         else "The graph of $f$ is shown. " + q if at % 9 == 5 else q, a)
        for at, (q, a) in enumerate(u.competition(600, 3222))
    ]  # fmt: skip
    yield Case(
        name="problems refer to figures that the text does not have", rows=boxed(figures),
        reward=BOX, named="DAT118.*refer", accepted="Prompts refer to a figure that is not part of the prompt.",
    )  # fmt: skip
    broken = [
        {"question": text.encode().decode("cp1252", errors="replace"), "answer": str(answer)}
        for _, text, answer in u.languages(480, 3223)
    ]
    yield Case(
        name="UTF-8 read as Windows-1252", rows=broken, suffix=".csv", model=GEMMA, named="DAT117.*decoded",
        accepted="Characters of the prompts are broken by a wrong encoding.",
    )  # fmt: skip
    yield Case(
        name="the f of an f-string is missing",
        rows=[{"prompt": u.chat("Solve the following problem.\n\n{example['question']}" + BOXED),
               "answer": str(p["final"])} for p in u.gsm(400, 3224)],
        reward=BOX, named="DAT107.*placeholder",
        accepted="The prompts hold an unfilled placeholder (or: all prompts are the same text).",
    )  # fmt: skip
