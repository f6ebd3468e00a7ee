"""Checking a run of the own recorder against the responses that it recorded.

A step's line and its rollouts file come from one batch. Metrics that both contain are recomputed
from the responses and added as `<metric>/recomputed`, as for the dumps of other frameworks. The two
disagree if the trainer logs a number from another source, or if a file was damaged, truncated or
replaced.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.errors import RunError
from grpodoctor.frameworks.bundled import rollouts as native_rollouts
from grpodoctor.frameworks.rollout_formats.base import DamageLog, FilePart, Responses
from grpodoctor.measure.mismatch import PER_RESPONSE
from grpodoctor.measure.ragged import gap_figures
from grpodoctor.measure.response_table import ResponseTable, join_tables, table_readings
from grpodoctor.runs.records import ROLLOUTS, StepRecord
from grpodoctor.runs.rollouts import rollouts_file
from grpodoctor.support.arrays import np
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.vocabulary.metric_qualifiers import RECOMPUTED
from grpodoctor.vocabulary.values import Mean, NotApplicable, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

PATIENCE_SECONDS = 0.5
"""How long the newest step of a live run waits for its rollouts, which are written after its line.
"""
_POLL_SECONDS = 0.2
"""Time that one poll of a live run spends on checks, apart from finishing the current step."""
_ALL_CHECKED = 128
"""Up to this step every step is checked, up to twice this step every second one, and so on. A check
takes some milliseconds; of ten thousand steps, five hundred are checked."""
_MAX_RANKS = 4096

_RECOMPUTED = (
    *(f"groups/{name}" for name in ("size", "effective_rate", "zero_variance_rate", "reward_std",
                                    "all_correct_rate", "all_incorrect_rate")),
    *(f"length/{name}" for name in ("mean", "correct", "incorrect", "truncated_rate",
                                    "terminated_mean", "group_gap")),
    *("reward/mean", "reward/std", "reward/truncated", "accuracy/train", "entropy/mean"),
    *("staleness/mean", "mismatch/bias", "mismatch/kl_k1", "mismatch/kl_k3", "mismatch/nonfinite"),
    *(f"mismatch/{name}" for name in PER_RESPONSE),
)  # fmt: skip
"""Metrics of a step's line that its rollouts determine. Advantages are not included: the line
counts the tokens with a loss, which the rollouts do not contain."""


def is_due(step: int) -> bool:
    """Whether a step is checked; the same for live and offline reading."""
    return step % (1 << (step // _ALL_CHECKED).bit_length()) == 0


class SelfCheck:
    """Adds the readings of the rollouts to the steps of a run.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: deque[StepRecord] = deque()
        self._since = 0.0
        self._previous_had_rollouts = True
        """If not, the newest step does not wait for its rollouts."""
        self._damage: list[Damage] = []

    def take_damage(self) -> list[Damage]:
        """Return the damage in rollouts since the previous call."""
        damage, self._damage = self._damage, []
        return damage

    @property
    def is_waiting(self) -> bool:
        """Whether steps wait for their rollouts."""
        return bool(self._waiting)

    def offline(self, records: Iterator[StepRecord]) -> Iterator[StepRecord]:
        """Yield the steps of a finished run."""
        for record in records:
            yield self._checked(record)

    def live(self, records: Sequence[StepRecord], *, final: bool) -> tuple[list[StepRecord], bool]:
        """Return the steps that are ready, and whether more could be returned without waiting.

        Args:
            records: new steps.
            final: whether the run has ended.
        """
        if records:
            self._since = time.monotonic()
        self._waiting += records
        ready: list[StepRecord] = []
        until = time.monotonic() + _POLL_SECONDS
        while self._waiting:
            is_newest = len(self._waiting) == 1
            if is_newest and not final and self._may_appear(self._waiting[0].step):
                return ready, False
            if time.monotonic() > until:
                return ready, True
            ready.append(self._checked(self._waiting.popleft()))
        return ready, False

    def _may_appear(self, step: int) -> bool:
        """Whether a step's rollouts are missing but may be written in a moment.

        They are written between the step's line and the next line, so only the newest step waits.
        """
        if not is_due(step) or time.monotonic() - self._since > PATIENCE_SECONDS:
            return False
        if rollouts_file(self._directory, step, 0).exists():
            return False
        return self._previous_had_rollouts and (self._directory / ROLLOUTS).is_dir()

    def _checked(self, record: StepRecord) -> StepRecord:
        if not is_due(record.step):
            return record
        self._previous_had_rollouts = rollouts_file(self._directory, record.step, 0).exists()
        readings = self._recompute(record) if self._previous_had_rollouts else {}
        recomputed = {
            f"{name}/{RECOMPUTED}": readings[name]
            for name in _RECOMPUTED
            if name in readings and name in record.values
            if not isinstance(readings[name], NotApplicable)
            if not isinstance(record.values[name], NotApplicable)
        }
        if not recomputed:
            return record
        return replace(record, values={**record.values, **recomputed})

    def _recompute(self, record: StepRecord) -> dict[str, Reading]:
        """The readings of a step's rollouts.

        The line describes either all responses, or those of rank 0, which writes the line. Its
        count tells which.
        """
        count = _response_count(record)
        tables: list[ResponseTable] = []
        for rank in range(_MAX_RANKS):
            path = rollouts_file(self._directory, record.step, rank)
            if not path.exists():
                break
            table = self._read(path)
            if table is None:
                return {}
            tables.append(table)
            if count == len(table) and rank == 0:
                break
        if not tables or (count is not None and count != sum(map(len, tables))):
            return {}
        joined = join_tables(tables)
        readings = table_readings(joined) | _response_means(joined)
        # Each rank may number its groups from 0.
        if len(tables) == 1:
            return readings
        return {name: reading for name, reading in readings.items() if "group" not in name}

    def _read(self, path: Path) -> ResponseTable | None:
        notes = DamageLog()
        try:
            cuts = native_rollouts.FORMAT.cut(path, 1 << 62)
            tables = [
                _table(responses, figures)
                for cut in cuts
                for responses, figures in native_rollouts.read_figures(
                    FilePart(str(path), *cut, None), notes
                )
            ]
        except (RunError, OSError, ValueError) as error:
            notes.damaged_at(path.name, 0, str(error))
            tables = []
        self._damage += notes.damage
        return join_tables(tables) if tables and not notes.damaged else None


