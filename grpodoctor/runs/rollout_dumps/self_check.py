"""A run of our own, checked against the responses that it recorded.

A step's line and its rollouts file come from one batch. What both of them hold is computed again
from the responses and set beside the line's reading as `<metric>/recomputed`, as is done for the
dumps of other frameworks: the two disagree where somebody who trains reads a number of his own, or
where a file was damaged, cut short or exchanged.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import RunError
from grpodoctor.frameworks.bundled import rollouts as own
from grpodoctor.frameworks.rollout_formats.base import DamageLog, FilePart, Responses
from grpodoctor.measure.mismatch import PER_RESPONSE
from grpodoctor.measure.ragged import gap_figures
from grpodoctor.measure.response_table import Digest, digest_readings, join
from grpodoctor.runs.records import ROLLOUTS, StepRecord
from grpodoctor.runs.rollouts import rollouts_file
from grpodoctor.support.damage import Damage
from grpodoctor.vocabulary.metrics import RECOMPUTED
from grpodoctor.vocabulary.values import Mean, NotApplicable, Reading

PATIENCE_SECONDS = 0.5
"""How long the newest step of a live run waits for its rollouts, which follow its line."""
_TURN_SECONDS = 0.2
"""What one look at a live run spends on this, but for the step that it is at."""
_DENSE = 128
"""Steps that are all checked; of those up to twice as many every second, and so on. A check takes
some milliseconds: a run of ten thousand steps is checked at five hundred of them."""
_MOST_RANKS = 4096

_HELD_TWICE = (
    *(f"groups/{name}" for name in ("size", "effective_rate", "zero_variance_rate", "reward_std",
                                    "all_correct_rate", "all_incorrect_rate")),
    *(f"length/{name}" for name in ("mean", "correct", "incorrect", "truncated_rate",
                                    "terminated_mean", "group_gap")),
    *("reward/mean", "reward/std", "reward/truncated", "accuracy/train", "entropy/mean"),
    *("staleness/mean", "mismatch/bias", "mismatch/kl_k1", "mismatch/kl_k3", "mismatch/nonfinite"),
    *(f"mismatch/{name}" for name in PER_RESPONSE),
)  # fmt: skip
"""What a step's line and its rollouts hold alike. Advantages are not among them: the line counts
the tokens that bear loss, which the rollouts do not tell."""


def is_due(step: int) -> bool:
    """Whether a step is checked; the same whoever reads, live or afterwards."""
    return step % (1 << (step // _DENSE).bit_length()) == 0


class SelfCheck:
    """Sets beside a run's readings what its rollouts say.

    Args:
        directory: the run's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: deque[StepRecord] = deque()
        self._since = 0.0
        self._expects = True
        """Whether the last step that was checked had rollouts: else none is waited for."""
        self._damage: list[Damage] = []

    def take_damage(self) -> list[Damage]:
        """What could not be read of the rollouts since this was last asked."""
        damage, self._damage = self._damage, []
        return damage

    @property
    def holds(self) -> bool:
        """Whether steps are held back for their rollouts."""
        return bool(self._waiting)

    def offline(self, records: Iterator[StepRecord]) -> Iterator[StepRecord]:
        """The steps of a run that nobody writes to any more."""
        for record in records:
            yield self._checked(record)

    def live(self, records: Sequence[StepRecord], *, final: bool) -> tuple[list[StepRecord], bool]:
        """The steps that are ready, and whether others could be given at once.

        Args:
            records: those that are new.
            final: whether nobody writes any more.
        """
        if records:
            self._since = time.monotonic()
        self._waiting += records
        ready: list[StepRecord] = []
        until = time.monotonic() + _TURN_SECONDS
        while self._waiting:
            newest = len(self._waiting) == 1
            if newest and not final and self._may_come(self._waiting[0].step):
                return ready, False
            if time.monotonic() > until:
                return ready, True
            ready.append(self._checked(self._waiting.popleft()))
        return ready, False

    def _may_come(self, step: int) -> bool:
        """Whether a step's rollouts are not there and may be in a moment.

        They follow the line, and the next line follows them: only the newest step waits.
        """
        if not is_due(step) or time.monotonic() - self._since > PATIENCE_SECONDS:
            return False
        if rollouts_file(self._directory, step, 0).exists():
            return False
        return self._expects and (self._directory / ROLLOUTS).is_dir()

    def _checked(self, record: StepRecord) -> StepRecord:
        if not is_due(record.step):
            return record
        self._expects = rollouts_file(self._directory, record.step, 0).exists()
        again = self._again(record) if self._expects else {}
        fresh = {
            f"{name}/{RECOMPUTED}": again[name]
            for name in _HELD_TWICE
            if name in again and name in record.values
            if not isinstance(again[name], NotApplicable)
            if not isinstance(record.values[name], NotApplicable)
        }
        if not fresh:
            return record
        return StepRecord(record.step, {**record.values, **fresh}, record.knobs, record.time)

    def _again(self, record: StepRecord) -> dict[str, Reading]:
        """What the rollouts of a step say of the responses that its line is about.

        That is all of them, or rank 0's, which writes the line; as many as the line counted.
        """
        counted = _counted(record)
        parts: list[Digest] = []
        for rank in range(_MOST_RANKS):
            path = rollouts_file(self._directory, record.step, rank)
            if not path.exists():
                break
            digest = self._read(path)
            if digest is None:
                return {}
            parts.append(digest)
            if counted == len(digest) and rank == 0:
                break
        if not parts or (counted is not None and counted != sum(map(len, parts))):
            return {}
        whole = join(parts)
        readings = digest_readings(whole) | _of_responses(whole)
        # Each rank may count its groups from 0.
        several = len(parts) > 1
        return {name: each for name, each in readings.items() if not (several and "group" in name)}

    def _read(self, path: Path) -> Digest | None:
        notes = DamageLog()
        try:
            cuts = own.FORMAT.cut(path, 1 << 62)
            parts = [
                _digest(responses, figures)
                for cut in cuts
                for responses, figures in own.read_figures(FilePart(str(path), *cut, None), notes)
            ]
        except (RunError, OSError, ValueError) as error:
            notes.damaged_at(path.name, 0, str(error))
            parts = []
        self._damage += notes.damage
        return join(parts) if parts and not notes.damaged else None


