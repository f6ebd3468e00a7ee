"""Twelve sound sets of the seventeenth examination."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.fourteenth_healthy import with_results
from tests.preflight.planted.models import GEMMA, LLAMA

_GRADE = r"""
import re
def graded(completions, label, **kwargs):
    rewards = []
    for completion, right in zip(completions, label):
        found = re.findall(r"<verdict>\s*([AB])\s*</verdict>", completion[-1]["content"], re.IGNORECASE)
        rewards.append(1.0 if len(found) == 1 and found[0].upper() == right else 0.0)
    return rewards
"""
_ALL_TESTS = k.STDIN.replace("def accepted(", "def _accepted(") + (
    r"""
def all_tests(completions, inputs, outputs, **kwargs):
    scores = _accepted(completions, inputs, outputs)
    return [score if len(c[-1]["content"]) < 20000 else 0.0 for score, c in zip(scores, completions)]
"""
)
_GERMAN_F = k.CHRF.replace("def chrf(", "def _chrf(") + (
    r"""
def sentence_reward(completions, reference, **kwargs):
    scores = _chrf(completions, reference)
    return [score if len(c[-1]["content"]) < 400 else 0.0 for score, c in zip(scores, completions)]
"""
)
_LINE = r"""
import re
def line_reward(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[-1]["content"].replace(",", "").replace("*", "").replace("$", "")
        found = re.findall(r"(?:final )?answer(?: is)?\s*:?\s*(-?\d+(?:\.\d+)?)", text, re.IGNORECASE)
        rewards.append(1.0 if found and float(found[-1]) == float(gold) else 0.0)
    return rewards
"""
_SCORE = _GRADE.replace("graded(", "compare(").replace(
    r"<verdict>\s*([AB])\s*</verdict>", r"\[\[\s*([AB])\s*\]\]"
)


def seventeenth_healthy() -> tuple[Case, ...]:
    """Twelve sets without a mistake, in two halves of six."""
    return (*healthy_first(), *healthy_second())


def healthy_first() -> Iterator[Case]:
    """Six sound sets of the first half."""
    yield Case(
        name="word problems with an answer line", reward=_LINE, framework="trl", run_config=trl(),
        rows=[{"prompt": t.chat(r["q"] + "\nThink step by step. Write the result in a last line 'Final answer: N'."), "answer": str(r["a"])} for r in f.school(400, 8101)],
    )  # fmt: skip
    yield Case(
        name="articles with summaries for Llama", rows=w.articles(240, 8103), reward=w.ROUGE,
        model=LLAMA, framework="trl", run_config=trl(max_completion_length=512),
    )  # fmt: skip
    yield Case(
        name="programs with a limit of length", rows=k.programs(160, 8105), reward=_ALL_TESTS,
    )  # fmt: skip
    yield Case(
        name="queries with their results", rows=with_results(240, 8107), reward=k.SQL, model=GEMMA,
        framework="verl", run_config=verl(),
    )  # fmt: skip
    yield Case(
        name="word problems in verl's layout",
        rows=[{"data_source": "openai/gsm8k", "prompt": row["prompt"], "ability": "math",
               "reward_model": {"style": "rule", "ground_truth": str(r["a"])}, "extra_info": {"index": at, "split": "train"}}
              for at, (row, r) in enumerate(zip(w.school(400, 8109), f.school(400, 8109), strict=True))],
        suffix=".parquet", framework="verl", run_config=verl(),
        reward='''
import re
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"####\\s*\\$?(-?[\\d,]*\\.?\\d+)", solution_str)
    try:
        return float(bool(found) and float(found[-1].replace(",", "")) == float(ground_truth))
    except ValueError:
        return 0.0
''',
    )  # fmt: skip
    yield Case(
        name="sentences with a limit of length", rows=k.sentences(300, 8111), reward=_GERMAN_F.replace("sentence_reward", "french_reward"),
    )  # fmt: skip


def healthy_second() -> Iterator[Case]:
    """Six sound sets of the second half."""
    compare = "Compare the two responses. Explain what is wrong with the worse one, then write <verdict>A</verdict> or <verdict>B</verdict>."
    yield Case(
        name="verdicts in tags", reward=_GRADE, model=LLAMA,
        rows=[{"prompt": t.chat(r["q"], compare), "label": r["key"]} for r in f.pairs(300, 8102)],
    )  # fmt: skip
    yield Case(
        name="word problems in four languages with a box", rows=k.foreign(400, 8104), reward=k.BOX,
        framework="trl", run_config=trl(num_generations=16, per_device_train_batch_size=16),
    )  # fmt: skip
    yield Case(
        name="sentences into German for Gemma", rows=w.german(300, 8106), reward=_GERMAN_F,
        model=GEMMA,
    )  # fmt: skip
    steps = [{**row, "solution": r["steps"]} for row, r in zip(w.physics(300, 8108), f.physics(300, 8108), strict=True)]  # fmt: skip
    yield Case(
        name="physics with its solutions", rows=steps, reward=w.TAGGED, framework="verl",
        run_config=verl(),
    )  # fmt: skip
    yield Case(
        name="programs that read a line, with code tags", rows=w.counters(90, 8110),
        reward=k.STDIN, suffix=".json",
    )  # fmt: skip
    judged = [
        {"prompt": t.chat(json.dumps({"question": r["question"], **_responses(r["q"])}, indent=1), "You are a strict judge of two responses, given as JSON. Reason briefly, then end with [[A]] or [[B]]."), "label": r["key"]}
        for r in f.pairs(300, 8112)
    ]  # fmt: skip
    yield Case(name="two responses in JSON", rows=judged, reward=_SCORE)


def _responses(text: str) -> dict[str, str]:
    """The two responses of a text of `pairs`."""
    found = re.findall(r"Response ([AB]): (.*)", text)
    return {f"response_{name.lower()}": words for name, words in found}
