"""Held-out evaluations: verl's keys, several sets, and their mean."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from grpodoctor.frameworks.registry import framework_named
from grpodoctor.frameworks.translation import Translator
from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

STEPS = 60


def written(directory: Path, held_out: Iterable[Mapping[str, float]]) -> Path:
    """A log of verl with these held-out results at every third step; the reward rises."""
    path = directory / "metrics.jsonl"
    results = list(held_out)
    rows = [
        {"step": step, "data": {
            "actor/pg_loss": 0.01, "actor/entropy": 0.5, "actor/ppo_kl": 0.001,
            "critic/score/mean": 0.2 + step / 100, "response_length/clip_ratio": 0.0,
            **(results[step // 3] if step % 3 == 0 and step // 3 < len(results) else {}),
        }}
        for step in range(STEPS)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def translated(values: Mapping[str, float]) -> dict[str, float | None]:
    readings = Translator(framework_named("verl")).readings(values)
    return {name: scalar(reading) for name, reading in readings.items()}


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("val-core/openai/gsm8k/acc/mean@1", "accuracy/heldout/set/openai/gsm8k"),
        ("val-core/math/reward/mean@8", "reward/heldout/set/math"),
        ("val-aux/math/reward/mean@8", "reward/heldout/set/math"),
        ("val/test_score/logic", "reward/heldout/set/logic"),
    ],
)
def test_the_longest_fixed_text_decides_between_patterns(key: str, metric: str) -> None:
    assert translated({key: 0.25}) == {metric: 0.25}


@pytest.mark.parametrize(
    "key", ["val-core/math/acc/best@8/mean", "val-aux/math/acc/std@8", "val-aux/num_turns/max"]
)
def test_other_statistics_of_the_validation_are_not_results(key: str) -> None:
    assert translated({key: 0.25}) == {}


def test_an_accuracy_below_zero_is_a_reward() -> None:
    translator = Translator(framework_named("verl"))
    key = "val-core/game/acc/mean@1"
    first = translator.readings({key: -0.5})
    later = translator.readings({key: 0.5})
    assert [*first, *later] == ["reward/heldout/set/game"] * 2


def test_the_mean_covers_all_sets_and_only_steps_at_which_all_were_evaluated(
    tmp_path: Path,
) -> None:
    both = {"val-core/a/acc/mean@1": 0.5, "val-core/b/acc/mean@1": 0.25}
    results = [both, {"val-core/a/acc/mean@1": 0.75}, both]
    steps = list(open_run(written(tmp_path, results)).steps)
    means = {
        each.step: scalar(each.values["accuracy/heldout"])
        for each in steps if "accuracy/heldout" in each.values
    }  # fmt: skip
    assert means == {0: 0.375, 6: 0.375}
    assert scalar(steps[3].values["accuracy/heldout/set/a"]) == 0.75


def test_a_loss_on_one_set_is_found_in_the_mean_of_many(tmp_path: Path) -> None:
    results = [
        {f"val-core/set{number}/acc/mean@1": 0.5 + position / 200 for number in range(8)}
        | {"val-core/lost/acc/mean@1": 0.8 if position < 10 else 0.1}
        for position in range(STEPS // 3)
    ]
    report = replay(written(tmp_path, results)).report
    (finding,) = [each for each in report.findings if each.code == "REW003"]
    assert "Held-out accuracy on lost fell from 0.8" in finding.summary


def test_held_out_sets_that_rise_are_quiet(tmp_path: Path) -> None:
    results = [
        {f"val-core/set{number}/acc/mean@1": 0.4 + position / 100 for number in range(3)}
        for position in range(STEPS // 3)
    ]
    report = replay(written(tmp_path, results)).report
    assert "REW003" in report.quiet
