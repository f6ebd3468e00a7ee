"""Twenty sound sets of the fourteenth examination: each task, and four in other layouts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.tables import Row

_VERL_TAGGED = (
    k.TAGGED.replace("def correct(", "def _correct(")
    + r"""
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    score = _correct([solution_str], [ground_truth])[0]
    return {"score": score, "acc": score == 1.0}
"""
)
_SHAPED = (
    k.BOX.replace("def boxed(", "def _boxed(")
    + r"""
def accuracy_and_format(completions, answer, **kwargs):
    right = _boxed(completions, answer)
    form = [bool(re.match(r"\s*<think>.*?</think>", c[-1]["content"], re.DOTALL)) for c in completions]
    return [r + 0.1 * f for r, f in zip(right, form)]
"""
)


def fourteenth_healthy() -> tuple[Case, ...]:
    """Twenty sets without a mistake, in two halves of ten."""
    return (*_single(), *_several())


def _single() -> Iterator[Case]:
    settings = {"max_tokens": 1024}
    yield Case(name="word problems in tags, TRL", rows=k.words(400, 4301), reward=k.TAGGED,
               run_config=trl(), framework="trl", settings=settings)  # fmt: skip
    yield Case(name="competition problems in boxes", rows=k.contest(400, 4302), reward=k.BOX,
               suffix=".parquet", model=LLAMA)  # fmt: skip
    yield Case(name="functions with assertions", rows=k.functions(80, 4303), reward=k.ASSERTS)
    yield Case(name="programs that read standard input", rows=k.programs(80, 4304), reward=k.STDIN)
    yield Case(
        name="multiple choice with units", rows=k.exam(400, 4305), reward=k.LETTER, model=GEMMA
    )
    yield Case(name="calls with schemas in a column", rows=k.calls(300, 4306), reward=k.CALL)
    yield Case(
        name="orders in several turns", rows=k.dialogs(300, 4307), reward=k.TOTAL, model=LLAMA
    )
    yield Case(name="nested JSON from letters", rows=k.notices(300, 4308), reward=k.FIELDS)
    yield Case(name="translation with references", rows=k.sentences(300, 4309), reward=k.CHRF,
               run_config=trl(max_completion_length=512), framework="trl")  # fmt: skip
    yield Case(name="small sudokus", rows=k.sudokus(200, 4310), reward=k.GRID)


def _several() -> Iterator[Case]:
    settings = {"max_tokens": 1024}
    yield Case(name="questions about long documents", rows=k.records(150, 4311), reward=k.TAGGED)
    yield Case(
        name="intents of messages", rows=k.intents(300, 4312), reward=k.LABEL, suffix=".parquet"
    )
    yield Case(
        name="open questions for a judge", rows=k.essays(200, 4313), reward=k.JUDGE, model=GEMMA
    )
    yield Case(name="four languages", rows=k.foreign(300, 4314), reward=k.BOX, suffix=".json")
    yield Case(name="queries that are run", rows=with_results(200, 4315), reward=k.SQL)
    yield Case(name="texts with rules", rows=k.orders(200, 4316), reward=k.RULES, run_config=trl(),
               framework="trl", settings=settings)  # fmt: skip
    yield Case(name="documents in verl's layout", rows=_verl_rows(150, 4317), reward=_VERL_TAGGED,
               suffix=".parquet", framework="verl",
               run_config=verl(("max_prompt_length: 1024", "max_prompt_length: 2048")), settings=settings)  # fmt: skip
    train = k.words(500, 4318)
    asked = {json.dumps(row["prompt"]) for row in train}
    other = [row for row in k.words(160, 5318) if json.dumps(row["prompt"]) not in asked]
    yield Case(name="word problems with evaluation prompts", rows=train, held_out=other[:100],
               reward=k.TAGGED, model=LLAMA)  # fmt: skip
    think = "Think between <think> and </think> first."
    yield Case(name="competition problems with a bonus for thoughts", reward=_SHAPED,
               rows=[{"prompt": t.chat(r["q"] + k.BOXED, think), "answer": r["a"]} for r in t.contest(400, 4319)])  # fmt: skip
    yield Case(name="multiple choice as a CSV", suffix=".csv", reward=k.LETTER,
               rows=[{"question": row["prompt"][0]["content"], "answer": row["answer"]} for row in k.exam(400, 4320)])  # fmt: skip


def with_results(count: int, seed: int) -> list[Row]:
    """Questions whose query returns something.

    In the first run, an empty query was right for an eighth of the rows; that alarm was right.
    """
    kept = []
    for row in k.queries(count + 100, seed):
        base = sqlite3.connect(":memory:")
        base.executescript(row["fill"])
        kept += [row] if base.execute(row["sql"]).fetchone() else []
        base.close()
    return kept[:count]


def _verl_rows(count: int, seed: int) -> list[Row]:
    """Documents in the columns that verl reads."""
    return [
        {"data_source": "offices", "prompt": row["prompt"], "ability": "qa",
         "reward_model": {"style": "rule", "ground_truth": row["answer"]},
         "extra_info": {"split": "train", "index": at}}
        for at, row in enumerate(k.records(count, seed))
    ]  # fmt: skip
