"""The rollout dumps that lie beside a log: read as they appear, and joined to its steps.

A metric that the log lacks comes from the dump. One that both have stays as logged, and what the
dump says is set beside it as `<metric>/recomputed`: two readings of one quantity must agree.

Of a run that is followed, a step waits for its dump while that is being read, and for a moment
where it is still to come: frameworks write the two from different threads. What comes later changes
no finding that was made without it; it is counted, and `check` reads it.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.frameworks.rollout_formats.registry import dump_format_of
from grpodoctor.runs.records import StepRecord
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.runs.rollout_dumps.runners import ShardResult, attempt
from grpodoctor.runs.rollout_dumps.shards import SHARD_BYTES, Shard, piece_of
from grpodoctor.runs.rollout_dumps.step_merger import PromptRate, StepMerger
from grpodoctor.support.damage import Damage
from grpodoctor.vocabulary.metrics import RECOMPUTED
from grpodoctor.vocabulary.values import Absent, NotApplicable, Reading

QUIET_SECONDS = 0.3
"""A file that has not grown for so long is taken for whole."""
WAIT_SECONDS = 0.6
"""How long a step waits for a dump that is not there, or still grows: within the second in which
a finding is to be on the screen."""
_TURN_SECONDS = 0.3
"""What one poll of a live run spends on dumps at most, but for the shard that it is at."""
_TOLD_AT = frozenset(10**power for power in range(9))
"""Numbers of late steps that are worth a line."""


@dataclass(slots=True)
class _File:
    """A dump, and how much of it was read."""

    source: DumpFile
    form: DumpFormat
    size: int = -1
    since: float = 0.0
    """When it was first seen to be that long."""
    done: int = 0
    broken: bool = False
    """Whether it could not be cut when last looked at: half-written, or no such file at all."""

    def bytes_now(self) -> int | None:
        """How long it is; None if it is gone."""
        try:
            return self.source.size()
        except OSError:
            return None


class DumpFollower:
    """The dumps of a run, once or while they are written.

    Args:
        ray: a Ray cluster to read them on: `local`, `auto` or its address.
        elsewhere: dumps that were left where they lie.
    """

    def __init__(
        self, ray: str | None = None, elsewhere: Sequence[tuple[DumpFormat, DumpFile]] = ()
    ) -> None:
        self._ray = ray
        self._files: dict[Path, _File] = {}
        self._of_step: defaultdict[int | None, list[_File]] = defaultdict(list)
        """The same by the step that their names tell."""
        self._ready: dict[int, dict[str, Reading]] = {}
        self._fold = StepMerger([])
        self._joined = -1
        self._held: deque[StepRecord] = deque()
        """Steps of the log that wait for their dumps."""
        self._held_since = 0.0
        self._expects = False
        """Whether the step before had a dump."""
        self._late: set[int] = set()
        self.texts = DumpedResponses()
        """What the responses say, read when it is asked for."""
        self._reader: DumpReader | None = None
        self._told: set[str] = set()
        self._told_late: set[int] = set()
        self.damage: list[Damage] = []
        self.notes: list[str] = []
        for form, source in elsewhere:
            self._add(source.path, source, form)

    def claim(self, path: Path, *, named: bool = False) -> bool:
        """Whether a file is a rollout dump; one that is will be read here.

        Args:
            path: the file.
            named: whether the user pointed at it, or at its own directory: then it is read even
                where its place would have it passed over.
        """
        form = dump_format_of(path)
        if form is None:
            return False
        why = form.skip_reason(path)
        if why and not named:
            self._pass_over(why)
        elif path not in self._files:
            self._add(path, DumpFile.of(path), form)
        return True

    def _add(self, key: Path, source: DumpFile, form: DumpFormat) -> None:
        self._files[key] = _File(source, form)
        self._of_step[form.step_of(source.path)].append(self._files[key])

    def _pass_over(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            self.notes.append(f"rollout dumps that are not read: {why}")

    @property
    def framework(self) -> str | None:
        """Who wrote the dumps; None if there are none."""
        names = sorted({each.form.framework for each in self._files.values()})
        return names[0] if names else None

    @property
    def holds(self) -> bool:
        """Whether steps wait for their dumps."""
        return bool(self._held)

    @property
    def failed(self) -> list[str]:
        """What could not be read, with the reason; once all was read."""
        return self._reader.failed if self._reader is not None else []

    @property
    def pass_rates(self) -> list[PromptRate]:
        """How often each prompt was solved; once all was read."""
        return self._reader.pass_rates if self._reader is not None else self._fold.pass_rates()

    def read(self, *, final: bool) -> bool:
        """Read what is new; whether there is more to read at once."""
        if final:
            self._read_all()
            return False
        return self._read_some()

    def _read_all(self) -> None:
        """Nobody writes any more: everything at once, in as many processes as it is worth."""
        files = [each for each in self._files.values() if not each.done]
        if not files:
            return
        reader = DumpReader([(each.form, each.source) for each in files], ray=self._ray)
        for step, readings in reader.steps():
            self._ready.setdefault(step, readings)
        for each in files:
            each.done = max(each.bytes_now() or 0, 1)
        self._reader, self.texts = reader, reader.texts
        self.notes += reader.notes()
        self.damage += reader.damage

    def _read_some(self) -> bool:
        """What has stopped growing, for a moment."""
        until = time.monotonic() + _TURN_SECONDS
        for each in sorted(self._files.values(), key=_order):
            for shard in self._fresh(each):
                self._take(attempt(shard), shard)
                if time.monotonic() > until:
                    return True
        return False

    def _fresh(self, file: _File) -> Iterator[Shard]:
        """What was not read yet of a file that is quiet: lines are appended, the rest is whole."""
        size = file.bytes_now()
        if size is None:
            return
        now = time.monotonic()
        if size != file.size:
            file.size, file.since = size, now
        if size <= file.done or now - file.since < QUIET_SECONDS:
            return
        lines = _grows(file)
        if not lines and file.done:
            return
        for start, stop in _split(file.done, size) if lines else self._cuts(file):
            file.done = stop if lines else size
            yield Shard(file.form.name, (piece_of(file.source, (start, stop), file.form),))

    def _cuts(self, file: _File) -> list[tuple[int, int]]:
        try:
            cuts = file.form.cut(file.source, SHARD_BYTES)
        except (OSError, RunError):
            cuts = []  # half-written: it is looked at again when it has grown
        file.broken = not cuts
        return cuts

    def _take(self, outcome: ShardResult, shard: Shard) -> None:
        if outcome.summary is None:
            self.notes.append(f"incomplete: not read: {shard.name}: {outcome.why}")
            return
        digest = outcome.summary.digest
        self.texts.note(shard, digest)
        steps = np.unique(digest.columns["step"]).tolist() if len(digest) else []
        self._note_late([step for step in steps if step <= self._joined])
        self._fold.add(outcome.summary)
        self.damage += outcome.summary.notes.damage

    def _note_late(self, steps: Iterable[int]) -> None:
        """Tell of steps that were examined before their dump was there, each ten times as many."""
        for step in steps:
            self._late.add(step)
            if len(self._late) in _TOLD_AT and len(self._late) not in self._told_late:
                self._told_late.add(len(self._late))
                self.notes.append(
                    f"rollout dumps came too late for {len(self._late)} steps so far, the latest"
                    f" of them {step}: nothing here rests on them; check reads them"
                )

    def join(self, records: Iterable[StepRecord], *, final: bool, alone: bool) -> list[StepRecord]:
        """The steps of the log with what the dumps say, and between them steps of dumps alone.

        Args:
            records: the log's.
            final: whether there is nothing more to come.
            alone: whether there is no log: then the dumps' own steps are given.
        """
        joined: list[StepRecord] = []
        self._held += records
        while self._held and (final or not self._waits_for(self._held[0].step)):
            record = self._held.popleft()
            self._held_since = 0.0
            joined += self._before(record.step)
            readings = self._pop(record.step)
            self._expects = readings is not None
            joined.append(record if readings is None else _joined(record, readings))
            self._joined = record.step
        if final or alone:
            joined += self._before(None if final else self._newest())
        return joined

    def _waits_for(self, step: int) -> bool:
        """Whether a step's dump is being read, or may come in a moment."""
        now = time.monotonic()
        self._held_since = self._held_since or now
        candidates = (*self._of_step.get(step, ()), *self._of_step.get(None, ()))
        unread = [each for each in candidates if _is_unread(each)]
        if any(not each.broken and now - each.since > QUIET_SECONDS for each in unread):
            return True
        known = step in self._ready or step in self._fold.steps()
        missing = self._expects and not known and len(self._held) == 1
        return bool(unread or missing) and now - self._held_since < WAIT_SECONDS

    def _before(self, border: int | None) -> list[StepRecord]:
        """Steps that only dumps have, up to a border."""
        found = []
        for step in sorted({*self._ready, *self._fold.steps()}):
            readings = self._pop(step) if border is None or step < border else None
            if readings and step > self._joined:
                found.append(StepRecord(step, readings))
                self._joined = step
            elif readings:
                self._note_late([step])
        return found

    def _pop(self, step: int) -> dict[str, Reading] | None:
        if step in self._ready:
            return self._ready.pop(step)
        return self._fold.give(step) if step in self._fold.steps() else None

    def _newest(self) -> int:
        """The newest step, which may still be written."""
        return max(self._fold.steps(), default=-1)


def _order(file: _File) -> tuple[int, str]:
    path = file.source.path
    return (file.form.step_of(path) or 0, str(path))


def _is_unread(file: _File) -> bool:
    """Whether a file holds something that was not read yet."""
    size = file.bytes_now()
    return size is not None and size > file.done and (_grows(file) or not file.done)


def _grows(file: _File) -> bool:
    """Whether more is appended to what was read; other files are whole or not there."""
    lines = file.source.path.suffix in (".jsonl", ".ndjson", ".json")
    return lines and not file.source.origin


def _split(start: int, stop: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(start, stop, SHARD_BYTES), stop]))


def _joined(record: StepRecord, readings: Mapping[str, Reading]) -> StepRecord:
    values = dict(record.values)
    for name, reading in readings.items():
        if isinstance(values.get(name, Absent()), Absent):
            values[name] = reading
        elif not isinstance(reading, NotApplicable):
            values[f"{name}/{RECOMPUTED}"] = reading
    return StepRecord(record.step, values, record.knobs, record.time)
