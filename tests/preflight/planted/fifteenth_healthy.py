"""Sixteen sound sets of the fifteenth examination."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import GEMMA, LLAMA

_SAN = r"""
import json, re
def move_reward(completions, best, **kwargs):
    rewards = []
    for completion, right in zip(completions, best):
        text = completion[-1]["content"]
        found = re.findall(r'\{[^{}]*\}', text)
        try:
            given = json.loads(found[-1])["move"] if found else None
        except (ValueError, KeyError, TypeError):
            given = None
        clean = given.strip().rstrip("+#!?") if isinstance(given, str) else ""
        rewards.append(1.0 if clean and clean == right else 0.0)
    return rewards
"""
_LEGAL = r"""
import re
def move_reward(completions, move, **kwargs):
    rewards = []
    for completion, right in zip(completions, move):
        found = re.findall(r"<move>(.*?)</move>", completion[-1]["content"], re.DOTALL)
        given = found[0].strip().lower() if len(found) == 1 else ""
        rewards.append(1.0 if given == right else 0.0)
    return rewards
"""
_GRADE = r"""
import re
def agreement(completions, grade, **kwargs):
    rewards = []
    for completion, right in zip(completions, grade):
        found = re.findall(r"Grade:\s*(correct|incorrect)\b", completion[-1]["content"], re.IGNORECASE)
        rewards.append(1.0 if len(found) == 1 and found[0].lower() == right else 0.0)
    return rewards
"""


def fifteenth_healthy() -> tuple[Case, ...]:
    """Sixteen sets without a mistake, in two halves of eight."""
    return (*_first(), *_second())


def _first() -> Iterator[Case]:
    yield Case(name="words to sort and turn", rows=w.edits(300, 6201), reward=w.EDIT)
    yield Case(name="the best move in UCI", rows=w.positions(240, 6202), reward=w.UCI, model=LLAMA)
    yield Case(name="orders of two turns with a TRL config", rows=k.dialogs(300, 6203), reward=k.TOTAL,
               run_config=trl(), framework="trl")  # fmt: skip
    yield Case(name="numbers from physics", rows=w.physics(300, 6204), reward=w.TAGGED, suffix=".parquet")  # fmt: skip
    yield Case(name="mails with a reason and a label", rows=w.tickets(300, 6205), reward=w.LABEL)
    yield Case(name="the best move as JSON", reward=_SAN, rows=[
        {"prompt": t.chat(f"FEN: {r['q']}\nWhich move wins the queen? Explain it in one sentence, then answer with JSON such as {{\"move\": \"Nf3\"}}."), "best": r["san"]}
        for r in f.positions(240, 6206)])  # fmt: skip
    yield Case(
        name="multiple choice in a box", rows=w.quiz(300, 6207), reward=w.LETTER, model=GEMMA
    )
    yield Case(name="programs that read a line", rows=w.counters(90, 6208), reward=k.STDIN)


def _second() -> Iterator[Case]:
    yield Case(name="the best move in any case", rows=w.positions(240, 6211), reward=_LEGAL,
               framework="verl", run_config=verl(), suffix=".parquet")  # fmt: skip
    yield Case(name="two responses to compare", rows=w.pairs(300, 6212), reward=w.VERDICT)
    yield Case(name="sentences into German", rows=w.german(300, 6213), reward=k.CHRF, model=LLAMA)
    ask = (
        "Is the response right? Work it out, then end with 'Grade: correct' or 'Grade: incorrect'."
    )
    graded = []
    for at, r in enumerate(f.pairs(300, 6214)):
        lines = r["q"].split("\n\n")
        label = "correct" if r["key"] == "AB"[at % 2] else "incorrect"
        text = lines[1 + at % 2].split(": ", 1)[1]
        graded.append(
            {"prompt": t.chat(f"{lines[0]}\n\nResponse: {text}\n\n{ask}"), "grade": label}
        )
    graded = list({row["prompt"][0]["content"]: row for row in graded}.values())
    yield Case(name="a response to grade", rows=graded, reward=_GRADE)
    yield Case(name="three languages with thoughts", rows=w.italian(300, 6215), reward=w.TAGGED,
               run_config=trl(num_generations=4), framework="trl")  # fmt: skip
    yield Case(
        name="calls with tools in the system message", rows=w.calls(240, 6216), reward=w.CALL
    )
    tools = [f.schema(name) for name in f.TOOLS]
    yield Case(name="calls with tools in a column", reward=w.CALL, suffix=".json", rows=[
        {"prompt": t.chat(r["q"], 'Answer with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'), "tools": json.dumps(tools),
         "call": json.dumps({"name": r["name"], "arguments": r["arguments"]})} for r in f.requests(240, 6217)])  # fmt: skip
    yield Case(name="bullet points with rules", rows=w.notes(200, 6218), reward=w.NOTES)
