"""`grpodoctor.attach`: connect to a trainer of any supported framework."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.adapter import Adapter, adapter_for, adapters
from grpodoctor.hooks.guard import reason_of
from grpodoctor.hooks.run_hook import HookOptions, RunHook, hook_options
from grpodoctor.report.run.run_report import RunReport
from grpodoctor.rules.base import Finding
from grpodoctor.runs.rollouts import Depth
from grpodoctor.treatment.doctor import Apply

_log = logging.getLogger("grpodoctor")


class Attachment:
    """A connection to a trainer, or the reason why there is none.

    Args:
        hook: the hook in the trainer; None if it could not be attached.
        problem: why it could not be attached.
    """

    def __init__(self, hook: RunHook | None, problem: str = "") -> None:
        self._hook, self._problem = hook, problem

    @property
    def active(self) -> bool:
        """Whether the training is, or will be, recorded."""
        return not self.problem and not (self._hook is not None and self._hook.failure)

    @property
    def problem(self) -> str:
        """Why the training is not recorded; empty if it is."""
        return self._hook.problem if self._hook is not None else self._problem

    @property
    def run_dir(self) -> Path | None:
        """The run directory; pass it to `grpodoctor watch`."""
        return self._hook.run_dir if self._hook is not None else None

    @property
    def missing(self) -> dict[str, str]:
        """Values that this version of the framework does not offer, with reasons."""
        return dict(self._hook.missing_values) if self._hook is not None else {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings so far."""
        return self._hook.findings if self._hook is not None else ()

    def report(self) -> RunReport:
        """The report of the run so far; if nothing can be read, its verdict is the reason."""
        if self._hook is None:
            return RunReport.without_run("", "unknown", self._problem)
        return self._hook.report()

    def close(self) -> None:
        """End the recording before the training ends."""
        if self._hook is not None:
            self._hook.close(finished=False)

    def __repr__(self) -> str:
        state = f"recording to {self.run_dir}" if self.active else self.problem
        return f"<grpodoctor attachment: {state}>"


_attachments: WeakKeyDictionary[Any, Attachment] = WeakKeyDictionary()


def attach(
    trainer: object,
    run_dir: str | os.PathLike[str] | None = None,
    apply: Apply = "none",
    *,
    depth: Depth = "summary",
    worst: int = 8,
    config: object = None,
) -> Attachment:
    """Record, diagnose and optionally treat the training of a trainer; call it before training.

    It never raises, so that it cannot stop a job that waited in a queue. If the trainer cannot be
    attached to, one warning line says why, and the training runs without grpodoctor.

    Args:
        trainer: a trainer of a supported framework, such as TRL's `GRPOTrainer`.
        run_dir: directory to record in; by default `grpodoctor` in the trainer's output directory.
        apply: remedies to apply without a person: `none`, `safe` or `unsafe`. With `none`,
            `grpodoctor watch --apply` can still apply them.
        depth: how much of each response is kept: `off`, `summary`, `worst` or `full`.
        worst: responses kept in full at depth `worst`.
        config: configuration of the training, for an object that has none, such as a logger.
    """
    try:
        options = replace(hook_options(run_dir, apply, depth, worst), config=config)
        return _attach(trainer, options)
    except Exception as error:  # noqa: BLE001 - the boundary to the training
        problem = f"cannot attach to {type(trainer).__name__}: {reason_of(error)}"
        _log.warning("%s; the training runs without grpodoctor", problem)
        return Attachment(None, problem)


def _attach(trainer: object, options: HookOptions) -> Attachment:
    known = _known(trainer)
    if known is not None:
        _log.warning("grpodoctor is already attached to this trainer (%s)", known.run_dir)
        return known
    kind = adapter_for(trainer)
    if kind is None:
        names = ", ".join(sorted(adapters())) or "none"
        raise ConfigError(
            f"this class is not supported; supported frameworks: {names}",
            remedy="use grpodoctor.Doctor in a custom loop",
        )
    return _install(kind(trainer), options)


def _install(adapter: Adapter, options: HookOptions) -> Attachment:
    hook = RunHook(adapter.framework, options, adapter.default_run_dir())
    adapter.install(hook)
    attachment = Attachment(hook)
    try:
        _attachments[adapter.trainer] = attachment
    except TypeError:  # without weak references, a second call is not noticed
        _log.debug("%s cannot be remembered", type(adapter.trainer).__name__)
    return attachment


def _known(trainer: object) -> Attachment | None:
    try:
        return _attachments.get(trainer)
    except TypeError:
        return None
