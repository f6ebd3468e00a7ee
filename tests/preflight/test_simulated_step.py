"""The first step with simple responses, rows in order, and answers that are found elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations, count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.preflight.answers.completions import simulated_step
from grpodoctor.preflight.answers.completions.simulated_step import (
    CUT,
    EMPTY,
    RIGHT,
    WRONG,
    simulate_step,
)
from grpodoctor.preflight.answers.inferred_answers import infer_answers
from grpodoctor.preflight.answers.kinds.reached_targets import ReachedTargets
from grpodoctor.preflight.answers.kinds.undeserving_answers import values_alone
from grpodoctor.preflight.answers.reference_answers import score_reference_answers
from grpodoctor.preflight.answers.requested.decimal_notation import with_other_decimals
from grpodoctor.preflight.answers.requested.source_tags import fences_read
from grpodoctor.preflight.checks.reward.negative_weight import NegativeWeight
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.reward_weights import reward_weights
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, SkippedCheck
from grpodoctor.preflight.texts.exchanged_columns import exchanged_columns
from grpodoctor.trainer.rewards.returned_values import RewardValues
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.planted import eighteenth_rewards as w
from tests.preflight.planted import eighteenth_sets as s

RewardOf = Callable[..., UserReward]
FindingsOf = Callable[[str, PreflightContext], list[CheckFinding]]

_SUMS = """
import re
def reward(completions, answer, **kwargs):
    texts = [c[-1]["content"] if isinstance(c, list) else c for c in completions]
    found = [re.findall(r"#### (-?[0-9]+)", text) for text in texts]
    return [float(bool(f) and f[-1] == str(a)) for f, a in zip(found, answer)]
