"""Held-out evaluation: its estimator, and its independence of the training."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch

from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.evaluate import pass_at_k
from grpodoctor.trainer.loop import Trainer
from grpodoctor.vocabulary.values import Mean, Rate

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=3", "evaluation.prompts=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)


@pytest.mark.parametrize("solved", range(6))
@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_solution(solved: int, k: int) -> None:
    tries = [True] * solved + [False] * (5 - solved)
    draws = [any(draw) for draw in combinations(tries, k)]
    assert pass_at_k(5, solved, k) == pytest.approx(sum(draws) / len(draws))


@pytest.mark.slow
def test_evaluating_changes_no_weight(tmp_path: Path) -> None:
    always, never = (
        Trainer(load_config(assignments=[*SMALL, f"evaluation.every={every}"]), tmp_path / every)
        for every in ("1", "0")
    )
    for trainer in (always, never):
        trainer.run()
    left, right = (each.policy.model.state_dict() for each in (always, never))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_it_evaluates_first_last_and_in_between_on_the_same_prompts(tmp_path: Path) -> None:
    settings = ("steps=5", "evaluation.every=2", "evaluation.samples=3")
    Trainer(load_config(assignments=[*SMALL, *settings]), tmp_path / "run").run()
    steps = list(read_run(tmp_path / "run").steps)
    evaluated = [step for step in steps if "accuracy/heldout" in step.values]
    assert [step.step for step in evaluated] == [1, 2, 4, 5]
    for step in evaluated:
        accuracy, reward = step.values["accuracy/heldout"], step.values["reward/heldout"]
        solved = step.values["pass_at_k/2"]
        assert isinstance(accuracy, Rate)
        assert isinstance(reward, Mean)
        assert isinstance(solved, Mean)
        assert (accuracy.count, reward.count, solved.count) == (24, 24, 8)
        assert "pass_at_k/4" not in step.values


def test_the_evaluation_has_its_own_temperature(tmp_path: Path) -> None:
    """A remedy that changes the rollout temperature must not change the held-out measure."""
    small = [*SMALL, "model.warm_start_steps=150", "evaluation.prompts=64", "record.enabled=false"]
    found = []
    for temperatures in ((1.0, 1.0), (0.5, 1.0), (1.0, 0.0)):
        rollout, evaluation = temperatures
        given = (f"rollout.temperature={rollout}", f"evaluation.temperature={evaluation}")
        trainer = Trainer(load_config(assignments=[*small, *given]), tmp_path / str(temperatures))
        found.append(trainer._evaluate(1))
    assert found[0] == found[1]
    assert found[0] != found[2]
