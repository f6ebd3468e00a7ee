"""The adapter for tinker-cookbook's logger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.run_config import read_file
from grpodoctor.hooks.logger_adapter import LoggerAdapter, RowLogger
from grpodoctor.hooks.run_hook import RunHook, timestamped_directory


class TinkerLogger(RowLogger):
    """A logger with the methods of tinker-cookbook's `Logger`."""

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record a row; rows without a step are running totals.

        Args:
            metrics: values by key.
            step: the batch.
        """
        if step is not None:
            self.record(step, metrics)

    def log_metrics_event(
        self,
        metrics: Mapping[str, Any],
        step: int,
        step_metric: str,  # noqa: ARG002 - tinker-cookbook's signature, here and below
        metric_axes: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> None:
        """Record an evaluation, possibly of an earlier step.

        Args:
            metrics: values by key.
            step: the batch after which the evaluated weights were saved.
            step_metric: key of the step.
            metric_axes: keys of further steps.
        """
        self.record(step, metrics)

    def get_logger_url(self) -> None:
        """There is no page to link to."""

    store = None


class TinkerAdapter(LoggerAdapter):
    """Records what a loop logs through `ml_log.setup_logging`."""

    framework = "tinker-cookbook"
    logger_class = "tinker_cookbook.utils.ml_log.MultiplexLogger"
    package = "tinker-cookbook"
    row_logger = TinkerLogger
    verified_versions = ("0.6.1",)
    instructions = """\
# In a loop of your own, such as recipes/rl_loop.py:
import grpodoctor

ml_logger = ml_log.setup_logging(log_dir=..., config=config)
grpodoctor.attach(ml_logger)  # the only new line

# rl.train makes its logger itself; follow its log instead:
#   grpodoctor watch LOG_PATH
"""

    def default_run_dir(self) -> Path:
        """A directory in that of the log; `runs/<time>` if the log is not in a local one."""
        folder = self._log_dir()
        return timestamped_directory() if folder is None else folder / "grpodoctor"

    def settings(self, hook: RunHook) -> Mapping[str, Any]:
        """The configuration: the caller's, or the one that tinker-cookbook wrote."""
        folder = self._log_dir()
        if hook.options.config is not None or folder is None:
            return super().settings(hook)
        try:
            return read_file(folder / "config.json")
        except ConfigError:
            return {}

    def _log_dir(self) -> Path | None:
        loggers: list[Any] = self.trainer.loggers  # type: ignore[attr-defined]
        names = [each.log_dir for each in loggers if type(each).__name__ == "JsonLogger"]
        if not names or ("://" in names[0] and not names[0].startswith("file://")):
            return None
        return Path(names[0].removeprefix("file://")).expanduser()
