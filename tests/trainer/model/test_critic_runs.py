"""Runs with a critic: resuming, pretraining, recording and conflicting settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar
from tests.trainer.model.critic_runs import small

VAPO = ("critic.pretrain_steps=2",)


def recorded(run_dir: Path) -> list[dict[str, Reading]]:
    """The readings of each step."""
    return [dict(step.values) for step in read_run(run_dir).steps]


def state(trainer: Trainer) -> list[Tensor]:
    assert trainer.critic is not None
    models = (trainer.policy.model, trainer.critic.model)
    optimizers = (trainer.learner.optimizer, trainer.critic.optimizer)
    moments = [optimizer.state_dict()["state"] for optimizer in optimizers]
    return [
        *(tensor for model in models for tensor in model.state_dict().values()),
        *(each[i][name] for each in moments for i in sorted(each) for name in sorted(each[i])),
    ]


@pytest.mark.parametrize(
    ("preset", "stop", "extra"),
    [
        pytest.param("ppo", 2, (), marks=pytest.mark.slow),
        ("ppo", 2, ("critic.passes=2", "engine.sync_every=3", "engine.precision=int8")),
        ("vapo", 1, VAPO),
        pytest.param("vapo", 3, VAPO, marks=pytest.mark.slow),
    ],
    ids=["ppo", "passes-and-stale-engine", "vapo-while-pretraining", "vapo"],
)
def test_resumed_weights_equal_those_of_an_uninterrupted_run(
    preset: str, stop: int, extra: tuple[str, ...], tmp_path: Path
) -> None:
    config = small(*extra, "record.enabled=false", preset=preset)
    whole = Trainer(config, tmp_path / "whole")
    whole.run()
    part = Trainer(config, tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == stop else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    assert resumed.done == stop
    resumed.run()
    for one, other in zip(state(whole), state(resumed), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_and_a_run_must_both_have_a_critic(tmp_path: Path) -> None:
    Trainer(small("steps=1"), tmp_path / "with").run()
    names = {path.name for path in checkpoints(tmp_path / "with")[-1].iterdir()}
    assert {"critic.safetensors", "critic-optimizer.safetensors"} <= names
    with pytest.raises(RunError, match="only one of the two has a critic"):
        Trainer(small(preset=None), tmp_path / "with", resume=True)
    Trainer(small("steps=1", preset=None), tmp_path / "without").run()
    with pytest.raises(RunError, match="only one of the two has a critic"):
        Trainer(small(), tmp_path / "without", resume=True)


def test_the_policy_does_not_change_while_the_critic_is_pretrained(tmp_path: Path) -> None:
    trainer = Trainer(small(*VAPO, "steps=3", preset="vapo"), tmp_path / "run")
    assert trainer.critic is not None
    policy, values = (
        [each.clone() for each in model.parameters()]
        for model in (trainer.policy.model, trainer.critic.model)
    )
    for step in (1, 2, 3):
        trainer.train_step()
        still = all(map(torch.equal, policy, trainer.policy.model.parameters()))
        assert still == (step < 3)
        assert not all(map(torch.equal, values, trainer.critic.model.parameters()))
    trainer.recording.close(finished=True)
    first, second, third = recorded(tmp_path / "run")
    for early in (first, second):
        assert scalar(early["updates_per_batch"]) == 0
        assert "optimizer/grad_norm" not in early
        assert "optimizer/update_norm_ratio" not in early
        assert scalar(early["critic/loss"]) > 0
    assert scalar(third["updates_per_batch"]) == 4
    assert scalar(third["staleness/max"]) == 0


def test_staleness_and_warmup_start_with_the_policys_first_step(tmp_path: Path) -> None:
    extra = (*VAPO, "engine.sync_every=4", "steps=4", "optimizer.warmup_steps=1")
    Trainer(small(*extra, preset="vapo"), tmp_path / "run").run()
    steps = recorded(tmp_path / "run")
    # In optimizer steps: the engine is synced before step 1, the policy moves from step 3 on.
    assert [scalar(step["staleness/max"]) for step in steps] == [0, 0, 0, 4]
    rates = [scalar(step["optimizer/learning_rate"]) for step in steps[2:]]
    assert rates == pytest.approx([5e-5, 1e-4])


@pytest.mark.slow
def test_critic_readings_exist_only_with_a_critic(tmp_path: Path) -> None:
    Trainer(small("steps=2"), tmp_path / "with").run()
    Trainer(small("steps=2", preset=None), tmp_path / "without").run()
    own = {
        *("critic/loss", "critic/explained_variance", "critic/value_mean", "critic/grad_norm"),
        *("critic/skipped_rate", "advantage/lambda_mean"),
    }
    last = recorded(tmp_path / "with")[-1]
    assert own <= last.keys()
    assert scalar(last["advantage/lambda_mean"]) == 0.95
    assert isinstance(last["advantage/bound_excess"], NotApplicable)
    assert own.isdisjoint(recorded(tmp_path / "without")[-1])
    assert read_run(tmp_path / "with").manifest.knobs["advantage"] == "gae"


@pytest.mark.slow
def test_a_critic_can_use_its_own_mini_batches(tmp_path: Path) -> None:
    counts = []
    for passes in (0, 3):
        trainer = Trainer(small(f"critic.passes={passes}"), tmp_path / str(passes))
        trainer.train_step()
        trainer.recording.close(finished=True)
        counts.append(recorded(tmp_path / str(passes))[0]["critic/loss"].count)
    assert counts == [4, 12]


def test_a_critic_cannot_be_added_or_removed_during_a_run(tmp_path: Path) -> None:
    trainer = Trainer(small("steps=1", preset=None), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"neither added nor removed.*new run"):
        trainer._prepare(small("steps=1"))
    trainer.recording.close(finished=False)


def config_error(*assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(assignments=assignments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        (("advantage.kind=gae", "rollout.dynamic_sampling=true"), "a policy with a critic learns"),
        (("advantage.kind=gae", "rollout.filter_groups=true"), "a policy with a critic learns"),
        (("advantage.kind=gae", "loss.kind=gspo"), "one term per response"),
        (("advantage.kind=gae", "advantage.component_weights.x=1.0"), "not standardize components"),
        (
            ("advantage.kind=gae", "critic.pretrain_steps=9", "steps=9"),
            "leave none of the 9 steps to the policy",
        ),
        (("critic.learning_rate=0.5",), "critic.learning_rate has no effect"),
        (
            ("advantage.whiten=true", "critic.passes=2"),
            "advantage.whiten, critic.passes have no effect",
        ),
        (("loss.kind=gmpo", "loss.positive_nll=0.1"), "share no denominator"),
    ],
)
def test_settings_that_conflict_with_a_critic_are_refused(
    assignments: tuple[str, ...], reason: str
) -> None:
    assert reason in config_error(*assignments)


def test_a_lambda_for_long_responses_gives_a_warning_for_short_ones() -> None:
    (warning,) = small("steps=20", preset="vapo").warnings()
    assert "28 tokens lambda is 0.29" in warning
    assert small("rollout.max_length=40", "steps=20", preset="vapo").warnings() == []
    assert small(preset="ppo").warnings() == []
