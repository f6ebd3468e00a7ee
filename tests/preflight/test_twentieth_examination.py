"""In the sound sets of the twentieth examination, right responses earn more than others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.planted.cases import examine
from tests.preflight.planted.scored import named, reward_function, rewards_of
from tests.preflight.planted.tables import Row
from tests.preflight.planted.twentieth_examination import (
    healthy_first,
    healthy_second,
    twentieth_healthy,
)

SOUND = {case.name: case for case in twentieth_healthy()}


def test_the_halves_have_the_stated_sizes() -> None:
    assert len(healthy_first()) == len(healthy_second()) == 24
    assert len(SOUND) == 48


_FORMS: list[tuple[str, str, float]] = [
    ("incident", "<label>{label}</label>", 0),
    ("adverts", "```json\n{fields}\n```", 0),
    ("Spanish", "{reference}", 0),
    ("thirty", "{summary}", 0),
    ("minutes", "<answer>{answer}</answer>", 0),
    ("paraphrases", "{paraphrase}", 0),
    ("persons and places", "Entities: {entities}", 0),
    ("to correct", "<corrected>{corrected}</corrected>", 0),
    ("entailment", "<answer>{answer}</answer>", 0),
    ("crossword", "Word: {word}", 0),
    ("French", "<couleur>{couleur}</couleur>", 0),
    ("to refuse", "Decision: {decision}", -1),
    ("matrices", "\\boxed{{answer}}", 0),
    ("forecasts", "<forecast>{target}</forecast>", -10),
    ("dates", "Date: {date}", 0),
    ("polynomials", "\\boxed{{answer}}", 0),
    ("other bases", "#### {answer}", 0),
    ("any unit", "\\boxed{{answer}}", 0),
    ("letters to count", '{"count": {count}}', 0),
    ("several right", "Answer: {letters}", 0),
    ("percent", "<answer>{answer}</answer>", 0),
    ("20,000", "\\boxed{{answer}}", 0),
    ("logic grids", "```json\n{solution}\n```", 0),
    ("two examples", "<output>{grid}</output>", 0),
    ("joins", "```sql\n{query}\n```", 0),
    ("expressions", "<regex>{pattern}</regex>", 0),
    ("bodies", "{canonical_solution}", 0),
    ("crontab", "Schedule: `{schedule}`", 0),
    ("Lean", "```lean\nexact {lemma}\n```", 0),
    ("fits no tool", "{call}", 0),
    ("thoughts", "<think>\n</think>\\boxed{{answer}}", 0),
    ("swift", "[[{train}]]", 0),
    ("three turns", "Total: {total}", 0),
    ("handbook", "Paragraph: §{paragraph}", 0),
    ("R1-Zero", "One adds.</think> <answer>{answer}</answer>", 0),
]


@pytest.mark.parametrize(("words", "form", "lowest"), _FORMS, ids=[form[0] for form in _FORMS])
def test_right_responses_earn_the_reward(words: str, form: str, lowest: float) -> None:
    case = named(SOUND, words)
    for at in (0, 1, 5, len(case.rows) - 1):
        right = form
        for name, value in case.rows[at].items():
            right = right.replace(f"{{{name}}}", str(value))
        if isinstance(case.rows[at]["prompt"], str):
            columns = {key: [value] * 2 for key, value in case.rows[at].items() if key != "prompt"}
            rewards = reward_function(case)(
                prompts=[case.rows[at]["prompt"]] * 2, completions=[right, "No idea."], **columns
            )
        else:
            rewards = rewards_of(case, [right, "No idea."], at)
        assert lowest <= rewards[1] < lowest + 0.2
        assert rewards[0] > lowest + 0.6


def _edit(row: Row) -> str:
    return (
        f"### {row['path']}\n<<<<<<< SEARCH\n{row['code'].rstrip()}\n=======\n"
        f"{row['fixed'].rstrip()}\n>>>>>>> REPLACE"
    )


@pytest.mark.parametrize(
    ("words", "response"),
    [
        ("chemistry", lambda row: f"Coefficients: {', '.join(map(str, row['coefficients']))}"),
        ("tic-tac-toe", lambda row: f"Move: {row['moves'][-1]}"),
        ("acrostics", lambda row: "\n".join(f"{c}ut grows {c}ot by {c}ark" for c in row["word"])),
        ("patches", _edit),
        ("mazes", lambda row: f"<path>{_way(row['maze'])}</path>"),
    ],
    ids=["chemistry", "tic-tac-toe", "acrostics", "patches", "mazes"],
)
def test_constructed_responses_earn_the_reward(words: str, response: Callable[[Row], str]) -> None:
    case = named(SOUND, words)
    for at in range(12):
        rewards = rewards_of(case, [response(case.rows[at]), "No idea."], at)
        assert rewards[0] == 1.0
        assert rewards[1] <= 0.0


def _way(maze: str) -> str:
    """A shortest way through a maze."""
    grid = maze.splitlines()
    steps = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
    places = {
        char: (row, column) for row, line in enumerate(grid) for column, char in enumerate(line)
    }
    ways, seen = [(places["S"], "")], {places["S"]}
    for (row, column), way in ways:
        if (row, column) == places["G"]:
            return way
        for name, (down, right) in steps.items():
            at = (row + down, column + right)
            inside = 0 <= at[0] < len(grid) and 0 <= at[1] < len(grid[0])
            if inside and at not in seen and grid[at[0]][at[1]] != "#":
                seen.add(at)
                ways.append((at, way + name))
    raise AssertionError(maze)


@pytest.mark.parametrize(
    ("words", "form"),
    [("charts", "\\boxed{GOLD}"), ("knights", "<think>a</think> <answer>GOLD</answer>"),
     ("curriculum", "#### GOLD"), ("parallel", "")],
)  # fmt: skip
def test_functions_of_verl_score_right_responses(words: str, form: str) -> None:
    case = named(SOUND, words)
    gold = case.rows[4]["reward_model"]["ground_truth"]
    if not form:
        calls = map(json.dumps, reversed(json.loads(gold)))
        form = "".join(f"<tool_call>{call}</tool_call>" for call in calls)
    score = reward_function(case)
    assert _value(score("", form.replace("GOLD", gold), gold)) >= 1.0
    assert _value(score("", "No idea.", gold)) <= 0.0


def _value(scored: Any) -> float:
    return float(scored["score"] if isinstance(scored, dict) else scored)


def test_tasks_take_turns() -> None:
    case = named(SOUND, "None for")
    right = "\\boxed{" + case.rows[1]["answer"] + "}"
    assert rewards_of(case, [right, "\\boxed{1}"], 1) == [1.0, 0.0]
    assert rewards_of(case, [right], 0) == [None]
    case = named(SOUND, "asynchronous")
    gold = case.rows[0]["answer"]
    said = [[{"role": "assistant", "content": f"Town: {gold}"}]]
    scored = reward_function(case)(completions=said, task=["geography"], answer=[gold])
    assert asyncio.run(scored) == [1.0]


_CODES = ("DAT107", "DAT108", "DAT126", "REW101", "REW102", "REW103", "REW104")


@pytest.mark.parametrize("words", ["64 crossword", "tic-tac-toe", "fits no tool", "thoughts"])
def test_sound_sets_have_no_alarm(words: str, tmp_path: Path) -> None:
    examined = examine(named(SOUND, words), tmp_path, _CODES)
    assert not examined.alarms
    assert not examined.error
