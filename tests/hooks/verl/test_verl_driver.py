"""Observed advantages and checkpoints, against verl's own in the environment that has verl."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from grpodoctor.api import open_run
from grpodoctor.frameworks.verl.knobs import KNOBS
from grpodoctor.hooks.verl.driver_recorder import SUFFIX, advantage_readings, mismatch_of
from grpodoctor.hooks.verl.loss_recorder import RUN_DIR
from grpodoctor.hooks.verl.observed_advantage import tensors_behind
from grpodoctor.probe.run_mismatch.logged_mismatch import logged_mismatch
from grpodoctor.vocabulary.values import scalar
from tests.hooks.verl.test_verl_losses import drive, needs_verl, plugin
from tests.samples import sampled

__all__ = ["plugin"]
OBSERVABLE = {
    "grpo_passk", "grpo_vectorized", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "rloo",
    "rloo_vectorized", "opo", "gpg",
}  # fmt: skip
BY_NAME = {"grpo", "gae", "gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}


@needs_verl
@pytest.mark.slow
def test_observed_advantages_equal_those_of_verl_to_the_last_bit(
    plugin: Path, tmp_path: Path
) -> None:
    done, errors = drive(plugin, "advantages", **{RUN_DIR: str(tmp_path / "run")})
    observed = {name.removeprefix("grpodoctor_") for name in done["all"] if "doctor" in name}
    assert observed == OBSERVABLE
    assert {name for name in done["all"] if "doctor" not in name} == OBSERVABLE | BY_NAME
    assert len(done["results"]) == 2 * len(OBSERVABLE)
    for name, (own, variant) in done["results"].items():
        assert own == variant, name
        assert any(part.strip("0") for part in own), name
    assert "failed" not in errors
    steps = open_run(tmp_path / f"run{SUFFIX}").steps().to_pylist()
    assert len(steps) == 2 * len(OBSERVABLE)
    assert all(step["mismatch/kl_k3"] > 0 for step in steps), "through both trainers"


@needs_verl
@pytest.mark.parametrize("resumed", sampled([0, 40], {40}))
def test_the_driver_records_steps_under_verls_numbers(
    resumed: int, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {RUN_DIR: str(tmp_path / "run")}
    rewards, _ = drive(plugin, "driver", "grpodoctor_rloo", str(resumed), **environment)
    run = open_run(tmp_path / f"run{SUFFIX}")
    steps = run.steps().to_pylist()
    assert [step["step"] for step in steps] == [resumed + 1, resumed + 2, resumed + 3]
    assert [step["reward/mean"] for step in steps] == pytest.approx(rewards)
    assert steps[0]["length/mean"] == pytest.approx(41 / 6)
    assert steps[0]["groups/reward_std"] > 0
    assert 0 < steps[0]["advantage/positive_rate"] < 1
    assert "advantage/bound_excess" not in steps[0]
    assert all(2e-5 < step["mismatch/kl_k3"] < 1e-4 for step in steps), "half of 0.01 squared"
    assert [step["groups/repeated_prompt_rate"] for step in steps] == [0, 0.5, 0]
    measured = logged_mismatch(tmp_path / f"run{SUFFIX}", 3, "")
    assert measured is not None
    assert measured.steps == (resumed + 1, resumed + 2, resumed + 3)
    assert run.manifest.model == "/models/tiny"
    assert run.manifest.config["trainer"]["default_local_dir"] == str(tmp_path / "checkpoints")
    (event,) = [event for event in run.events if event.kind == "checkpoint"]
    assert (event.step, event.body["directory"]) == (resumed + 2, f"x/{resumed + 2}")


@pytest.mark.slow
@needs_verl
def test_a_failing_driver_record_changes_no_advantage(plugin: Path, tmp_path: Path) -> None:
    done, errors = drive(plugin, "failing_driver", **{RUN_DIR: str(tmp_path / "run")})
    assert all(own == variant for own, variant in done["results"].values())
    assert errors.count("planted") == 1
    assert "configuration failed" in errors


def test_an_observed_estimator_means_what_verls_name_means() -> None:
    for name, advantage in {"rloo": "leave_one_out", "opo": None}.items():
        read = KNOBS.read({"algorithm.adv_estimator": f"grpodoctor_{name}"})
        assert read.get("advantage") == advantage
        assert read == KNOBS.read({"algorithm.adv_estimator": name})


def test_the_callback_can_be_imported_without_verl() -> None:
    module = import_module("grpodoctor.hooks.verl.checkpoint_callback")
    assert module.RecordCheckpoints(config=None).on_save(None, 1, "x", later="argument") is None


def arguments(**more: object) -> dict[str, object]:
    """Two prompts with two responses each; the reward is on the last token."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.5, 9.0, 9.0], [0.0, 1.0, 0.0], [7.0, 0.0, 0.0]])
    return {"response_mask": mask, "token_level_rewards": rewards, **more}


