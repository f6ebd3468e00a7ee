"""The entropy bonus and its adaptive coefficient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.measure.logits import token_logprobs
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.entropy.adaptive import adaptive
from grpodoctor.trainer.algorithms.entropy.bonus import bonus
from grpodoctor.trainer.algorithms.losses.token_level.ppo_clip import PpoClip
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import saved_config
from grpodoctor.vocabulary.values import scalar

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "kl_vectors.json").read_text())
SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=3", "evaluation.every=0"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "optimizer.learning_rate=1e-3"),
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
ALWAYS_BELOW, ALWAYS_ABOVE = "loss.entropy_target=20", "loss.entropy_target=1e-9"


def small(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


def trained(run_dir: Path, *assignments: str) -> Trainer:
    trainer = Trainer(small(*assignments), run_dir)
    trainer.run()
    return trainer


def in_force(run_dir: Path) -> list[float | None]:
    name = "optimizer/entropy_coefficient"
    return [scalar(step.values[name]) for step in read_run(run_dir).steps if name in step.values]


def same_weights(left: Trainer, right: Trainer) -> bool:
    others = right.policy.model.state_dict()
    return all(
        torch.equal(each, others[name]) for name, each in left.policy.model.state_dict().items()
    )


def test_value_and_gradient_of_the_bonus_are_the_published_ones() -> None:
    vector = VECTORS["entropy"]
    logits_NV = torch.tensor(vector["logits"], dtype=torch.float64, requires_grad=True)
    _, entropy_N = token_logprobs(logits_NV, torch.zeros(2).long(), 1.0, with_entropy=True)
    loss = bonus(entropy_N, 0.01).mean()
    assert loss.item() == pytest.approx(vector["entropy_bonus_loss_coef0.01_token_mean"], rel=1e-6)
    (gradient_NV,) = torch.autograd.grad(loss, logits_NV)
    wanted_NV = torch.tensor(vector["grad_of_bonus_wrt_logits"], dtype=torch.float64)
    torch.testing.assert_close(gradient_NV, wanted_NV, rtol=1e-6, atol=1e-10)


def test_the_coefficient_rises_below_the_target_and_falls_above_it() -> None:
    loss = PpoClip(entropy_target=0.5, entropy_step=0.1, entropy_coefficient_max=0.25)
    state, seen = 0.0, []
    for entropy in (0.4, 0.5, 0.1, 0.1, 0.6, 0.6, 0.4, 0.9, 0.9, 0.9):
        step = adaptive(state, entropy, loss)
        state = step.next_coefficient
        seen.append((round(step.coefficient, 9), round(state, 9)))
    assert seen == [
        *((0.0, 0.1), (0.1, 0.2), (0.2, 0.25), (0.25, 0.25)),  # up to the largest
        *((0.0, 0.15), (0.0, 0.05), (0.05, 0.15)),  # nothing in force while above
        *((0.0, 0.05), (0.0, 0.0), (0.0, 0.0)),  # down to the least
    ]


def test_the_coefficient_starts_at_its_minimum_and_ignores_nan_entropy() -> None:
    loss = PpoClip(entropy_target=0.5, entropy_coefficient_min=0.02)
    assert adaptive(0.0, 0.1, loss).coefficient == 0.02
    unknown = adaptive(0.3, float("nan"), loss)
    assert (unknown.coefficient, unknown.next_coefficient) == (0.0, 0.3)


@pytest.mark.slow
def test_the_adaptive_coefficient_is_recorded_and_used(tmp_path: Path) -> None:
    rising = trained(tmp_path / "rising", ALWAYS_BELOW, "loss.entropy_step=0.05")
    idle = trained(tmp_path / "idle", ALWAYS_ABOVE, "loss.entropy_step=0.05")
    plain = trained(tmp_path / "plain")
    assert in_force(tmp_path / "rising") == pytest.approx([0.0, 0.05, 0.1])
    assert in_force(tmp_path / "idle") == [0.0] * 3
    assert in_force(tmp_path / "plain") == []
    assert same_weights(idle, plain)
    assert not same_weights(rising, plain)
    trained(tmp_path / "fixed", "loss.entropy_coefficient=0.05", "steps=1")
    assert in_force(tmp_path / "fixed") == [0.05]


@pytest.mark.parametrize("updates", [1, 2])
def test_the_updates_use_the_adaptive_coefficient(updates: int, tmp_path: Path) -> None:
    often = (f"optimizer.updates_per_batch={updates}", "record.enabled=false", "steps=2")
    bounds = ("loss.entropy_coefficient_min=0.05", "loss.entropy_coefficient_max=0.05")
    adaptive_run = trained(tmp_path / "adaptive", ALWAYS_BELOW, *often, *bounds)
    fixed_run = trained(tmp_path / "fixed", "loss.entropy_coefficient=0.05", *often)
    assert same_weights(adaptive_run, fixed_run)
    assert not same_weights(adaptive_run, trained(tmp_path / "plain", *often))


def test_a_resumed_run_goes_on_with_its_coefficient(tmp_path: Path) -> None:
    settings = (ALWAYS_BELOW, "loss.entropy_step=0.05", "steps=4")
    whole = trained(tmp_path / "whole", *settings)
    part = Trainer(small(*settings), tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 2 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    resumed.run()
    assert same_weights(whole, resumed)
    assert in_force(tmp_path / "part") == in_force(tmp_path / "whole")


def test_a_step_that_fails_leaves_the_coefficient_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(small(ALWAYS_BELOW), tmp_path / "run")
    before = trainer.entropy.state()

    def fail(*_: object, **__: object) -> None:
        raise DataError("no")

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "_learn_batch", fail)
        with pytest.raises(DataError):
            trainer.run()
    assert trainer.entropy.state() == before


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ((ALWAYS_BELOW, "loss.entropy_coefficient=0.1"), "either fixed or adaptive"),
        (
            (ALWAYS_BELOW, "loss.entropy_coefficient_min=0.2", "loss.entropy_coefficient_max=0.1"),
            "smallest entropy coefficient is above",
        ),
        ((ALWAYS_BELOW, "loss.kind=clip_cov"), "both raise the entropy"),
        ((ALWAYS_BELOW, "reweighting.forking_share=0.2"), "decide where the policy explores"),
    ],
)
def test_two_entropy_controls_are_refused(settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        small(*settings)


def test_an_adaptive_bonus_with_clip_higher_gives_a_warning() -> None:
    assert small(ALWAYS_BELOW, "loss.clip_high=0.28").warnings()
    assert small(ALWAYS_BELOW).warnings() == []