"""


def _rows(count: int, first: int = 10) -> tuple[PromptRow, ...]:
    numbers = range(first, first + count)
    return tuple(
        PromptRow(
            f"line {n}", f"What is {n} + 1?", answer=str(n + 1), columns={"answer": str(n + 1)}
        )
        for n in numbers
    )  # fmt: skip


def test_the_advantages_are_those_of_the_groups(reward_of: RewardOf) -> None:
    reward, rows, settings = reward_of(_SUMS), _rows(40), RunSettings(batch_prompts=16)
    answers = score_reference_answers(reward, rows, settings)
    assert answers is not None
    step = simulate_step(reward, answers, rows, settings, is_shuffled=False)
    assert [row.location for row in step.rows] == [row.location for row in rows[:16]]
    assert (step.scored, step.group_size, step.leading, step.silent) == (16, 8, 16, [])
    # Two of eight rewards are 1: mean 1/4, standard deviation sqrt(8/7 * 1/4 * 3/4).
    spread = (8 / 7 * 3 / 16) ** 0.5
    assert step.mean_advantage(RIGHT) == pytest.approx(0.75 / spread)
    for kind in (WRONG, EMPTY, CUT):
        assert step.mean_advantage(kind) == pytest.approx(-0.25 / spread)
    shuffled = simulate_step(reward, answers, rows, settings, is_shuffled=True)
    assert [row.location for row in shuffled.rows] != [row.location for row in step.rows]


def test_a_slow_function_scores_few_responses(
    reward_of: RewardOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward, rows, settings = reward_of(_SUMS), _rows(40), RunSettings(batch_prompts=16)
    answers = score_reference_answers(reward, rows, settings)
    assert answers is not None
    calls: list[int] = []

    def slow(inputs: Sequence[PromptRow], texts: Sequence[str]) -> RewardValues:
        calls.append(len(texts))
        return reward(inputs, texts)

    ticks = count(step=8.0)  # seconds per call, so 2 for each of the first four responses
    monkeypatch.setattr(simulated_step, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    step = simulate_step(cast("UserReward", slow), answers, rows, settings, is_shuffled=False)
    assert calls == [4, 4]
    assert (step.scored, step.group_size, step.leading) == (1, 8, 1)
    assert step.seconds == pytest.approx(8.0 * 16 * 8 / 4)


def test_a_first_step_without_a_signal_is_a_warning(
    reward_of: RewardOf, findings_of: FindingsOf
) -> None:
    rows = _rows(96)
    unpaid = tuple(
        PromptRow(row.location, row.prompt, answer="unknown", columns={"answer": "unknown"})
        for row in rows[:20]
    )
    for begin, shuffled, severity in (
        (unpaid, False, "warning"), (unpaid, None, "info"), ((), False, "info"),
    ):  # fmt: skip
        context = PreflightContext(
            files=None, rows=(*begin, *rows), reward=reward_of(_SUMS),
            settings=RunSettings(batch_prompts=16),
            run_config={} if shuffled is None else {"shuffled_data": shuffled},
        )  # fmt: skip
        (finding,) = findings_of("GRP103", context)
        assert finding.severity == severity
        assert finding.figures["silent"] == (16 if begin else 0)
        assert "16 prompts" in finding.details[0]


@pytest.mark.parametrize(
    ("labels", "severities"),
    [
        ([*"AAAABBBB" * 20], []),
        (sorted("ABCD" * 40), ["warning"]),
        ([str(3 * n * n) for n in range(160)], ["info"]),
        ([str(n) for n in range(160)], []),
    ],
)
def test_rows_in_order_are_reported_without_shuffling(
    labels: list[str], severities: list[str], findings_of: FindingsOf
) -> None:
    rows = tuple(
        PromptRow(f"line {at}", f"question {at}", answer=label, columns={"answer": label})
        for at, label in enumerate(labels)
    )
    for is_shuffled in (False, True):
        context = PreflightContext(
            files=None, rows=rows, settings=RunSettings(),
            run_config={"shuffled_data": is_shuffled},
        )  # fmt: skip
        found = findings_of("DAT129", context)
        assert [each.severity for each in found] == ([] if is_shuffled else severities)


@pytest.mark.parametrize(
    ("name", "values", "severities"),
    [
        ("level", sorted([1, 2, 3, 4] * 40), ["info"]),
        ("difficulty", ["easy"] * 80 + ["medium"] * 40 + ["hard"] * 40, ["info"]),
        ("has_image", [at in {30, 90} for at in range(160)], []),
        ("problem_id", [at * at + 7 for at in range(160)], []),
        ("source", ["gsm8k"] * 100 + ["math"] * 60, ["warning"]),
        ("pass_rate", [1 / (at + 2) for at in range(160)], ["info"]),
    ],
)
def test_curricula_and_rare_kinds_are_no_sorted_data(
    name: str, values: list[object], severities: list[str], findings_of: FindingsOf
) -> None:
    rows = tuple(
        PromptRow(f"line {at}", f"question {at}", answer=None, columns={name: value})
        for at, value in enumerate(values)
    )
    context = PreflightContext(
        files=None, rows=rows, settings=RunSettings(), run_config={"shuffled_data": False}
    )
    assert [each.severity for each in findings_of("DAT129", context)] == severities


@pytest.mark.parametrize(
    ("framework", "key"), [("trl", "shuffle_dataset"), ("verl", "data.shuffle")]
)
def test_shuffling_is_read_from_the_config(framework: str, key: str) -> None:
    table = configurable_framework_named(framework).knobs
    assert table.read_facts({key: False})["shuffled_data"] is False
    assert table.defaults["shuffled_data"] is True


@pytest.mark.parametrize(
    "numbers", [(3, 5, 2), (4, 7, 8, 8), (1, 2, 3, 4, 5), (9, 8, 25, 50, 3, 7)]
)
def test_targets_are_reached_with_some_of_the_numbers(numbers: tuple[int, ...]) -> None:
    targets = ReachedTargets(numbers)
    a, b, *_, c = numbers
    wanted = {2: a * c, 3: (a + b) * c if len(numbers) > 3 else a + b - c}
    for size, target in wanted.items():
        found = targets.with_some(size, target)
        used = sorted(map(int, found.translate(str.maketrans("+-*/()", " " * 6)).split()))
        assert used in [sorted(part) for part in combinations(numbers, size)]
        assert eval(found, {"__builtins__": {}}) == target  # noqa: S307 - the test's subject
    assert targets.with_some(2, 10**9) == ""


def test_answers_are_found_under_another_name(reward_of: RewardOf) -> None:
    source = _SUMS.replace("answer, **kwargs", "answer=None, **kwargs").replace(
        "    texts", '    answer = answer or [""] * len(completions)\n    texts'
    )
    rows = tuple(
        PromptRow(row.location, row.prompt, columns={"question": row.prompt, "total": row.answer},
                  prompt_column="question")
        for row in _rows(30)
    )  # fmt: skip
    inferred = infer_answers(reward_of(source), rows, RunSettings())
    assert inferred is not None
    assert inferred.column == "total"
    assert inferred.rows[0].answer == rows[0].columns["total"]


def test_a_column_named_query_may_hold_answers(reward_of: RewardOf) -> None:
    rows = tuple(
        PromptRow(f"line {at}", row["prompt"][-1]["content"], answer=None, columns=row,
                  messages=tuple(row["prompt"]), prompt_column="prompt")
        for at, row in enumerate(s.query_rows(24, 7))
    )  # fmt: skip
    inferred = infer_answers(reward_of(w.SQL, "query_reward"), rows, RunSettings())
    assert inferred is not None
    assert inferred.column == "query"


def test_fences_of_the_source_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rewards.py"
    path.write_text('import re\nP = r"```(?:json)?\\n(.*?)```"\nQ = "```SQL\\n"\nR = "``` x"\n')
    assert fences_read(f"{path}:reward") == ("json", "sql")
    assert fences_read("package.module:reward") == ()


@pytest.mark.parametrize(
    ("prompt", "value", "is_other"),
    [
        ("Total: 1,234.56 EUR", "1.234,56", True),
        ("Total: 1234.56 EUR", "1234,56 \u20ac", True),
        ("Total: 1.234,56 EUR", "1.234,56", False),
        ("Total: 1234.56, as in 9,99", "1.234,56", False),
        ("Total: 1234.56", "1234.56", False),
        ("Points 3.5 and 7", "3, 5", False),
    ],
)
def test_a_decimal_comma_for_a_decimal_point(prompt: str, value: str, is_other: bool) -> None:
    found = with_other_decimals([prompt] * 30, [value] * 30)
    assert found == (list(range(30)) if is_other else [])


@pytest.mark.parametrize(
    ("settings", "severities"),
    [
        ({"reward_funcs": ["accuracy", "format"], "reward_weights": [1.0, -0.5]}, ["warning"]),
        ({"reward_funcs": "accuracy length_penalty", "reward_weights": "1.0 -0.5"}, []),
        ({"reward_weights": [1.0, 0.0, -2]}, ["info", "info"]),
        ({"reward_funcs": "['acc', 'num_tool_calls']", "reward_weights": "[1, -0.1]"}, []),
        ({"reward_funcs": ["acc", "cheating"], "reward_weights": [1, -1]}, []),
        ({"reward_funcs": ["acc", "sentiment"], "reward_weights": [1, -1]}, ["warning"]),
        ({"reward_funcs": "'acc' 'tone'", "reward_weights": "1 -1"}, ["warning"]),
        ({"reward_weights": ["one", 1.0]}, None),
        ({}, None),
    ],
)
def test_negative_weights(settings: dict[str, object], severities: list[str] | None) -> None:
    context = PreflightContext(
        files=None, rows=(), settings=RunSettings(), reward_weights=reward_weights(settings)
    )
    outcome = NegativeWeight().examine(context)
    if severities is None:
        assert isinstance(outcome, SkippedCheck)
    else:
        assert not isinstance(outcome, SkippedCheck)
        assert [each.severity for each in outcome] == severities
        assert all('"' not in each.summary for each in outcome)  # no quotes of the config in quotes


def test_values_without_their_json_are_no_answer() -> None:
    answer = '{"vendor": "Voss", "total": {"amount": 12.5, "open": true}, "notes": [null, "new"]}'
    assert values_alone(answer) == "Voss\n12.5\nnew"
    assert values_alone('{"answer": 5}') == values_alone("5") == values_alone("[1, 2]") == ""


def test_exchanged_columns_are_found() -> None:
    rows = [
        {"question": f"What is {at} plus {at}?", "answer": str(2 * at), "note": "easy"}
        for at in range(60)
    ]
    assert exchanged_columns(rows) is None
    wrong = [
        {**row, "question": row["answer"], "answer": row["question"]} if at % 12 == 5 else row
        for at, row in enumerate(rows)
    ]
    found = exchanged_columns(wrong)
    assert found is not None
    assert (found.columns, found.rows) == (("question", "answer"), (5, 17, 29, 41, 53))
    mixed = [
        {**row, "answer": row["question"] if at % 3 else row["answer"]}
        for at, row in enumerate(rows)
    ]
    assert exchanged_columns(mixed) is None


@pytest.mark.parametrize(("lower", "is_fault"), [(0, False), (2, False), (9, True), (40, True)])
def test_scores_of_exchanged_pairs(lower: int, is_fault: bool) -> None:
    rows = [
        {"score_chosen": at, "score_rejected": at + (1 if at < lower else -1)} for at in range(40)
    ]
    found = exchanged_columns(rows)
    assert (found is not None) == is_fault
    assert found is None or len(found.rows) == lower


def test_scores_of_another_judge_are_no_exchange() -> None:
    """Lengths, and scores that disagree with an annotator by chance."""
    normal = random.Random(3).gauss
    scores = [(normal(0.6, 1), 0.0) for _ in range(400)]
    assert sum(one < 0 for one, _ in scores) > 60
    for chosen, rejected in (("score_chosen", "score_rejected"), ("chosen_len", "rejected_len")):
        rows = [{chosen: one, rejected: other} for one, other in scores]
        assert exchanged_columns(rows) is None
    lengths = [{"chosen_len": at % 7, "rejected_len": 3} for at in range(40)]
    assert exchanged_columns(lengths) is None


def test_titles_and_texts_of_any_length_are_no_exchange() -> None:
    """Each is short or long now and then, so that some rows have both the other way round."""
    choice = random.Random(5)
    long, short = "one two three four five six seven eight nine", "a title"
    rows = [
        {
            "title": long if choice.random() < 0.05 else short,
            "body": short if choice.random() < 0.04 else long,
        }
        for _ in range(3000)
    ]
    assert sum(row["title"] == long and row["body"] == short for row in rows) >= 3
    assert exchanged_columns(rows) is None


def test_a_search_over_many_numbers_ends() -> None:
    targets = ReachedTargets(tuple(range(1001, 1031)))
    assert targets.with_some(15, 7) == ""
