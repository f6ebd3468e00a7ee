"""Runs with a mixture of experts: readings, replay, resuming, conflicting settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpodoctor.errors import ConfigError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import saved_config
from grpodoctor.treatment.mailbox import Mailbox, Request
from grpodoctor.vocabulary.metrics import METRICS, metric_of
from grpodoctor.vocabulary.values import NotApplicable, Rate, Reading, scalar
from tests.trainer.families import save
from tests.trainer.moe.mixtures import QUICK

EXPERT_METRICS = {metric.name for metric in METRICS if metric.name.startswith("experts/")}
NO_AUXILIARY_LOSS = "experts/auxiliary_loss"


def readings_of(run: Path) -> list[dict[str, Reading]]:
    return [dict(step.values) for step in read_run(run).steps]


@pytest.mark.slow
def test_an_int4_engine_flips_experts_and_r3_replays_them(tmp_path: Path) -> None:
    """The first step of both runs samples the same responses."""
    runs = {}
    for name, replay in (("free", "none"), ("held", "R3")):
        config = load_config(
            assignments=[*QUICK, "engine.precision=int4", f"engine.routing_replay={replay}"]
        )
        Trainer(config, tmp_path / name).run()
        runs[name] = readings_of(tmp_path / name)
    free = runs["free"][0]
    assert 0.02 < scalar(free["experts/churn_engine"]) < 0.3
    assert scalar(free["experts/tokens_with_any_flip"]) > scalar(free["experts/churn_engine"])
    assert isinstance(free["experts/replay_agreement"], NotApplicable)
    for step in runs["held"]:
        assert scalar(step["experts/churn_engine"]) == 0
        assert scalar(step["experts/tokens_with_any_flip"]) == 0
        for name in ("experts/replay_coverage", "experts/replay_agreement"):
            rate = step[name]
            assert isinstance(rate, Rate)
            assert rate.hits == rate.count > 100


def test_every_expert_metric_is_recorded_overall_and_per_layer(tmp_path: Path) -> None:
    config = load_config(assignments=[*QUICK, "engine.routing_replay=R2", "record.experts_every=2"])
    Trainer(config, tmp_path).run()
    first, second, third = readings_of(tmp_path)
    names = EXPERT_METRICS - {NO_AUXILIARY_LOSS}
    per_layer = names - {"experts/tokens_with_any_flip"}
    wanted = names | {f"{name}/layer/{layer}" for name in per_layer for layer in (0, 1)}
    for step in (first, third):
        recorded = {name for name in step if name.startswith("experts/")}
        assert recorded == wanted | {NO_AUXILIARY_LOSS}
        assert all(scalar(step[name]) is not None for name in wanted)
    other = {name for name in second if name.startswith("experts/") and "replay" not in name}
    assert other == {NO_AUXILIARY_LOSS}  # only every second step is measured
    assert isinstance(second[NO_AUXILIARY_LOSS], NotApplicable)
    assert scalar(second["experts/replay_agreement"]) == 1
    for name in wanted:
        row = metric_of(name)
        assert row is not None
        assert row.low <= scalar(first[name]) <= row.high
    assert 0 < scalar(first["experts/churn_update"]) < 0.3


def test_a_learning_rate_of_zero_changes_no_expert(tmp_path: Path) -> None:
    config = load_config(assignments=[*QUICK, "optimizer.learning_rate=0", "steps=1"])
    Trainer(config, tmp_path).run()
    (only,) = readings_of(tmp_path)
    assert scalar(only["experts/churn_update"]) == 0
    assert scalar(only["experts/churn_engine"]) < 1e-3


@pytest.mark.parametrize("extra", [["engine.routing_replay=R3"], ["loss.kind=rspo"]])
def test_a_resumed_run_equals_an_uninterrupted_one(extra: list[str], tmp_path: Path) -> None:
    settings = [*QUICK, *extra, "engine.precision=int4", "engine.sync_every=2"]
    more = ("rollout.dynamic_sampling=true", "record.enabled=false")
    config = load_config(assignments=[*settings, *more])
    whole = Trainer(config, tmp_path / "whole")
    whole.run()
    part = Trainer(config, tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 1 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    resumed.run()
    for one, other in zip(whole.learner.parameters, resumed.learner.parameters, strict=True):
        assert torch.equal(one, other)


OWN = (
    *("threads=1", "steps=2", "rollout.prompts_per_batch=4", "rollout.group_size=4"),
    *("evaluation.every=0", "rollout.max_length=12", "record.experts_every=1"),
    *("overlong.kind=soft-punishment", "overlong.buffer=12", "engine.precision=int8"),
)


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("mixtral", ["optimizer.micro_batch=3"]),
        ("qwen2_moe", ["model.lora_rank=4"]),
        ("qwen3_moe", ["model.compute=bfloat16", "model.gradient_checkpointing=true"]),
    ],
)
def test_hub_checkpoints_train_under_r3(family: str, extra: list[str], tmp_path: Path) -> None:
    model = save(family, tmp_path / "model")
    replay = [f"model.name={model}", "engine.routing_replay=R3"]
    trainer = Trainer(load_config(assignments=[*OWN, *replay, *extra]), tmp_path / "run")
    before = [each.detach().clone() for each in trainer.learner.parameters]
    trainer.run()
    after = trainer.learner.parameters
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    for step in readings_of(tmp_path / "run"):
        for name in ("experts/replay_coverage", "experts/replay_agreement"):
            assert scalar(step[name]) == 1
        assert scalar(step["experts/churn_engine"]) == 0


def test_routing_is_not_measured_if_all_experts_are_active(tmp_path: Path) -> None:
    own = f"model.name={save('mixtral', tmp_path / 'model', num_experts_per_tok=4)}"
    Trainer(load_config(assignments=[*OWN, own, "steps=1"]), tmp_path / "run").run()
    (only,) = readings_of(tmp_path / "run")
    told = {name: each for name, each in only.items() if name.startswith("experts/")}
    assert isinstance(told.pop(NO_AUXILIARY_LOSS), NotApplicable)
    assert set(told.values()) == {NotApplicable("no routing is replayed")}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "taken"), [("mixtral", True), ("qwen2", False)])
def test_rspo_can_be_switched_on_during_a_run_with_routers(
    family: str, taken: bool, tmp_path: Path
) -> None:
    own = f"model.name={save(family, tmp_path / 'model')}"
    trainer = Trainer(load_config(assignments=[*OWN, own]), tmp_path / "run")
    Mailbox(tmp_path / "run").send(Request("r", "apply", "t", "by-hand", {"loss": "rspo"}))
    trainer.run()
    assert (trainer.config.loss.kind == "rspo") is taken
    kinds = [event.kind for event in read_run(tmp_path / "run").events]
    assert ("treatment-applied" if taken else "treatment-refused") in kinds


def test_measuring_experts_changes_no_weight(tmp_path: Path) -> None:
    ends = []
    for look in ("record.experts_every=1", "record.experts_every=0", "record.enabled=false"):
        trainer = Trainer(load_config(assignments=[*QUICK, look]), tmp_path / look)
        trainer.run()
        ends.append(trainer.learner.parameters)
    for others_ in ends[1:]:
        for one, other in zip(ends[0], others_, strict=True):
            assert torch.equal(one, other)


def test_a_dense_run_has_no_hook_and_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    dense = load_config(
        assignments=[*QUICK, "model.experts=0", "model.warm_start_steps=0", "steps=1"]
    )
    hooked: list[str] = []
    for kind in ("register_forward_hook", "register_forward_pre_hook"):
        monkeypatch.setattr(torch.nn.Module, kind, lambda *_, kind=kind, **__: hooked.append(kind))
    Trainer(dense, tmp_path).run()
    assert hooked == []
    (only,) = readings_of(tmp_path)
    experts = {name: each for name, each in only.items() if name.startswith("experts/")}
    assert experts.keys() == EXPERT_METRICS
    assert set(experts.values()) == {NotApplicable("the model is dense")}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["engine.routing_replay=R2", "loss.kind=gspo"], "one of them is enough"),
        (["engine.routing_replay=R3", "loss.kind=rspo"], "one of them is enough"),
        (["engine.routing_replay=R3", "engine.kind=vllm"], "the experts of vLLM are not read"),
        (["engine.routing_replay=R2", "model.experts=0"], "is dense and has no routers"),
        (["model.experts=2"], "the router has no choice"),
    ],
)
def test_conflicting_expert_settings_are_refused(settings: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config(assignments=["model.experts=8", *settings])


@pytest.mark.parametrize("preset", ["grpo", "minirl", "gspo"])
def test_general_recipes_run_on_a_mixture(preset: str) -> None:
    load_config(preset_of(preset).settings, assignments=["model.experts=8"])
