"""Results on lines of their own, between lines that count the iterations."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.console_text import rows_of, written

SHOWN = (
    "Question: how many plums are left?\n"
    "Generation: Let me count them.\n"
    "There are two.\n"
    "Metrics: {'format_reward': 1.0, 'answer_reward': %d.0, 'reward': %d.0}\n"
)
"""A displayed response with its rewards."""


def counted(iteration: int, passes: int = 3) -> str:
    return "".join(
        f"GRPO Iteration: {iteration} Epoch: 0 Microbatch: {each} / {passes}\n"
        for each in range(passes)
    )


def series(text: str, tmp_path: Path, metric: str) -> dict[int, float | None]:
    steps = open_run(written(text, tmp_path)).steps
    return {
        step.step: scalar(step.values[metric]) for step in steps if metric in step.values
    }  # fmt: skip


def iterations(count: int) -> str:
    """The result precedes the lines of its iteration; every second iteration is evaluated."""
    text = ""
    for each in range(count):
        text += f"histogram: {{'right': {each}, 'wrong': {64 - each}}}\n"
        text += f"Percentage of correct examples:  {each / 64}\n{counted(each)}"
        if each % 2:
            text += f"GRPO Iteration {each}, Evaluating...\n"
            text += f"Percentage of correct examples:  {each / 128}\n" + SHOWN % (1, 1) * 4
    return text


def test_the_result_of_an_iteration_counts_and_not_the_displayed_responses(tmp_path: Path) -> None:
    text = iterations(12)
    assert series(text, tmp_path, "accuracy/train") == {each: each / 64 for each in range(12)}
    held_out = series(text, tmp_path, "accuracy/heldout")
    assert held_out == {each: each / 128 for each in range(1, 12, 2)}
    assert series(text, tmp_path, "reward/mean") == {}


def test_a_result_may_follow_the_lines_of_its_iteration(tmp_path: Path) -> None:
    text = "".join(f"{counted(each)}Mean reward: {each / 64}\n" for each in range(5))
    assert series(text, tmp_path, "reward/mean") == {each: each / 64 for each in range(5)}


def test_several_results_of_an_iteration_are_averaged(tmp_path: Path) -> None:
    text = "".join(f"{counted(each)}Reward: {each}\nReward: {each + 1}\n" for each in range(5))
    assert series(text, tmp_path, "reward/mean") == {each: each + 0.5 for each in range(5)}


def test_without_a_result_the_displayed_responses_of_an_iteration_are_averaged(
    tmp_path: Path,
) -> None:
    text = "".join(counted(each) + SHOWN % (1, 1) + SHOWN % (0, 0) for each in range(5))
    assert series(text, tmp_path, "reward/mean") == dict.fromkeys(range(5), 0.5)


@pytest.mark.parametrize(
    "text",
    [
        "".join(counted(each) for each in range(9)),  # nothing but the counter
        "".join(f"Mean reward: {each / 64}\n" for each in range(9)),  # no counter
        "".join(f"{counted(each)}Mean reward: {each / 64}\n" for each in range(2)),  # too few
        "".join(f"{counted(each % 2)}Mean reward: {each / 64}\n" for each in range(9)),
    ],
)
def test_a_result_needs_a_counter_that_rises(text: str, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        list(open_run(written(text, tmp_path)).steps)


def test_rows_with_a_step_come_before_results(tmp_path: Path) -> None:
    text = "".join(
        f"{counted(each)}Mean reward: 0.9\n{{'step': {each}, 'loss': 0.1, 'reward': 0.25}}\n"
        for each in range(6)
    )
    assert series(text, tmp_path, "reward/mean") == dict.fromkeys(range(6), 0.25)


def test_rows_of_a_trainer_that_shows_responses_are_kept(tmp_path: Path) -> None:
    """A reward function prints a response above each row of transformers."""
    text = "".join(
        f"{SHOWN.splitlines()[0]}\nResponse: two\n"
        f"{{'loss': 0.0, 'grad_norm': 0.0, 'reward': {each % 2}.0, 'kl': 0.0}}\n"
        for each in range(6)
    )
    assert [row.values["reward"] for row in rows_of(text, tmp_path)] == [0, 1, 0, 1, 0, 1]
