"""Adapters for frameworks whose logger passes each row to a list of loggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from grpodoctor.frameworks.registry import all_frameworks, find_framework
from grpodoctor.hooks.adapter import Adapter, class_names
from grpodoctor.hooks.logged_steps import LoggedSteps, note_version, package_version
from grpodoctor.hooks.plain_config import plain_config
from grpodoctor.hooks.run_hook import RunHook


class RowLogger:
    """One of the loggers of a framework; it records the rows.

    A subclass adds the methods that the framework calls. Those that are missing do nothing, so that
    a new version with further methods does not fail.

    Args:
        hook: the recorder.
        steps: takes the rows.
    """

    def __init__(self, hook: RunHook, steps: LoggedSteps) -> None:
        self.hook, self.steps = hook, steps

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _nothing

    def record(self, step: int, row: Mapping[str, Any]) -> None:
        """Record a row, behind the boundary."""
        self.hook.guard.run("log", self.steps.add, step, row)

    def close(self) -> None:
        """The training is complete."""
        self.hook.guard.run("end", self.steps.close)


def _nothing(*_: Any, **__: Any) -> None:
    """A method that is not needed."""


class LoggerAdapter(Adapter):
    """Adds a `RowLogger` to the `loggers` of an object."""

    logger_class: ClassVar[str]
    """Dotted name of the framework's class that has the list."""
    package: ClassVar[str]
    """Name of the framework's package, for its version."""
    row_logger: ClassVar[type[RowLogger]]
    """What is added to the list."""

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether the object is the framework's logger."""
        return cls.logger_class in class_names(trainer)

    def settings(self, hook: RunHook) -> Mapping[str, Any]:
        """The configuration of the training; empty if it is unknown."""
        return plain_config(hook.options.config)

    def install(self, hook: RunHook) -> None:
        """Add the logger, and open the run directory."""
        loggers: list[Any] = self.trainer.loggers  # type: ignore[attr-defined]
        framework = find_framework(self.framework, all_frameworks())
        assert framework is not None  # noqa: S101 - each adapter names a known framework
        version = package_version(self.package)
        steps = LoggedSteps(hook, framework, version)
        note_version(hook, framework.title, version, self.verified_versions)
        settings = self.settings(hook)
        if not settings:
            hook.missing("settings of the training", "pass config= to grpodoctor.attach")
        steps.begin(settings)
        loggers.append(self.row_logger(hook, steps))
