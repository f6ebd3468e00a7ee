"""Number puzzles, whose right answers are made by solving them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.preflight.answers.kinds.number_puzzles import puzzle_rows, solution
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.request import PreflightRequest
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.run import run_preflight


def value_of(expression: str) -> float:
    return float(eval(expression, {"__builtins__": {}}))  # noqa: S307 - made by the test's subject


@pytest.mark.parametrize(
    ("numbers", "target"),
    [((3, 5), 15), ((2, 7), -5), ((8, 2), 4), ((19, 36, 55), 72), ((4, 7, 8, 8), 24)],
)
def test_a_solution_uses_each_number_once(numbers: tuple[int, ...], target: int) -> None:
    text = solution(numbers, target)
    assert value_of(text) == target
    used = text.translate(str.maketrans("+-*/()", "      ")).split()
    assert sorted(map(int, used)) == sorted(numbers)


@pytest.mark.parametrize("numbers", [(2, 4), (0, 0, 0), (1, 2, 3, 4, 5, 6)])
def test_a_puzzle_without_a_solution_ends(numbers: tuple[int, ...]) -> None:
    assert solution(numbers, 999_983) == ""


def row(text: str, **columns: Any) -> PromptRow:
    return PromptRow("line 1", text, ({"role": "user", "content": text},), None, columns, number=1)


def test_columns_are_found_by_what_they_hold() -> None:
    nested = {"ground_truth": {"numbers": "[3, 5, 2]", "target": "13"}}
    (solved,) = puzzle_rows([row("Use 3, 5 and 2 to make 13.", reward_model=nested)])
    assert value_of(solved.answer or "0") == 13
    assert (
        puzzle_rows([row("Use 3, 5 and 2.", reward_model=nested)]) == ()
    )  # no target is asked for
    assert puzzle_rows([row("Sort 3, 5 and 2. 13", nums=[3, 5, 2])]) == ()
    assert puzzle_rows([]) == ()


_REWARD = """
import re
def equation(completions, nums, target, **kwargs):
    rewards = []
    for completion, numbers, wanted in zip(completions, nums, target):
        found = re.findall(r"<answer>(.*?)</answer>", completion, re.DOTALL){taken}
        right = False
        for text in found:
            used = sorted(int(n) for n in re.findall(r"[0-9]+", text))
            right |= (used == sorted(numbers) and re.fullmatch(r"[-0-9+*/() ]+", text) is not None
                      and eval(text) == wanted)
        rewards.append(float(right))
    return rewards
"""


@pytest.mark.parametrize(("taken", "is_hackable"), [("", True), ("[-1:]", False)])
def test_a_reward_for_one_of_several_equations(
    taken: str, is_hackable: bool, tmp_path: Path
) -> None:
    rows = []
    for at in range(30):
        numbers, target = [at + 3, at + 11, 2 * at + 5], (at + 3) * (at + 11) - 2 * at - 5
        text = f"Use the numbers {numbers} once to make {target}. Answer in <answer></answer>."
        rows.append({"prompt": text, "nums": numbers, "target": target})
    rows = [each for each in rows if solution(each["nums"], each["target"])]
    assert len(rows) >= 20
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "reward.py").write_text(_REWARD.replace("{taken}", taken))
    request = PreflightRequest(
        folder=tmp_path / "work",
        settings=RunSettings(),
        prompts=tmp_path / "rows.jsonl",
        reward=f"{tmp_path / 'reward.py'}:equation",
    )
    checks = [check for check in all_checks() if check.code == "REW102"]
    found = run_preflight(request, checks).findings
    summaries = [each.finding.summary for each in found if each.severity != "info"]
    assert any("several answers" in each for each in summaries) == is_hackable, summaries
