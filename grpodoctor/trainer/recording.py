"""A run's recorder and inbox behind one door that is shut when recording is off."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.measure.weights import WeightSnapshot
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.step_record import TrainingStep, manifest, step_batch
from grpodoctor.treatment.mailbox import Inbox, Refused, Request
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class RunRecording:
    """Hands each step to the recorder and takes requests from the mailbox.

    Args:
        config: of the run; `record.enabled` decides whether this does anything.
        policy: what is trained.
        run_dir: where the run is recorded.
        ranks: of whom the first alone records; what it is handed is the same on all.
        resume: continue the records of the directory.

    Raises:
        RunError: if the directory cannot be recorded in.
    """

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        run_dir: Path,
        *,
        resume: bool,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self._recorder: Recorder | None = None
        self._inbox: Inbox | None = None
        self._snapshot: WeightSnapshot | None = None
        self._spent: float | None = None
        """Seconds that recording cost this thread since the step before was timed."""
        if not (config.record.enabled and ranks.is_first):
            return
        self._recorder = Recorder.open(
            run_dir,
            manifest(config, policy),
            depth=config.record.depth,
            worst=config.record.worst,
            resume=resume,
        )
        self._inbox = Inbox(run_dir)

    def requests(self) -> list[Request | Refused]:
        """What the mailbox holds for this run."""
        return self._inbox.take() if self._inbox else []

    def event(self, kind: str, step: int, body: Mapping[str, Any] | None = None) -> None:
        """Add a line to the run's events."""
        if self._recorder:
            self._recorder.event(kind, step, body)

    def before_updates(self, model: PreTrainedModel, step: int, every: int) -> None:
        """Remember the weights, at every so many steps."""
        if self._recorder and every and step % every == 0:
            began = time.perf_counter()
            self._snapshot = WeightSnapshot.take(model)
            self._spent = (self._spent or 0.0) + time.perf_counter() - began

    def step(
        self,
        facts: TrainingStep,
        model: PreTrainedModel,
        more: Mapping[str, Reading],
        changes: Mapping[str, Setting],
    ) -> None:
        """Record a step: arrays are handed over, the arithmetic is another process's.

        What that costs is known only afterwards: each step tells it of the one before.
        """
        if not self._recorder:
            return
        began = time.perf_counter()
        moved = self._snapshot.change(model) if self._snapshot else {}
        self._snapshot = None
        cost = {} if self._spent is None else {"time/record": Mean.of([self._spent])}
        batch = step_batch(facts, {**more, **moved, **cost})
        self._recorder.step(facts.step, batch, knobs=changes)
        self._spent = time.perf_counter() - began

    def close(self, *, finished: bool) -> None:
        """Write what is left and let go of the directory; does nothing the second time.

        Args:
            finished: whether the run came to an end of its own.
        """
        if self._recorder:
            self._recorder.close(finished=finished)
