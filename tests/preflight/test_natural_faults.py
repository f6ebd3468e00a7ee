"""What the checks read of a table, a prompt, a config or a reward function, in small."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from grpodoctor.frameworks.complete_config import framework_of_config
from grpodoctor.preflight.answers.completions.reward_relations import limitless_growth
from grpodoctor.preflight.answers.kinds.tool_calls import tools_in_text
from grpodoctor.preflight.answers.kinds.unusable_answers import is_note
from grpodoctor.preflight.answers.requested.requested_formats import tag_layout
from grpodoctor.preflight.checks.data.duplicate_prompts import DuplicatePrompts
from grpodoctor.preflight.checks.data.missing_media import _marks_medium
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.alignment import partial_shift_of_sizes
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.planted.thirteenth_tables import gsm

RewardOf = Callable[..., UserReward]


def _table(seed: int) -> tuple[list[str], list[float]]:
    rows = gsm(500, seed)
    return [row["question"] for row in rows], [float(row["final"]) for row in rows]


def test_displaced_numbers_of_several_formulas_are_located() -> None:
    prompts, answers = _table(1)
    moved = [answers[at] if at < 330 else answers[(at + 1) % 500] for at in range(500)]
    found = partial_shift_of_sizes(prompts, moved)
    assert found is not None
    assert abs(found.start - 330) < 10
    assert found.stop > 480
    assert found.shift.rows == -1


def test_a_number_of_hundreds_of_digits_hides_no_displacement() -> None:
    prompts, answers = _table(1)
    moved = [answers[at] if at < 330 else answers[(at + 1) % 500] for at in range(500)]
    huge = [f"{prompts[0]} {'9' * 400}", *prompts[1:]]
    assert partial_shift_of_sizes(huge, moved) is not None
    assert partial_shift_of_sizes(prompts, [math.inf, *moved[1:]]) is None


@pytest.mark.parametrize("kind", ["right", "sorted", "random", "walk", "half", "members"])
def test_other_tables_are_not_displaced(kind: str) -> None:
    prompts, answers = _table(2)
    rng = random.Random(3)
    if kind == "sorted":
        pairs = sorted(zip(prompts, answers, strict=True), key=lambda pair: pair[1])
        prompts, answers = [one for one, _ in pairs], [other for _, other in pairs]
    elif kind == "random":
        answers = [rng.expovariate(0.01) for _ in answers]
    elif kind == "walk":
        steps = [rng.gauss(0, 5) for _ in answers]
        answers = [sum(steps[: at + 1]) for at in range(len(steps))]
    elif kind == "half":
        answers = [each if at < 250 else rng.randint(1, 400) for at, each in enumerate(answers)]
    elif kind == "members":  # the prediction is too low for all rows of a part
        prompts = [f"A progression begins with 3, difference 4. Member {at}?" for at in range(150)]
        answers = [3.0 + 4 * at for at in range(150)]
    assert partial_shift_of_sizes(prompts, answers) is None


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("In the figure below, the chord has length 3.", True),
        ("The graph of $f$ is shown. Find $f(2)$.", True),
        ("The floor plan is given in the diagram.", True),
        ("A balloon is drawn at random; see the table below.", False),
        ("In the figure below,\n[asy]draw((0,0)--(1,1));[/asy]", False),
        ("Draw a picture of the graph shown here.", False),
        ("The graph below has the edges 1-2 and 2-3.", False),
        ("The graph of a function is a set of points.", False),
        ("Figure out how much is left.", False),
        ("The image of the map is a subgroup.", False),
    ],
)
def test_words_that_point_to_a_picture(text: str, points: bool) -> None:
    assert _marks_medium(PromptRow("line 1", text)) is points


def test_tools_of_a_system_message() -> None:
    text = (
        'You have these tools:\n{"name": "sum", "parameters": {"a": {}}}\n'
        '{"type": "function", "function": {"name": "now", "parameters": {}}}\n'
        'Answer like {"name": "sum", "arguments": {"a": 1}} or {"name": ...}.'
    )
    assert set(tools_in_text([text])) == {"sum", "now"}


@pytest.mark.parametrize(
    ("answer", "is_one"),
    [("notfound", True), ("not found", True), ("Answer not given.", True), ("unknown", False),
     ("not", False), ("found", False)],
)  # fmt: skip
def test_notes_in_place_of_answers(answer: str, is_one: bool) -> None:
    assert is_note(answer) is is_one


def test_the_layout_of_tags() -> None:
    shown = "Use\n<think>\n...\n</think>\n<answer>\n...\n</answer>\n"
    assert tag_layout([shown] * 3) == ("think", "answer")
    assert tag_layout(["<answer>...</answer> <think>...</think>"] * 3) == ()
    assert tag_layout([shown, "2+2", "3+3"]) == ()


_LENGTHS = """
def away(completions, **kwargs):
    return [abs(200 - len(each)) for each in completions]
def near(completions, **kwargs):
    return [-abs(200 - len(each)) for each in completions]
def some(completions, **kwargs):
    return [min(len(each.split()), 300) / 300 for each in completions]
"""


@pytest.mark.parametrize(("name", "grows"), [("away", True), ("near", False), ("some", False)])
def test_a_reward_that_grows_without_a_limit(reward_of: RewardOf, name: str, grows: bool) -> None:
    rows = [PromptRow(f"line {at}", "Write about 200 characters.") for at in range(8)]
    assert (limitless_growth(reward_of(_LENGTHS, name), rows) > 1.5) is grows


def test_a_config_of_two_frameworks_is_told_by_its_facts() -> None:
    shared = {"learning_rate": 1e-6, "num_generations": 8, "max_completion_length": 512}
    named = {**shared, "model_name_or_path": "Qwen/Qwen2.5-1.5B", "max_prompt_length": 256}
    assert framework_of_config(named).name == "trl"


@pytest.mark.parametrize(
    ("prompt", "severity"),
    [("Solve this: {question}", "critical"), ("Guess the hidden word.", "warning")],
)
def test_one_prompt_with_many_answers_is_fatal_if_its_placeholder_is_unfilled(
    prompt: str, severity: str
) -> None:
    rows = [
        PromptRow(prompt=prompt, location=f"row {index}", answer=str(index)) for index in range(40)
    ]
    (found,) = DuplicatePrompts()._repeated([rows], len(rows))
    assert found.severity == severity
