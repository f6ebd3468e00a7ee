"""The adapter for NeMo RL's logger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.hooks.logger_adapter import LoggerAdapter, RowLogger

_LOAD = "ray"
"""Prefix of the load of the GPUs, which a thread logs with a separate counter."""


class NemoRlLogger(RowLogger):
    """A logger with the methods of NeMo RL's `LoggerInterface`."""

    def log_metrics(
        self,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,  # noqa: ARG002 - NeMo RL's signature
        step_finished: bool = False,
    ) -> None:
        """Record a row.

        Args:
            metrics: values by key.
            step: the training step.
            prefix: first part of the keys.
            step_metric: the key that W&B uses as the step.
            step_finished: whether this is the last row of the step.
        """
        if prefix == _LOAD:
            return
        start = f"{prefix}/" if prefix else ""
        self.record(step, {f"{start}{name}": value for name, value in metrics.items()})
        if step_finished:
            self.hook.guard.run("log", self.steps.end_step)

    def finish(self) -> None:
        """The training is complete."""
        self.close()


class NemoRlAdapter(LoggerAdapter):
    """Records what NeMo RL logs."""

    framework = "nemo-rl"
    logger_class = "nemo_rl.utils.logger.Logger"
    package = "nemo-rl"
    row_logger = NemoRlLogger
    verified_versions = ("0.6.0", "0.7.0")
    """The main branch after v0.7.0 calls itself 0.6.0."""
    instructions = """\
# In a copy of examples/run_grpo.py, after its call of setup(...):
import grpodoctor

grpodoctor.attach(logger, config=master_config)  # the only new line

# in another terminal, with your logger.log_dir:
#   grpodoctor watch LOG_DIR/exp_001/grpodoctor
"""

    def default_run_dir(self) -> Path:
        """A directory in the logger's own."""
        logger: Any = self.trainer
        return Path(logger.base_log_dir) / "grpodoctor"
