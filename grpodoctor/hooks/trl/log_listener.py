"""Recording from what TRL documents: its callbacks and its log rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.translation import Translator
from grpodoctor.frameworks.trl.metrics import FRAMEWORK, SUMMARY_KEYS
from grpodoctor.hooks.logged_steps import numbers_of
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.hooks.trl.completion_files import CompletionFiles
from grpodoctor.hooks.trl.learning_rate import add_learning_rate
from grpodoctor.hooks.trl.private_names import installed_version
from grpodoctor.hooks.trl.reward_calls import RewardCalls
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading

_EVALUATION = ("eval_", "eval/")


class LogListener:
    """Records a step for each row that TRL logs, or a framework that extends its trainer.

    Args:
        hook: the recorder.
        framework: gives the keys their meaning.
        version: version of the framework.
        calls: gives the responses; None if they are not observed.
        reads_files: whether the responses may be in TRL's completion files.
    """

    def __init__(
        self,
        hook: RunHook,
        framework: Framework = FRAMEWORK,
        version: str | None = None,
        calls: RewardCalls | None = None,
        *,
        reads_files: bool = False,
    ) -> None:
        self._hook, self._framework, self._calls = hook, framework, calls
        self._version = installed_version() if version is None else version
        self._config: dict[str, Any] = {}
        self._translator = Translator(framework, version=self._version)
        self._reads_files = reads_files
        self._files: CompletionFiles | None = None
        self._pending: tuple[int, dict[str, Reading] | None] | None = None
        """A row whose file is not written yet; without readings, that of an evaluation."""

    def train_begin(self, args: Any, state: Any, objects: dict[str, Any]) -> None:
        """Register the knobs and open the run directory."""
        self._config = config_of(args)
        if self._reads_files and self._config.get("log_completions") is True:
            self._files = CompletionFiles(Path(args.output_dir))
        settings = {name: each for name, each in self._config.items() if _is_setting(each)}
        self._translator = Translator(self._framework, settings, self._version)
        self.add_knobs(args, objects)
        known = self._hook.knobs.settings()
        for name, setting in self._framework.knobs.read(settings).items():
            if name not in known:
                self._hook.knobs.read_only(name, setting)
        model_config = getattr(objects.get("model"), "config", None)
        self._hook.begin(
            model=str(getattr(model_config, "name_or_path", "") or ""),
            config=self._config,
            versions={"trl": installed_version(), self._framework.name: self._version},
            seed=getattr(args, "seed", None),
            resume=state.global_step > 0,
        )

    def add_knobs(self, args: Any, objects: dict[str, Any]) -> None:  # noqa: ARG002 - for subclasses
        """Register what can change in place."""
        add_learning_rate(self._hook.knobs, objects.get("optimizer"), objects.get("lr_scheduler"))

    def step_begin(self, state: Any) -> None:
        """Put requested changes in force."""
        self._record_pending()
        self._hook.begin_step(state.global_step + 1)

    def before_update(self, objects: dict[str, Any]) -> None:
        """Nothing is read from the gradients."""

    def step_end(self, state: Any) -> None:
        """The row of the step comes with `log`."""

    def log(self, state: Any, row: dict[str, Any]) -> None:
        """Record the row; if its responses are in a file that follows, with the next event."""
        self._record_pending()
        readings = self.readings(row)
        if is_evaluation(row):
            for name, reading in readings.items():
                self._hook.reading(name, reading)
            self._pending = (state.global_step, None)
        elif readings and self._files is not None:
            self._pending = (state.global_step, readings)
        elif readings:
            batch = self._responses(state.global_step)
            measured = readings if batch is None else StepBatch(rollouts=batch, readings=readings)
            self._hook.end_step(state.global_step, measured)

    def _record_pending(self) -> None:
        """Record the latest row with the file that TRL has written since."""
        pending, self._pending = self._pending, None
        if pending is None or self._files is None:
            return
        step, readings = pending
        measured = None
        if self._hook.rank == 0:  # the rank that writes the files, with the responses of all ranks
            measured = self._hook.guard.run("completion files", self._files.readings, step)
        if readings is not None:
            self._hook.end_step(step, {**(measured or {}), **readings})

    def _responses(self, step: int) -> RolloutBatch | None:
        """The responses since the previous row, as far as they are known."""
        if self._calls is None:
            return None
        return self._hook.guard.run("responses", self._calls.batch, step, self._hook.rank)

    def readings(self, row: Mapping[str, Any]) -> dict[str, Reading]:
        """The readings of a row of TRL's log; values that are not numbers are left out."""
        kept = {key: value for key, value in row.items() if key not in SUMMARY_KEYS}
        return self._translator.readings(dict(numbers_of(kept)))

    def train_end(self) -> None:
        """Close the run."""
        self._record_pending()
        self._hook.close(finished=True)


def config_of(args: Any) -> dict[str, Any]:
    """The training arguments as plain values."""
    config = args.to_dict() if hasattr(args, "to_dict") else vars(args)
    return {str(name): each for name, each in config.items() if _is_plain(each)}


def is_evaluation(row: Mapping[str, Any]) -> bool:
    """Whether a row is of an evaluation."""
    return any(key.startswith(_EVALUATION) for key in row)


def _is_setting(value: object) -> bool:
    return isinstance(value, Setting) and not (isinstance(value, float) and math.isnan(value))


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, Setting)