def _response_count(record: StepRecord) -> int | None:
    """How many responses a step's line describes; None if it does not tell."""
    for name in ("length/mean", "reward/mean"):
        reading = record.values.get(name)
        if isinstance(reading, Mean) and reading.count + reading.nonfinite > 1:
            return reading.count + reading.nonfinite
    return None


def _table(responses: Responses, figures: dict[str, NDArray[np.float64]]) -> ResponseTable:
    """A row of figures per response, without texts and tokens."""
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
    columns |= {name: values_B for name, values_B in known.items() if values_B is not None}
    means_B, lengths_B = figures.pop("entropy_mean", None), responses.lengths_B
    if means_B is not None and lengths_B is not None:
        columns |= {"entropy": np.where(lengths_B > 0, means_B * lengths_B, 0.0)}
        columns["entropy/tokens"] = lengths_B
    if responses.learner is not None and responses.sampler is not None:
        columns |= gap_figures(responses.learner, responses.sampler)
    return ResponseTable({**columns, **figures})


def _numbered(names: Sequence[str]) -> NDArray[np.uint64]:
    """A number for each name, never 0, which means that the group is unknown."""
    from hashlib import blake2b  # loads OpenSSL, which a log without rollouts does not need

    hashes = {name: blake2b(name.encode("utf-8", "replace"), digest_size=8) for name in set(names)}
    return np.array([int.from_bytes(hashes[name].digest()) or 1 for name in names], np.uint64)


def _response_means(table: ResponseTable) -> dict[str, Reading]:
    """The means of the mismatch figures that the file has for each response."""
    readings: dict[str, Reading] = {}
    for name in PER_RESPONSE:
        values_B = table.columns.get(name)
        if values_B is not None:
            known = values_B.astype(np.float64)
            known = known[~np.isnan(known)]
            if known.size:
                readings[f"mismatch/{name}"] = Mean.of(known)
    return readings
