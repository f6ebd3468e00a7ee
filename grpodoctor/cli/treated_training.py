"""`grpodoctor train --apply`: an observer treats the run, or the run forks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from grpodoctor.errors import ConfigError, RunError

if TYPE_CHECKING:
    from grpodoctor.runs.records import Event
    from grpodoctor.trainer.config.train_config import TrainConfig
    from grpodoctor.trainer.distributed.ranks import Ranks
    from grpodoctor.trainer.loop import StepReport, Trainer
    from grpodoctor.trials.forks.forked_training import ForkController

_REPORTED = ("proposed", "kept", "undone", "refused", "forgotten", "stopped")
"""Journal lines of treatments that are reported; switches between blocks are not."""

OnStep = Callable[["StepReport"], None]


class TrainApply(StrEnum):
    """Remedies that are applied to the run."""

    NONE = "none"
    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class TreatmentOptions:
    """How a training is treated."""

    apply: TrainApply = TrainApply.NONE
    fork: bool = False

    def __post_init__(self) -> None:
        if self.fork and self.apply is TrainApply.NONE:
            raise ConfigError(
                "--fork requires remedies to try", remedy="add --apply safe or --apply unsafe"
            )

    @property
    def _level(self) -> Literal["safe", "unsafe"]:
        return "safe" if self.apply is TrainApply.SAFE else "unsafe"

    def check(self, config: TrainConfig, ranks: Ranks) -> None:
        """Refuse a run that cannot be treated.

        Raises:
            ConfigError: if it is not recorded, or should fork and has several processes.
        """
        if self.apply is not TrainApply.NONE and not config.record.enabled:
            raise ConfigError(
                "--apply requires the record of the run",
                where="record.enabled",
                remedy="remove record.enabled=false",
            )
        if self.fork and ranks.world > 1:
            raise ConfigError(
                "--fork works with one process", remedy="train without torchrun, or without --fork"
            )

    @contextmanager
    def treating(self, run_dir: Path, say: Callable[[str], None]) -> Iterator[Forks]:
        """Treat the run as long as the context lasts; yields what forks it.

        Raises:
            ConfigError: if the project's settings file is not valid.
        """
        observer, controller, lines = None, None, None
        if self.fork:
            from grpodoctor.trials.forks.forked_training import ForkController, ForkSettings

            controller = ForkController(run_dir, self._level, ForkSettings(), say)
        elif self.apply is not TrainApply.NONE:
            from grpodoctor.hooks.observer import Observer

            observer, lines = Observer(run_dir, self._level), TreatmentLines(run_dir, say)
        try:
            yield Forks(controller, lines)
        finally:
            if observer is not None:
                observer.stop()
            if lines is not None:
                lines.end()


def verdict_line(run_dir: Path) -> str:
    """The verdict on a recorded run, safe to print; empty if its record cannot be read."""
    from grpodoctor.monitor.replay import replay
    from grpodoctor.report.run.phrases import diagnosis_line
    from grpodoctor.support.safe_text import plain

    try:
        return plain(diagnosis_line(replay(run_dir).report))
    except RunError:
        return ""


class TreatmentLines:
    """Reports each treatment that the journal of a run begins or ends.

    Args:
        run_dir: the run directory; lines of a former process are not repeated.
        say: receives lines for the user.
    """

    def __init__(self, run_dir: Path, say: Callable[[str], None]) -> None:
        from grpodoctor.runs.records import EVENTS, Event
        from grpodoctor.support.files.growing_files import Tail

        self._journal: Tail[Event] = Tail(run_dir / EVENTS, Event.from_line)
        self._say = say
        self._undecided = ""
        self._journal.read()

    def read(self) -> None:
        """Report what is new in the journal."""
        for event in self._journal.read().records:
            kind = event.kind.removeprefix("treatment-")
            if kind != event.kind and kind in _REPORTED:
                self._report(event, kind)

    def end(self) -> None:
        """Report the last lines, and a treatment that the end of the run has left undecided."""
        self.read()
        if self._undecided:
            self._say(f"the run ended before {self._undecided} was kept or undone")

    def _report(self, event: Event, kind: str) -> None:
        from grpodoctor.support.safe_text import plain

        body, is_new = event.body, kind == "proposed"
        if kind == "stopped":
            line = str(body.get("verdict", ""))
        else:
            remedy = plain(str(body.get("remedy") or "a request"), limit=80)
            self._undecided = remedy if is_new else ""
            why = body.get("summary" if is_new else "verdict") or body.get("reason") or ""
            action = f"is tried for {body.get('finding', '')}" if is_new else f"is {kind}"
            symptom = f" ({body['reason']})" if is_new and body.get("reason") else ""
            line = f"{remedy} {action}: {why}{symptom}"
        self._say(plain(f"step {event.step}: {line}", limit=1000))


class Forks:
    """Pauses a training for forks, if it has a controller, and reports treatments."""

    def __init__(self, controller: ForkController | None, lines: TreatmentLines | None) -> None:
        self._controller, self._lines = controller, lines

    def watching(self, trainer: Trainer, show: OnStep) -> OnStep:
        """What is called after each step."""
        controller, lines = self._controller, self._lines

        def on_step(report: StepReport) -> None:
            show(report)
            if controller is not None:
                controller.watch(trainer, report)
            if lines is not None:
                lines.read()

        return on_step

    def next_trainer(self, trainer: Trainer) -> Trainer | None:
        """Fork the run that has paused, and return the trainer that continues it.

        None if the run has not paused for a fork.

        Raises:
            RunError: if the checkpoint is missing, or a branch dies; the run itself is intact.
        """
        controller = self._controller
        if controller is None or controller.proposal is None:
            return None
        from grpodoctor.trainer.loop import Trainer
        from grpodoctor.trainer.model.checkpoint import saved_config

        controller.fork(trainer.config, trainer.done)
        config = saved_config(trainer.run_dir)
        return Trainer(config, trainer.run_dir, resume=True, ranks=trainer.ranks)
