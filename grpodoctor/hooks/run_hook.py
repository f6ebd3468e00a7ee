"""The recorder of a foreign training: what an adapter or a custom loop drives.

A `RunHook` joins what the package has: the recorder with its writer process, the mailbox, the knobs
of the training, and the exchange between ranks. Its methods never raise into the training; a part
that fails is switched off, and the run's journal says so.
"""

from __future__ import annotations

import atexit
import logging
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from grpodoctor.errors import DataError, RunError
from grpodoctor.hooks.alerts.training_alerts import TrainingAlerts, training_alerts
from grpodoctor.hooks.guard import Guard
from grpodoctor.hooks.knob_requests import KnobRequests
from grpodoctor.hooks.live_knobs import LiveKnobs
from grpodoctor.hooks.live_report import LiveReport, project_settings
from grpodoctor.hooks.observer import Observer
from grpodoctor.hooks.ranks.exchange import RankExchange, this_rank
from grpodoctor.hooks.ranks.joined_steps import JoinedStep, RankSteps
from grpodoctor.hooks.run_directories import unused_directory
from grpodoctor.measure.step import StepBatch
from grpodoctor.report.run.run_report import RunReport
from grpodoctor.rules.base import Finding
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Event, Manifest
from grpodoctor.runs.rollouts import DEPTHS, Depth
from grpodoctor.treatment.doctor import Apply
from grpodoctor.treatment.mailbox import Inbox
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Max, Mean, Reading

FAILED_PARTS = "instruments/failed_parts"
FLUSH_SECONDS = 5.0
"""How long a report waits for steps that are not written yet, and closing for other ranks."""
_RANKS = "exchange between ranks"
_RUN_DIR = "run_dir"
_PACKAGES = ("grpodoctor", "torch", "transformers", "numpy")
_LONGEST_REASON = 120
_log = logging.getLogger("grpodoctor")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """What the user chose."""

    run_dir: Path | None = None
    """Directory to record in; the adapter's default if None."""
    apply: Apply = "none"
    """Remedies that are applied to the training without a person: none, safe ones, or all."""
    depth: Depth = "summary"
    """How much of each response the rollouts files keep."""
    worst: int = 8
    """Responses kept in full at depth `worst`."""
    config: object = None
    """Configuration of the training, for adapters whose object has none."""


def hook_options(
    run_dir: str | os.PathLike[str] | None, apply: Apply, depth: Depth, worst: int
) -> HookOptions:
    """The user's choices; an invalid one is replaced by the default, with a warning."""
    if apply not in ("none", "safe", "unsafe"):
        _log.warning("apply cannot be %r; no remedy is applied", apply)
        apply = "none"
    if depth not in DEPTHS:
        _log.warning("depth cannot be %r; the depth is summary", depth)
        depth = "summary"
    return HookOptions(run_dir=_directory(run_dir), apply=apply, depth=depth, worst=worst)


def _directory(run_dir: object) -> Path | None:
    if run_dir is None:
        return None
    try:
        return Path(os.fsdecode(run_dir))  # type: ignore[arg-type]  # refused here if it is no path
    except TypeError:
        _log.warning("run_dir cannot be %r; the default directory is used", run_dir)
        return None


