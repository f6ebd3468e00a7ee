"""The optimizer's settings and the course of the learning rate."""

from __future__ import annotations

import pytest
import torch

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.config.sections import OptimizerConfig
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.model.adamw import build_adamw, scheduled_rate


def rates(total: int, **settings: object) -> list[float]:
    config = OptimizerConfig.model_validate({"learning_rate": 1.0, **settings})
    return [scheduled_rate(config, done, total) for done in range(total)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"schedule": "linear"}, [1, 0.8, 0.6, 0.4, 0.2]),
        ({"schedule": "linear", "final_learning_rate": 0.5}, [1, 0.9, 0.8, 0.7, 0.6]),
        ({"schedule": "linear", "warmup_steps": 2}, [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        (
            {"schedule": "cosine"},
            [1, 0.9045084972, 0.6545084972, 0.3454915028, 0.0954915028],
        ),
        (
            {"schedule": "cosine", "final_learning_rate": 0.5, "warmup_steps": 2},
            [1 / 3, 2 / 3, 1, 0.875, 0.625],
        ),
        ({"schedule": "cosine", "warmup_steps": 9}, [0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_the_learning_rate_follows_its_schedule(
    settings: dict[str, object], expected: list[float]
) -> None:
    assert rates(5, **settings) == pytest.approx(expected, abs=1e-9)


def test_a_single_step_has_the_whole_learning_rate() -> None:
    assert rates(1, schedule="cosine") == [1.0]


def test_adamw_gets_its_epsilon_and_betas() -> None:
    config = OptimizerConfig(epsilon=0.5, beta1=0.0, beta2=0.0)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = build_adamw([weight], config, 1.0)
    weight.grad = torch.tensor([1.5])
    optimizer.step()
    # With betas of zero the step is gradient / (|gradient| + epsilon).
    assert weight.item() == pytest.approx(-1.5 / 2.0)


def test_a_final_rate_above_the_peak_is_refused_and_one_without_schedule_noted() -> None:
    with pytest.raises(ConfigError, match="final learning rate is above"):
        load_config(assignments=["optimizer.schedule=linear", "optimizer.final_learning_rate=0.5"])
    (warning,) = load_config(assignments=["optimizer.final_learning_rate=1e-5"]).warnings()
    assert warning == (
        "optimizer.final_learning_rate has no effect: optimizer.schedule is constant"
    )