def test_rewards_and_lengths_are_those_under_the_mask() -> None:
    readings = advantage_readings("rloo", arguments(index=["a", "a", "b", "b"]), torch.ones(4, 3))
    assert scalar(readings["reward/mean"]) == pytest.approx(2.5 / 4)
    assert scalar(readings["length/mean"]) == 1.5
    assert scalar(readings["groups/reward_std"]) == pytest.approx((0.25 + 0.5) / 2)


def test_advantages_that_differ_within_a_response_are_left_out() -> None:
    per_token = torch.tensor([[1.0, 0.5, 0.25], *[[1.0, 1.0, 1.0]] * 3])
    readings = advantage_readings("reinforce_plus_plus", arguments(), per_token)
    assert not [name for name in readings if name.startswith(("advantage/", "groups/"))]
    assert "reward/mean" in readings


def test_the_mismatch_is_that_of_tokens_under_the_mask() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    learner = torch.tensor([[-1.0, -2.0, 9.0], [-0.5, 9.0, 9.0]])
    held = {"old_log_probs": learner, "rollout_log_probs": learner - 0.1}
    readings = mismatch_of(held, mask, 3)
    assert not isinstance(readings, str)
    assert scalar(readings["mismatch/bias"]) == pytest.approx(0.1)
    assert readings["mismatch/prob_diff_max/worst_sequence"].where == "3-1"


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({}, "calculate_log_probs=True"),
        ({"rollout_log_probs": torch.zeros(2, 3)}, "has not recomputed"),
        (dict.fromkeys(("rollout_log_probs", "old_log_probs"), -torch.ones(2, 3)), "bypass mode"),
        (dict.fromkeys(("rollout_log_probs", "old_log_probs"), torch.zeros(2, 9)), "shapes"),
    ],
)
def test_without_values_of_both_sides_the_reason_is_given(held: dict[str, Any], why: str) -> None:
    assert why in str(mismatch_of(held, torch.ones(2, 3), 1))


def test_only_the_frame_of_verls_function_is_read() -> None:
    assert tensors_behind(None) == {}
    assert tensors_behind(inspect.currentframe()) == {}


def test_groups_with_the_same_prompt_are_counted() -> None:
    given = arguments(index=["a", "a", "b", "b"])
    same = torch.tensor([[0, 5, 6]] * 4)
    different = torch.tensor([[0, 5, 6]] * 2 + [[0, 5, 7]] * 2)
    for prompts, repeated in ((same, 0.5), (different, 0.0)):
        readings = advantage_readings("rloo", given, torch.ones(4, 3), prompts)
        assert scalar(readings["groups/repeated_prompt_rate"]) == repeated
    for unknown in (None, same[:2]):
        readings = advantage_readings("rloo", given, torch.ones(4, 3), unknown)
        assert "groups/repeated_prompt_rate" not in readings
    assert "groups/repeated_prompt_rate" not in advantage_readings(
        "rloo", arguments(), torch.ones(4, 3), same
    )


@pytest.mark.parametrize(
    ("columns", "is_known"),
    [
        ({}, True),
        ({"__num_turns__": np.array([2, 2])}, True),
        ({"__num_turns__": np.array([2, 6])}, False),
        ({"multi_modal_inputs": np.array([{}, {}])}, False),
    ],
)
def test_prompts_that_are_not_the_whole_task_are_left_out(
    columns: dict[str, Any], is_known: bool
) -> None:
    batch = {"prompts": torch.zeros(2, 3), "rollout_log_probs": torch.zeros(2, 3)}

    def compute_advantage(data: Any) -> dict[str, Any]:
        assert data is not None
        return estimator()

    def estimator() -> dict[str, Any]:
        return tensors_behind(inspect.currentframe())

    held = compute_advantage(SimpleNamespace(batch=batch, non_tensor_batch=columns))
    assert ("prompts" in held) == is_known
    assert "rollout_log_probs" in held


def test_only_normalized_advantages_have_a_bound() -> None:
    given = arguments(index=["a", "a", "b", "b"])
    given["response_mask"] = torch.ones(4, 3)
    for estimator, is_bounded in {"rloo": False, "grpo_vectorized": True}.items():
        readings = advantage_readings(estimator, given, torch.ones(4, 3))
        assert ("advantage/bound_excess" in readings) == is_bounded