def _counted(record: StepRecord) -> int | None:
    """How many responses a step's line is about; None if it does not say."""
    for name in ("length/mean", "reward/mean"):
        reading = record.values.get(name)
        if isinstance(reading, Mean) and reading.count + reading.nonfinite > 1:
            return reading.count + reading.nonfinite
    return None


def _digest(responses: Responses, figures: dict[str, NDArray[np.float64]]) -> Digest:
    """A row for each response, of figures alone: texts and tokens are not read."""
    count = len(responses)
    columns: dict[str, NDArray[np.generic]] = {
        "step": responses.steps_B,
        "group": _numbered(responses.groups or [""] * count),
        "text": np.zeros(count, np.uint64),
    }
    known = {
        "reward": responses.rewards_B,
        "correct": responses.correct_B,
        "truncated": responses.truncated_B,
        "length": responses.lengths_B,
        "staleness": responses.staleness_B,
    }
    columns |= {name: values for name, values in known.items() if values is not None}
    means, lengths = figures.pop("entropy_mean", None), responses.lengths_B
    if means is not None and lengths is not None:
        columns |= {"entropy": np.where(lengths > 0, means * lengths, 0.0)}
        columns["entropy/tokens"] = lengths
    if responses.learner is not None and responses.sampler is not None:
        columns |= gap_figures(responses.learner, responses.sampler)
    return Digest({**columns, **figures})


def _numbered(names: Sequence[str]) -> NDArray[np.uint64]:
    """A number for each name, never 0: a digest's groups are numbers."""
    known = {name: blake2b(name.encode("utf-8", "replace"), digest_size=8) for name in set(names)}
    return np.array([int.from_bytes(known[name].digest()) or 1 for name in names], np.uint64)


def _of_responses(digest: Digest) -> dict[str, Reading]:
    """The means of the figures that stand in the file for each response."""
    found: dict[str, Reading] = {}
    for name in PER_RESPONSE:
        values = digest.columns.get(name)
        if values is not None:
            known = values.astype(np.float64)
            known = known[~np.isnan(known)]
            if known.size:
                found[f"mismatch/{name}"] = Mean.of(known)
    return found
