"""The logger for NeMo RL, with the calls of its commit 7ea279ab (after v0.7.0).

`Logger.log_metrics` calls each of its `loggers` with (metrics, step, prefix, step_metric,
step_finished), all positional; `grpo_train` logs validation, train, performance and timing rows.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import grpodoctor
from grpodoctor.vocabulary.values import scalar

CONFIG = {
    "grpo": {"num_generations_per_prompt": 8, "num_prompts_per_step": 4},
    "loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.28, "reference_policy_kl_type": "k2"},
    "policy": {"model_name": "tiny"},
}


class Logger:
    """The list of loggers, and the calls that NeMo RL makes of each."""

    def __init__(self, folder: Path) -> None:
        self.base_log_dir, self.loggers = str(folder), list[Any]()

    def log_metrics(
        self, metrics: Any, step: int, prefix: str = "", axis: Any = None, last: bool = False
    ) -> None:
        for logger in self.loggers:
            logger.log_metrics(metrics, step, prefix, axis, last)

    def log_hyperparams(self, params: Any) -> None:
        for logger in self.loggers:
            logger.log_hyperparams(params)

    def finish(self) -> None:
        for logger in self.loggers:
            if callable(finish := getattr(logger, "finish", None)):
                finish()


Logger.__module__ = "nemo_rl.utils.logger"


def train(logger: Logger, steps: int = 3) -> None:
    """The rows of `grpo_train`, with the types that it logs."""
    for step in range(1, steps + 1):
        if step == 2:
            logger.log_metrics({"accuracy": 0.25, "avg_length": 9.0}, step, "validation")
        logger.log_metrics({"node.0.gpu.0.util": 90.0}, 400 + step, "ray", "ray/ray_step")
        train = {"loss": torch.tensor(-0.5), "reward": np.float32(0.5), "lr": 1e-6,
            "grad_norm": 0.3, "kl_penalty": 0.02 * step, "mean_gen_tokens_per_sample": 120,
            "truncation_rate": 0.125, "histogram": [1, 2],
            "baseline_reward": {"pct_0": 25.0}}  # fmt: skip
        logger.log_metrics(train, step, "train")
        logger.log_metrics({"total_step_time": 7.0}, step, "timing/train", None, True)
    logger.finish()


def test_the_rows_of_a_step_are_one_step(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    attachment = grpodoctor.attach(logger, config=CONFIG)
    logger.log_hyperparams(CONFIG)
    train(logger)
    run = grpodoctor.open_run(tmp_path / "grpodoctor")
    records = list(run)
    assert [record.step for record in records] == [1, 2, 3]
    values = records[1].values
    expected = {
        "optimizer/loss": -0.5, "reward/mean": 0.5, "optimizer/grad_norm": 0.3,
        "kl/reference/k2": 0.04, "length/mean": 120, "length/truncated_rate": 0.125,
        "groups/all_incorrect_rate": 0.25, "time/step": 7.0, "accuracy/heldout": 0.25,
    }  # fmt: skip
    for name, value in expected.items():
        assert scalar(values[name]) == pytest.approx(value), name
    assert "accuracy/heldout" not in records[0].values
    assert run.manifest.knobs["clip_high"] == 0.28
    assert run.manifest.knobs["group_size"] == 8
    assert list(attachment.missing) == ["metrics that this version renamed"]
    assert any(event.kind == "finished" for event in run.events)


def test_a_pydantic_configuration_is_read(tmp_path: Path) -> None:
    from pydantic import BaseModel

    class Master(BaseModel):
        grpo: dict[str, int]
        loss_fn: dict[str, Any]

    logger = Logger(tmp_path)
    grpodoctor.attach(logger, config=Master(grpo=CONFIG["grpo"], loss_fn=CONFIG["loss_fn"]))
    train(logger, steps=1)
    assert grpodoctor.open_run(tmp_path / "grpodoctor").manifest.knobs["group_size"] == 8


def test_without_a_configuration_one_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = Logger(tmp_path)
    grpodoctor.attach(logger)
    train(logger, steps=1)
    lines = [each.getMessage() for each in caplog.records]
    assert sum("pass config= to grpodoctor.attach" in line for line in lines) == 1


def test_a_broken_row_stops_neither_the_training_nor_other_loggers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger, rows = Logger(tmp_path), list[Any]()
    grpodoctor.attach(logger, config=CONFIG)
    logger.loggers.append(SimpleNamespace(log_metrics=lambda *row: rows.append(row)))
    logger.log_metrics({"loss": 1.0}, "first", "train")  # type: ignore[arg-type]
    logger.log_metrics({"loss": 0.5}, 1, "train")
    assert len(rows) == 2
    assert "log failed and is off from now on" in caplog.text