class RunHook:
    """Records and treats one training.

    Args:
        framework: name of the framework, as in `grpodoctor.frameworks`; remedies use its keys.
        options: the user's choices.
        default_dir: directory to record in if the user named none.
    """

    def __init__(self, framework: str, options: HookOptions, default_dir: Path) -> None:
        self.framework, self.options = framework, options
        self._wanted_dir = self.run_dir = Path(options.run_dir or default_dir).absolute()
        """Where the run is recorded; known for certain once `begin` was called."""
        self.guard = Guard(self._note_failure)
        self.knobs = LiveKnobs()
        self.missing_values: dict[str, str] = {}
        """Values that this training does not offer, with reasons."""
        self.problem = ""
        """Why nothing is recorded; empty if all is well."""
        info = this_rank()
        self.rank, self.world = info.rank, info.world
        self._recorder: Recorder | None = None
        self._requests: KnobRequests | None = None
        self._exchange: RankExchange | None = None
        self._rank_steps: RankSteps | None = None
        self._view: LiveReport | None = None
        self._observer: Observer | None = None
        self._alerts: TrainingAlerts | None = None
        self._readings: dict[str, Reading] = {}
        self._step = 0
        self._is_open = False
        self._said: set[str] = set()
        self._close_at_exit = partial(self.close, finished=False)

    # The course of a training

    def begin(
        self,
        *,
        model: str = "",
        config: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        seed: int | None = None,
        resume: bool = False,
    ) -> None:
        """Open the run directory; every rank calls it once, when the training starts.

        After `close`, it begins another run: a trainer may train twice.

        Args:
            model: name or path of the model.
            config: the framework's complete configuration.
            versions: versions of the packages that affect the numbers.
            seed: seed of the training.
            resume: whether the training continues from a checkpoint.
        """
        if not self._is_open:
            self._is_open = True
            self.guard.run(
                "start",
                self._begin,
                versions or {},
                model=model,
                config=config,
                seed=seed,
                resume=resume,
            )

    def _begin(
        self,
        versions: Mapping[str, str],
        *,
        model: str,
        config: Mapping[str, Any] | None,
        seed: int | None,
        resume: bool,
    ) -> None:
        self._view, self._recorder, self.problem = None, None, ""
        info = this_rank()
        self.rank, self.world = info.rank, info.world
        manifest = Manifest(
            framework=self.framework,
            versions={**_installed_versions(), **versions},
            model=model,
            knobs=self.guard.run("knobs", self.knobs.all_settings) or {},
            config=self.guard.run("configuration", _as_dict, config) or {},
            seed=seed,
        )
        self.guard.run("recording", self._open, manifest, resume)

    def begin_step(self, step: int) -> None:
        """Put requested changes of knobs in force; every rank, at the start of each step."""
        self._step = step
        if self._alerts is not None:
            self.guard.run("alerts", self._alerts.deliver)
        if self._observer is not None and (reason := self._observer.failure()):
            self.guard.run("observer", self._observer.stop)
            self._observer = self._alerts = None
            self.guard.fail("observer", reason)
        if self._requests is not None:
            self.guard.run("treatment", self._requests.begin_step, step)

    def end_step(
        self,
        step: int,
        measured: StepBatch | Mapping[str, Reading],
        *,
        knobs: Mapping[str, Setting] | None = None,
    ) -> None:
        """Record a step; every rank calls it once per rollout batch.

        Args:
            step: the trainer's own step counter.
            measured: this rank's responses and updates, or finished readings. Arrays must be
                copies that nothing changes any more.
            knobs: changed settings that are not registered in `knobs`.
        """
        self._step = step
        self.guard.run("recording", self._end_step, step, measured, knobs or {})

    def close(self, *, finished: bool = True) -> None:
        """Write what is pending and release the directory; the second call does nothing.

        Args:
            finished: whether the training is complete.
        """
        if not self._is_open or not self.guard.is_on("closing"):
            return
        self.guard.run("closing", self._close, finished)

    # Further facts

    def reading(self, name: str, reading: Reading) -> None:
        """Add a reading to the next recorded step.

        Args:
            name: canonical name of the metric.
            reading: its value.
        """
        self._readings[name] = reading

    def event(self, kind: str, step: int, body: Mapping[str, object] | None = None) -> None:
        """Add a line to the run's journal; ranks above 0 write none."""
        if self._recorder is not None:
            self._recorder.event(kind, step, body)

    def missing(self, what: str | Sequence[str], why: str) -> None:
        """Report values that this training does not offer: once, and with one line for a reason.

        Args:
            what: the value, or several.
            why: the reason.
        """
        names = [what] if isinstance(what, str) else what
        new = [name for name in names if name not in self.missing_values]
        self.missing_values |= dict.fromkeys(new, why)
        if new and self.rank == 0:
            _log.warning("not recorded: %s (%s)", "; ".join(new), why)
        for name in new:
            self.event("warning", self._step, {"missing": name, "why": why})

    @property
    def failure(self) -> str | None:
        """Why recording ended early; None if it did not."""
        return self._recorder.failure if self._recorder is not None else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings so far; empty if nothing could be read."""
        return self.report().findings

    def report(self) -> RunReport:
        """The report of the run so far; if nothing can be read, its verdict is the reason."""
        if self._recorder is None:
            return self._empty_report(self.problem or "nothing is recorded yet")
        report = self.guard.run("report", self._report, self._recorder)
        return report or self._empty_report(self.guard.failed.get("report", "another process"))

    def _empty_report(self, reason: str) -> RunReport:
        return RunReport.without_run(str(self.run_dir), self.framework, reason)

    def _report(self, recorder: Recorder) -> RunReport:
        if self._rank_steps is not None:
            self._rank_steps.finish(FLUSH_SECONDS)
        recorder.flush(FLUSH_SECONDS)
        self._view = self._view or LiveReport(self.run_dir)
        return self._view.report()

    # Inside

    def _open(self, manifest: Manifest, resume: bool) -> None:
        self._exchange = RankExchange.connect()
        if self.rank == 0:
            self.run_dir = unused_directory(self._wanted_dir, resume=resume)
            if self._exchange is not None:
                data = str(self.run_dir).encode()
                self.guard.run(_RANKS, self._exchange.post, _RUN_DIR, data)
            self._open_recorder(manifest, resume)
        if self._exchange is not None:
            run = partial(self.guard.run, _RANKS)
            self._rank_steps = RankSteps(self._exchange, self._record, run)
        elif self.world > 1:
            self.missing("the part of ranks above 0", "torch.distributed is not initialized")
        inbox = Inbox(self.run_dir) if self.rank == 0 and self._recorder is not None else None
        self._requests = KnobRequests(self.knobs, inbox, self._exchange, self._write)
        atexit.register(self._close_at_exit)

    def _open_recorder(self, manifest: Manifest, resume: bool) -> None:
        options = self.options
        try:
            self._recorder = Recorder.open(
                self.run_dir,
                manifest,
                depth=options.depth,
                worst=options.worst,
                rank=self.rank,
                resume=resume,
            )
        except RunError as error:
            self.problem = str(error)
            _log.warning("the training is not recorded: %s", error)
            return
        for part, reason in self.guard.failed.items():
            self._note_failure(part, reason)
        for what, why in self.missing_values.items():
            self.event("warning", self._step, {"missing": what, "why": why})
        if self.rank == 0:
            _log.info("recording to %s; follow it with: grpodoctor watch %s", *[self.run_dir] * 2)
            self.guard.run("observer", self._start_observer)

    def _start_observer(self) -> None:
        """Start the process that treats the run and sends alerts, if one of them is wanted."""
        alerts = project_settings().alerts
        if self.options.apply != "none" or alerts.channels:
            self._observer = Observer(self.run_dir, self.options.apply)
            self._alerts = training_alerts(self._observer.read, alerts)

    def _follow_first_rank(self) -> None:
        """On ranks above 0: open the directory that rank 0 chose, once it is known."""
        if self._recorder is not None or self._exchange is None or self.problem:
            return
        chosen = self._exchange.peek(_RUN_DIR)
        if chosen is not None:
            self.run_dir = Path(chosen.decode())
            self._open_recorder(Manifest(), resume=False)

    def _end_step(
        self,
        step: int,
        measured: StepBatch | Mapping[str, Reading],
        knobs: Mapping[str, Setting],
    ) -> None:
        own = {**self._own_readings(), **self._readings}
        self._readings = {}
        if isinstance(measured, StepBatch):
            measured = replace(measured, readings={**own, **measured.readings})
        else:
            measured = {**own, **measured}
        changes = {**(self.guard.run("knobs", self.knobs.changes) or {}), **knobs}
        if self._rank_steps is not None and self.guard.is_on(_RANKS):
            self.guard.run(_RANKS, self._rank_steps.end_step, step, measured, changes)
        elif self._recorder is not None:
            self._recorder.step(step, measured, knobs=changes)
        if self.rank and isinstance(measured, StepBatch):
            self.guard.run(_RANKS, self._follow_first_rank)
            if self._recorder is not None:
                self._recorder.step(step, {}, rollouts=measured.rollouts)

    def _own_readings(self) -> dict[str, Reading]:
        """The cost of the instruments since the previous step, and those that failed."""
        failed = list(self.guard.failed.items())
        last = f"{failed[-1][0]}: {failed[-1][1]}"[:_LONGEST_REASON] if failed else None
        readings: dict[str, Reading] = {FAILED_PARTS: Max(float(len(failed)), last)}
        if (seconds := self.guard.take_seconds()) is not None:
            readings["time/record"] = Mean.of_number(seconds)
        return readings

    def _record(self, joined: JoinedStep) -> None:
        if joined.missing and "ranks" not in self._said:
            self._said.add("ranks")
            ranks = ", ".join(map(str, joined.missing))
            _log.warning("step %d has no data of rank %s", joined.step, ranks)
            self.event("warning", joined.step, {"missing": f"rank {ranks}"})
        if self._recorder is not None:
            readings, rollouts = joined.readings, joined.rollouts
            self._recorder.step(joined.step, readings, knobs=joined.knobs, rollouts=rollouts)

    def _write(self, event: Event) -> None:
        self.event(event.kind, event.step, event.body)

    def _note_failure(self, part: str, reason: str) -> None:
        self.event("warning", self._step, {"failed_part": part, "reason": reason})

    def _close(self, finished: bool) -> None:
        self._is_open = False
        atexit.unregister(self._close_at_exit)
        if self._rank_steps is not None:
            self._rank_steps.finish(FLUSH_SECONDS, close=True)
        if self._recorder is not None:
            self._recorder.close(finished=finished)
        if self._observer is not None:
            self._observer.stop()
            if self._alerts is not None:
                self.guard.run("alerts", self._alerts.deliver)


def _as_dict(config: object) -> dict[str, Any]:
    """A mapping, or the attributes of an object such as those of argparse and of a dataclass.

    Raises:
        DataError: if it is neither.
    """
    if config is None or isinstance(config, Mapping):
        return dict(config or {})
    if not hasattr(config, "__dict__"):
        raise DataError(f"the config is a {type(config).__name__}", remedy="give a mapping")
    return {name: value for name, value in vars(config).items() if not name.startswith("_")}


def _installed_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def timestamped_directory() -> Path:
    """The directory of a run for which the user named none."""
    return Path("runs") / time.strftime("%Y%m%d-%H%M%S")
