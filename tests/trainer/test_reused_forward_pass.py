"""One forward pass both scores a batch and serves its only update."""

import json
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch

from grpodoctor.trainer import learner
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model import scoring
from grpodoctor.trainer.model.forward_scores import forward_scores

TIMES = "time/"
REWARD = "def count(prompts, completions, answers): return [len(set(text)) for text in completions]"


@pytest.fixture(autouse=True)
def _reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward that differs for nearly every response, so that there is a gradient."""
    (tmp_path / "look_ahead_reward.py").write_text(REWARD, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def trained(run_dir: Path, *assignments: str) -> tuple[dict[str, torch.Tensor], list[dict], int]:
    """Weights, recorded readings, and scored batches, after three steps."""
    small = [
        *("steps=3", "model.warm_start_steps=0", "model.width=32", "model.heads=2", "threads=1"),
        *("rollout.prompts_per_batch=3", "rollout.group_size=4", "rollout.max_length=9"),
        "task.reward=look_ahead_reward:count",
        *("optimizer.updates_per_batch=1", "optimizer.learning_rate=0.003", "evaluation.every=0"),
    ]
    trainer = Trainer(load_config(assignments=[*small, *assignments]), run_dir)
    before = {name: each.clone() for name, each in trainer.policy.model.state_dict().items()}
    counting = Mock(wraps=forward_scores)
    with (
        patch.object(learner, "forward_scores", counting),
        patch.object(scoring, "forward_scores", counting),
    ):
        trainer.run()
    steps = run_dir / "steps.jsonl"
    lines = [json.loads(line) for line in steps.read_text().splitlines()] if steps.exists() else []
    readings = [
        {name: value for name, value in line["values"].items() if not name.startswith(TIMES)}
        for line in lines
    ]
    weights = trainer.policy.model.state_dict()
    assert not any(weights[name].equal(before[name]) for name in before if "weight" in name)
    return weights, readings, counting.call_count


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(
            ["loss.entropy_coefficient=0.05", "loss.kl_coefficient=0.1"], marks=pytest.mark.slow
        ),
        ["correction.kind=tis_token", "engine.precision=int8"],
        ["loss.kind=clip_cov"],
    ],
    ids=["plain", "penalties", "corrected", "with a choice"],
)
def test_reusing_the_forward_pass_changes_no_number(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, readings, passes = trained(tmp_path / "ahead", *settings)
    monkeypatch.setattr(Learner, "reusable_forward", lambda *_: None)
    expected, expected_readings, more_passes = trained(tmp_path / "twice", *settings)
    assert more_passes == passes + 3
    assert all(weights[name].equal(expected[name]) for name in expected)
    assert readings == expected_readings


@pytest.mark.parametrize(
    "settings",
    [
        ["optimizer.updates_per_batch=3"],
        ["optimizer.micro_batch=5"],
        ["reweighting.lopti_threshold=0.5"],
    ],
    ids=["updates", "micro-batches", "passes"],
)
def test_the_forward_pass_is_not_reused_with_several_updates(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [*settings, "record.enabled=false", "steps=2"]
    _, _, passes = trained(tmp_path / "run", *given)
    monkeypatch.setattr(Learner, "reusable_forward", lambda *_: None)
    _, _, as_many = trained(tmp_path / "twice", *given)
    assert passes == as_many
