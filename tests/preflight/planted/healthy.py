"""Healthy sets: no check may warn."""

from __future__ import annotations

from dataclasses import replace

from tests.preflight.planted import tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, CHATML, GEMMA, LLAMA
from tests.preflight.planted.rewards import (
    BOXED_VALUE,
    LETTER,
    MATH_TRL,
    TEXT_VALUE,
    VERL_GSM8K,
)

INSTRUCTION = "Solve the problem. Put the final answer after ####.\n\n"
TESTED = """
import signal
def _stop(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, _stop)
def score(completions, test_list, **kwargs):
    rewards = []
    for completion, tests in zip(completions, test_list):
        text = completion[0]["content"] if isinstance(completion, list) else completion
        code = text.split("```python")[-1].split("```")[0]
        scope = {"__builtins__": {}}
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            exec(code, scope)
            for test in tests:
                exec(test, scope)
            rewards.append(1.0)
        except BaseException:
            rewards.append(0.0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return rewards
"""


def capitals(count: int, seed: int = 8) -> list[t.Row]:
    """Questions with words as answers."""
    return [
        {
            "prompt": [{"role": "user", "content": f"{row['question']} Answer in <answer> tags."}],
            "answer": row["choices"]["text"]["ABCD".index(row["answerKey"])],
        }
        for row in t.choices(count, seed)
    ]


def all_healthy() -> tuple[Case, ...]:
    """Ten sets in ten layouts."""
    problems, others = t.word_problems(300, 11), t.word_problems(60, 12)
    code = [
        {"prompt": [{"role": "user", "content": row["prompt"]}], "answer": row["code"],
         "test_list": row["test_list"]}
        for row in t.functions(150, 13)
    ]  # fmt: skip
    return (
        Case(name="gsm8k, trl, chatml", rows=t.trl(problems, INSTRUCTION),
             held_out=t.trl(others, INSTRUCTION), reward=MATH_TRL),
        Case(name="gsm8k, verl parquet, llama", rows=t.verl(problems), held_out=t.verl(others),
             suffix=".parquet", model=LLAMA, reward=VERL_GSM8K),
        Case(name="math, latex, boxed", rows=t.latex_problems(300, 14), reward=BOXED_VALUE,
             held_out=t.latex_problems(60, 15), model=GEMMA),
        Case(name="balanced multiple choice", rows=t.choices(240, 16), reward=LETTER, model=LLAMA),
        Case(name="code with tests", rows=code, reward=TESTED),
        Case(name="tool use", rows=t.tool_tasks(120, 17), reward=MATH_TRL.replace("solution", "answer")),
        Case(name="multilingual, six languages", rows=t.multilingual(300, seed=18),
             reward=MATH_TRL.replace("solution", "answer_number").replace("_number(s)", "float(s)")),
        Case(name="base model, csv", model=BASE, suffix=".csv", held_out=others,
             rows=[{"question": row["question"], "answer": t.final(row)} for row in problems],
             reward=MATH_TRL.replace("solution", "answer")),
        Case(name="words as answers", rows=capitals(200), reward=TEXT_VALUE.replace(
            "_last(t)", "_last(t[0]['content'])")),
        Case(name="gsm8k, json, plain columns", suffix=".json", model=replace(CHATML),
             rows=t.word_problems(200, 19), held_out=t.word_problems(40, 20)),
    )  # fmt: skip
