"""Records a training from the rows of metrics that it logs, one step after the other.

Most frameworks pass each row to a list of loggers, or to a callback. Their adapters give the rows
to `LoggedSteps`, which translates them with the table that also reads the framework's log files.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.frameworks.translation import Translator
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.values import Reading

_DEEPEST = 4
"""Levels of nested metrics."""
_OF_RESPONSES = frozenset(
    {"reward/mean", "reward/std", "reward/min", "reward/max", "length/mean", "length/min",
     "length/max", "groups/zero_variance_rate", "mismatch/logprob_diff_mean",
     "mismatch/logprob_diff_max/worst_sequence"}
)  # fmt: skip
"""Metrics that are measured in any batch of responses, with the response that causes a maximum."""


class LoggedSteps:
    """The steps of a training, made from its rows.

    A step may be logged in several rows. It is recorded when the adapter ends it, or as soon as a
    row of a later step comes. A row without a known key is ignored: loggers also get the load of
    GPUs, under other counters.

    Args:
        hook: the recorder.
        framework: gives the keys their meaning.
        version: version of the framework; empty if it is unknown.
    """

    def __init__(self, hook: RunHook, framework: Framework, version: str = "") -> None:
        self._hook, self._framework, self._version = hook, framework, version
        self._translator = Translator(framework, version=version)
        self._settings: dict[str, Setting] = {}
        self._step: int | None = None
        self._is_recorded = False
        """Whether the latest step is recorded."""
        self._logged: dict[str, Reading] = {}
        """Logged readings of the latest step, until the step is recorded."""
        self._measured: dict[str, Reading] = {}
        """Readings of the same step that the adapter measured; they replace logged ones."""

    def begin(self, config: Mapping[str, Any], **facts: Any) -> None:
        """Open the run directory.

        Args:
            config: the framework's configuration as plain values.
            facts: further arguments of `RunHook.begin`.
        """
        self._settings = settings = dict(flattened(config))
        self._translator = Translator(self._framework, settings, self._version)
        changeable = self._hook.knobs.changeable()
        for name, setting in self._framework.knobs.read(settings).items():
            if name not in changeable:
                self._hook.knobs.read_only(name, setting)
        versions = {self._framework.name: self._version} if self._version else {}
        self._hook.begin(config=config, versions=versions, **facts)
        atexit.register(self._close_at_exit)  # the latest registered runs first: before the hook's

    def begin_step(self, step: int) -> None:
        """Put requested changes in force; called by `add` if the adapter does not call it.

        Args:
            step: number of the step that begins.
        """
        self.end_step()
        self._step, self._is_recorded = step, False
        self._hook.begin_step(step)

    def add(self, step: int, row: Mapping[str, object]) -> None:
        """Add a row.

        Args:
            step: the step that the row belongs to.
            row: metrics by the framework's keys; values that are not numbers are ignored.
        """
        numbers = dict(numbers_of(row))
        if self._step is None and self._framework.infer_settings is not None:
            settings = {**self._framework.infer_settings([numbers]), **self._settings}
            self._translator = Translator(self._framework, settings, self._version)
        self._add(step, self._translator.readings(numbers), self._logged)

    def add_measured(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Add what the adapter measured; it replaces what the rows of the step give.

        Args:
            step: the step that the readings belong to.
            readings: by canonical metric.
        """
        self._add(step, readings, self._measured)

    def _add(self, step: int, readings: Mapping[str, Reading], to: dict[str, Reading]) -> None:
        if not readings:
            return
        step = int(step)  # frameworks are not typed: anything else must not reach the recorder
        if self._step is None or step > self._step:
            self.begin_step(step)
        if step == self._step and not self._is_recorded:
            to.update(readings)
        else:
            self._add_late(readings)

    def end_step(self, rollouts: RolloutBatch | None = None) -> None:
        """Record the current step.

        Args:
            rollouts: its responses; what they give is not taken from the rows.
        """
        readings = {**self._logged, **self._measured}
        self._logged.clear()
        self._measured.clear()
        if self._step is None or self._is_recorded or (rollouts is None and not readings):
            return
        self._is_recorded = True
        if rollouts is None:
            self._hook.end_step(self._step, readings)
            return
        kept = {name: each for name, each in readings.items() if name not in _OF_RESPONSES}
        self._hook.end_step(self._step, StepBatch(rollouts=rollouts, readings=kept))

    def close(self, *, finished: bool = True) -> None:
        """Record the last step and close the run."""
        atexit.unregister(self._close_at_exit)
        self.end_step()
        self._hook.close(finished=finished)

    def _close_at_exit(self) -> None:
        self._hook.guard.run("closing", self.close, finished=False)

    def _add_late(self, readings: Mapping[str, Reading]) -> None:
        """A row of a step that is recorded already: evaluations may end late."""
        for name, reading in readings.items():
            if name.startswith(HELDOUT):
                self._hook.reading(name, reading)
            else:
                self._hook.missing(name, "its row came after the step was recorded")


def numbers_of(
    row: Mapping[str, object], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, float]]:
    """The numbers of a row by key; the keys of nested rows are joined by `/`."""
    for key, value in row.items():
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from numbers_of(value, f"{prefix}{key}/", depth + 1)
        elif (number := _number_of(value)) is not None:
            yield f"{prefix}{key}", number


def _number_of(value: Any) -> float | None:
    """A number of Python, numpy or torch; None for anything else."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def package_version(package: str) -> str:
    """The version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def note_version(hook: RunHook, title: str, version: str, verified: tuple[str, ...]) -> None:
    """Report a version of the framework that the adapter was not verified with."""
    release = re.match(r"[0-9.]*[0-9]|", version)  # without `.dev3` or `rc1`
    if release is None or release[0] not in verified:
        known = ", ".join(verified)
        hook.missing(
            "metrics that this version renamed",
            f"{title} {version or 'of unknown version'} is not among the verified versions {known}",
        )
