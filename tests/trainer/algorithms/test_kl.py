"""The KL penalty: estimators, placement in loss or reward, and what is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.advantages.base import centre
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.names import names
from grpodoctor.trainer.algorithms.registry import kl_of
from grpodoctor.trainer.algorithms.shaping.kl_in_reward import kl_in_reward
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.rollout import RolloutGroups
from grpodoctor.vocabulary.values import Rate, scalar

HERE = Path(__file__).parents[1]
CORE: dict[str, Any] = json.loads((HERE / "vectors.json").read_text())["core"]
VECTORS: dict[str, Any] = json.loads((HERE / "kl_vectors.json").read_text())
MASK_BT = torch.tensor(CORE["mask"]).bool()
PUBLISHED = {
    "k1": "kl_loss_k1_token_mean",
    "k2": "kl_loss_k2_token_mean",
    "k3": "kl_loss_k3_token_mean",
    "k3_ratio": "kl_loss_k3_times_is_ratio_dsv32",
    "k3_straight_through": "kl_loss_k3_plus_straight_through",
}
SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=3", "evaluation.every=0"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "optimizer.learning_rate=1e-3"),
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
IN_REWARD = (
    *("loss.kl_placement=reward", "loss.kl_estimator=k1", "loss.kl_coefficient=0.2"),
    "rollout.group_size=2",
)


def small(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


def logprobs(policy: str) -> Tensor:
    return torch.tensor(CORE[f"p_{policy}"], dtype=torch.float64).log()


@pytest.mark.parametrize("estimator", names("kl"))
def test_value_and_gradient_of_each_estimator_are_the_published_ones(estimator: str) -> None:
    expected = VECTORS["losses"][PUBLISHED[estimator]]
    new_BT = logprobs("new").requires_grad_()
    penalty_BT = kl_of(estimator)(KlInputs(new_BT, logprobs("ref"), logprobs("old")))
    loss = penalty_BT[MASK_BT].mean()
    (gradient_BT,) = torch.autograd.grad(loss, new_BT)
    wanted_BT = torch.tensor(expected["grad_wrt_new_logp"], dtype=torch.float64)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-6)
    torch.testing.assert_close(gradient_BT, wanted_BT, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        *(("k1", "E_q[grad k1]"), ("k2", "E_q[grad k2]"), ("k3", "E_q[grad k3]")),
        *(("k3_ratio", "true_grad_reverse_KL"), ("k3_straight_through", "true_grad_reverse_KL")),
    ],
)
def test_expected_gradients_on_policy_are_those_of_the_divergences(
    estimator: str, expected: str
) -> None:
    toy = VECTORS["softmax3"]
    logits_V = torch.tensor(toy["logits"], dtype=torch.float64, requires_grad=True)
    new_V = logits_V.log_softmax(0)
    reference_V = torch.tensor(toy["p_ref"], dtype=torch.float64).log()
    penalty_V = kl_of(estimator)(KlInputs(new_V, reference_V, new_V.detach()))
    (gradient_V,) = torch.autograd.grad((new_V.detach().exp() * penalty_V).sum(), logits_V)
    wanted_V = torch.tensor(toy[expected], dtype=torch.float64)
    torch.testing.assert_close(gradient_V, wanted_V, rtol=1e-6, atol=1e-9)


def test_in_the_reward_the_expected_gradient_is_that_of_the_reverse_divergence() -> None:
    toy = VECTORS["softmax3"]
    logits_V = torch.tensor(toy["logits"], dtype=torch.float64, requires_grad=True)
    new_V = logits_V.log_softmax(0)
    reference_V = torch.tensor(toy["p_ref"], dtype=torch.float64).log()
    taken_V = kl_in_reward(new_V[:, None], reference_V[:, None], torch.ones(3, 1).bool(), 1.0)
    (gradient_V,) = torch.autograd.grad((new_V.detach().exp() * taken_V * new_V).sum(), logits_V)
    wanted_V = torch.tensor(toy["reward_placement_k1: E_q[k1*score]"], dtype=torch.float64)
    torch.testing.assert_close(gradient_V, wanted_V, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("garbage", [float("nan"), float("-inf"), 7.0])
def test_the_kl_penalty_in_the_reward_is_the_published_sum(garbage: float) -> None:
    padded = {name: torch.where(MASK_BT, logprobs(name), garbage) for name in ("old", "ref")}
    taken_B = kl_in_reward(padded["old"].requires_grad_(), padded["ref"], MASK_BT, 0.1)
    shaped_B = torch.tensor(CORE["reward"], dtype=torch.float64) - taken_B
    wanted_B = torch.tensor(VECTORS["in_reward"]["shaped_reward"], dtype=torch.float64)
    torch.testing.assert_close(shaped_B, wanted_B, rtol=1e-6, atol=1e-9)
    assert not taken_B.requires_grad


def strayed(config: TrainConfig, run_dir: Path) -> tuple[Trainer, RolloutGroups, LearnBatch]:
    """A trainer whose policy has moved away from its reference, and a batch."""
    trainer = Trainer(config, run_dir)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in trainer.learner.parameters:
            each.add_(torch.randn(each.shape, generator=generator) * 0.02)
    rollouts = trainer._collect(1)
    batch = trainer._learn_batch(rollouts, score(trainer.policy.model, rollouts.samples, 1.0))
    trainer.recording.close(finished=False)
    return trainer, rollouts, batch


def gradient(learner: Learner, batch: LearnBatch, config: TrainConfig) -> Tensor:
    """Of one update on the whole batch, read back from the first moment of a fresh AdamW."""
    fresh = Learner(learner.model, config.optimizer)
    fresh.update(batch, torch.arange(len(batch.samples)), config, 0.0, torch.Generator())
    moments = fresh.optimizer.state_dict()["state"]
    return torch.cat([moments[index]["exp_avg"].flatten() for index in sorted(moments)])


def test_in_the_reward_it_is_part_of_the_advantage_and_not_of_the_loss(tmp_path: Path) -> None:
    config = small(*IN_REWARD, "advantage.kind=centred")
    trainer, rollouts, batch = strayed(config, tmp_path / "run")
    assert batch.reference_logprobs_BT is not None
    gap_BT = batch.old_logprobs_BT - batch.reference_logprobs_BT
    wanted_B = 0.2 * (gap_BT * batch.samples.mask_BT).double().sum(dim=1)
    assert batch.kl_penalty_B is not None
    torch.testing.assert_close(batch.kl_penalty_B, wanted_B, rtol=1e-5, atol=1e-6)
    assert wanted_B.abs().min() > 0
    advantages_B = centre(rollouts.totals() - wanted_B, rollouts.group_ids_B).float()
    torch.testing.assert_close(batch.advantages_BT[:, 0], advantages_B, rtol=1e-4, atol=1e-6)
    without = small("loss.kl_coefficient=0", "rollout.group_size=2", "advantage.kind=centred")
    in_loss = small("loss.kl_coefficient=0.2", "rollout.group_size=2", "advantage.kind=centred")
    plain, shaped, lossy = (
        gradient(trainer.learner, batch, each) for each in (without, config, in_loss)
    )
    assert torch.equal(plain, shaped)
    assert not torch.allclose(plain, lossy)


def readings(run_dir: Path, name: str) -> list[float]:
    found = [step.values[name] for step in read_run(run_dir).steps if name in step.values]
    return [value for each in found if (value := scalar(each)) is not None]


def test_the_raw_reward_and_the_drift_stay_visible_in_both_places(tmp_path: Path) -> None:
    # Every reward is the same: all variance comes from the penalty. The entropy
    # bonus moves the policy away from its reference.
    flat = ("overlong.kind=none", "rollout.max_length=2", "rollout.group_size=2")
    flat = (*flat, "loss.entropy_coefficient=0.1")
    Trainer(small(*IN_REWARD, *flat), tmp_path / "reward").run()
    Trainer(small("loss.kl_coefficient=0.2", *flat), tmp_path / "loss").run()
    for step in read_run(tmp_path / "reward").steps:
        assert scalar(step.values["reward/mean"]) == 0
        zero_variance = step.values["groups/zero_variance_rate"]
        assert isinstance(zero_variance, Rate)
        assert zero_variance.value == 1
    taken = readings(tmp_path / "reward", "reward/kl_penalty")
    assert taken[0] == 0
    assert taken[-1] != 0
    for place in ("reward", "loss"):
        assert readings(tmp_path / place, "kl/reference/k3")[-1] > 0
    assert not readings(tmp_path / "loss", "reward/kl_penalty")


@pytest.mark.slow
def test_in_the_reward_it_holds_the_policy_near_its_reference(tmp_path: Path) -> None:
    # A reward for length moves the policy far away; the penalty limits it.
    strong = ("loss.kl_coefficient=5", "steps=8", "optimizer.learning_rate=2e-3")
    free = ("loss.kl_coefficient=1e-9", *strong[1:])
    drift = []
    for number, coefficient in enumerate((free, strong)):
        run_dir = tmp_path / str(number)
        Trainer(small(*IN_REWARD, "rollout.group_size=4", *coefficient), run_dir).run()
        drift.append(readings(run_dir, "kl/reference/k3")[-1])
    assert drift[1] < drift[0] / 2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("loss.kl_placement=reward",), "k3 is never negative"),
        (("loss.kl_placement=reward", "loss.kl_estimator=k3_ratio"), "k3_ratio is never negative"),
        ((*IN_REWARD, "advantage.kind=gdpo"), "gdpo standardizes the components"),
        ((*IN_REWARD, "advantage.kind=dcpo_sas"), "dcpo_sas compares with earlier rewards"),
        ((*IN_REWARD, "advantage.kind=max_rl"), "max_rl divides by the group's mean reward"),
        (("loss.kl_placement=both",), "kl_placement"),
        (("loss.kl_estimator=k4",), "unknown KL estimator 'k4'; use one of k1, k2, k3"),
    ],
)
def test_conflicting_settings_are_refused_with_the_reason(
    settings: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        small(*settings)
