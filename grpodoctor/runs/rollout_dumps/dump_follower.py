"""The rollout dumps next to a log: read as they appear, and joined to the log's steps.

A metric that the log lacks is taken from the dump. For a metric that both have, the logged value
stays and the dump's value is added as `<metric>/recomputed`: the two must agree.

While a run is followed, a step waits for its dump while the dump is being read, and briefly if the
dump does not exist yet: frameworks write log and dump from different threads. A dump that comes
later changes no finding; it is counted in a note, and `check` reads it.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.frameworks.registry import GENERIC
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.frameworks.rollout_formats.registry import dump_format_of
from grpodoctor.measure.returned_groups import RETURNED_GROUPS
from grpodoctor.runs.records import StepRecord
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.runs.rollout_dumps.runners import ShardResult, try_shard
from grpodoctor.runs.rollout_dumps.shards import SHARD_BYTES, Shard, piece_of
from grpodoctor.runs.rollout_dumps.step_merger import PromptRate, StepMerger
from grpodoctor.support.arrays import np
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.support.numbers import count_of
from grpodoctor.support.progress import NoProgress, Progress
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT, RECOMPUTED
from grpodoctor.vocabulary.values import Absent, NotApplicable, Reading, scalar

QUIET_SECONDS = 0.3
"""A file that has not grown for so long is complete."""
WAIT_SECONDS = 0.6
"""How long a step waits for a dump that is missing or still grows. A finding must be on the screen
within a second."""
_POLL_SECONDS = 0.3
"""Time that one poll of a live run spends on dumps, apart from finishing the current shard."""
_OVERWRITTEN = "rollout dumps that an evaluation has overwritten are not used"
_NOTED_COUNTS = frozenset(10**power for power in range(9))
"""Numbers of late steps at which a note is added."""


@dataclass(slots=True)
class _FollowedFile:
    """A dump, and how much of it was read."""

    source: DumpFile
    form: DumpFormat
    size: int = -1
    since: float = 0.0
    """When the file was first seen with this size."""
    bytes_read: int = 0
    is_broken: bool = False
    """Whether the file could not be divided: half-written, or not a dump."""

    @property
    def step(self) -> int | None:
        """The step in the file's name."""
        return self.form.step_of(self.source.path)

    @property
    def is_appended(self) -> bool:
        """Whether lines are appended to the file; other files are written at once."""
        has_lines = self.source.path.suffix in (".jsonl", ".ndjson", ".json")
        return has_lines and not self.source.origin

    @property
    def has_unread_bytes(self) -> bool:
        """Whether the file has content that was not read yet."""
        size = self.current_size()
        return (
            size is not None
            and size > self.bytes_read
            and (self.is_appended or not self.bytes_read)
        )

    def current_size(self) -> int | None:
        """Size in bytes; None if the file is gone."""
        try:
            return self.source.size()
        except OSError:
            return None


class DumpFollower:
    """Reads the dumps of a run, once or while they are written.

    Args:
        ray: Ray cluster that reads them: `local`, `auto` or an address.
        remote_dumps: dumps that are read directly from a remote store.
        progress: receives the bytes that were read.
    """

    def __init__(
        self,
        ray: str | None = None,
        remote_dumps: Sequence[tuple[DumpFormat, DumpFile]] = (),
        progress: Progress | None = None,
    ) -> None:
        self._ray, self._progress = ray, progress or NoProgress()
        self._files: dict[Path, _FollowedFile] = {}
        self._files_of_step: defaultdict[int | None, list[_FollowedFile]] = defaultdict(list)
        """The files by the step in their names."""
        self._ready: dict[int, dict[str, Reading]] = {}
        self._merger = StepMerger([])
        self._joined = -1
        self._waiting: deque[StepRecord] = deque()
        """Steps of the log that wait for their dumps."""
        self._waiting_since = 0.0
        self._previous_had_dump = False
        self._late_steps: set[int] = set()
        self._overwritten: dict[str, float | None] = {}
        """Figures of the latest dump that an evaluation had overwritten."""
        self.responses = DumpedResponses()
        """The responses, read again on request."""
        self._reader: DumpReader | None = None
        self._noted_reasons: set[str] = set()
        self._noted_counts: set[int] = set()
        self.damage: list[Damage] = []
        self.notes: list[str] = []
        for form, source in remote_dumps:
            self._add(source.path, source, form)

    def claim(self, path: Path, *, named: bool = False) -> bool:
        """Whether a file is a rollout dump; if so, it will be read here.

        Args:
            path: the file.
            named: whether the user gave this path or its directory. Then the file is read even if
                files at such a path are usually skipped.
        """
        form = dump_format_of(path)
        if form is None:
            return False
        reason = form.skip_reason(path)
        if reason and not named:
            if reason not in self._noted_reasons:
                self._noted_reasons.add(reason)
                self.notes.append(f"rollout dumps that are not read: {reason}")
        elif path not in self._files:
            self._add(path, DumpFile.of(path), form)
        return True

    def _add(self, key: Path, source: DumpFile, form: DumpFormat) -> None:
        file = self._files[key] = _FollowedFile(source, form)
        self._files_of_step[file.step].append(file)

    @property
    def framework(self) -> str | None:
        """The framework that wrote the dumps; None if there are none."""
        names = sorted(
            {file.form.framework for file in self._files.values()},
            key=lambda name: (name == GENERIC, name),
        )
        return names[0] if names else None

    @property
    def is_waiting(self) -> bool:
        """Whether steps wait for their dumps."""
        return bool(self._waiting)

    @property
    def failed(self) -> list[str]:
        """Shards that could not be read, with the reason; complete after the final read."""
        return self._reader.failed if self._reader is not None else []

    @property
    def pass_rates(self) -> list[PromptRate]:
        """How often each prompt was solved; complete after the final read."""
        return self._reader.pass_rates if self._reader is not None else self._merger.pass_rates()

    def read(self, *, final: bool) -> bool:
        """Read what is new; return whether there is more to read at once."""
        if final:
            self._read_all()
            return False
        return self._read_some()

    def _read_all(self) -> None:
        """Read everything, in as many processes as pay off."""
        files = [file for file in self._files.values() if not file.bytes_read]
        if not files:
            return
        reader = DumpReader(
            [(file.form, file.source) for file in files], ray=self._ray, progress=self._progress
        )
        for step, readings in reader.steps():
            self._ready.setdefault(step, readings)
        for file in files:
            file.bytes_read = max(file.current_size() or 0, 1)
        self._reader, self.responses = reader, reader.dumped_responses
        self.notes += reader.notes()
        self.damage += reader.damage

    def _read_some(self) -> bool:
        """Read complete files for a short time."""
        until = time.monotonic() + _POLL_SECONDS
        files = self._files.values()
        for file in sorted(files, key=lambda file: (file.step or 0, str(file.source.path))):
            for shard in self._new_shards(file):
                self._take(try_shard(shard), shard)
                if time.monotonic() > until:
                    return True
        return False

    def _new_shards(self, file: _FollowedFile) -> Iterator[Shard]:
        """The unread parts of a file that has stopped growing."""
        size = file.current_size()
        if size is None:
            return
        now = time.monotonic()
        if size != file.size:
            file.size, file.since = size, now
        if size <= file.bytes_read or now - file.since < QUIET_SECONDS:
            return
        if not file.is_appended and file.bytes_read:
            return
        cuts = _line_cuts(file.bytes_read, size) if file.is_appended else self._cuts(file)
        for start, stop in cuts:
            file.bytes_read = stop if file.is_appended else size
            yield Shard(file.form.name, (piece_of(file.source, (start, stop), file.form),))

    def _cuts(self, file: _FollowedFile) -> list[tuple[int, int]]:
        try:
            cuts = file.form.cut(file.source, SHARD_BYTES)
        except (OSError, RunError):
            cuts = []  # half-written; tried again after it has grown
        file.is_broken = not cuts
        return cuts

    def _take(self, result: ShardResult, shard: Shard) -> None:
        if result.summary is None:
            self.notes.append(f"incomplete: not read: {shard.name}: {result.why}")
            return
        table = result.summary.table
        self.responses.note(shard, table)
        steps = np.unique(table.columns["step"]).tolist() if len(table) else []
        self._note_late(step for step in steps if step <= self._joined)
        self._merger.add(result.summary)
        self.damage += result.summary.notes.damage

    def _note_late(self, steps: Iterable[int]) -> None:
        """Count steps that were examined before their dump; add a note at each power of ten."""
        for step in steps:
            self._late_steps.add(step)
            count = len(self._late_steps)
            if count in _NOTED_COUNTS and count not in self._noted_counts:
                self._noted_counts.add(count)
                self.notes.append(
                    f"rollout dumps came too late for {count_of(count, 'step')} so far, most "
                    f"recently for step {step}: the findings here do not use them; check does"
                )

    def join(self, records: Iterable[StepRecord], *, final: bool, no_log: bool) -> list[StepRecord]:
        """Return the steps of the log with the dumps' readings, and steps that only dumps have.

        Args:
            records: steps of the log.
            final: whether no more data follows.
            no_log: whether there is no log, so that the dumps' own steps are returned.
        """
        joined: list[StepRecord] = []
        self._waiting += records
        while self._waiting and (final or not self._must_wait(self._waiting[0].step)):
            record = self._waiting.popleft()
            self._waiting_since = 0.0
            joined += self._dump_steps_before(record.step)
            readings = self._pop(record.step)
            self._previous_had_dump = readings is not None
            if readings is None or self._is_overwritten(record, readings):
                joined.append(record)
            else:
                joined.append(_with_readings(record, readings))
            self._joined = record.step
        if final or no_log:
            newest = max(self._merger.steps(), default=-1)  # may be incomplete
            joined += self._dump_steps_before(None if final else newest)
        return joined

    def _is_overwritten(self, record: StepRecord, readings: dict[str, Reading]) -> bool:
        """Whether a dump has the responses of an evaluation, or is a copy of such a dump."""
        files = self._files_of_step.get(record.step, ())
        if not any(file.form.evaluation_overwrites for file in files):
            return False
        was_evaluated = any(name.startswith(HELDOUT) for name in record.values)
        figures = {
            name: scalar(reading)
            for name, reading in readings.items()
            if name not in RETURNED_GROUPS  # a copy has others than the dump that it copies
        }
        if not was_evaluated and figures != self._overwritten:
            self._overwritten = {}
            return False
        self._overwritten = figures
        self.responses.forget(record.step)
        if _OVERWRITTEN not in self._noted_reasons:
            self._noted_reasons.add(_OVERWRITTEN)
            self.notes.append(f"{_OVERWRITTEN}, first at step {record.step}")
        return True

    def _must_wait(self, step: int) -> bool:
        """Whether the dump of a step is being read, or may appear in a moment."""
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        candidates = (*self._files_of_step.get(step, ()), *self._files_of_step.get(None, ()))
        unread = [file for file in candidates if file.has_unread_bytes]
        if any(not file.is_broken and now - file.since > QUIET_SECONDS for file in unread):
            return True
        is_known = step in self._ready or step in self._merger.steps()
        is_expected = self._previous_had_dump and not is_known and len(self._waiting) == 1
        return bool(unread or is_expected) and now - self._waiting_since < WAIT_SECONDS

    def _dump_steps_before(self, border: int | None) -> list[StepRecord]:
        """Steps that only dumps have, below a step."""
        records = []
        for step in sorted({*self._ready, *self._merger.steps()}):
            readings = self._pop(step) if border is None or step < border else None
            if readings and step > self._joined:
                records.append(StepRecord(step, readings))
                self._joined = step
            elif readings:
                self._note_late([step])
        return records

    def _pop(self, step: int) -> dict[str, Reading] | None:
        if step in self._ready:
            return self._ready.pop(step)
        return self._merger.pop(step) if step in self._merger.steps() else None


def _line_cuts(start: int, stop: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(start, stop, SHARD_BYTES), stop]))


def _with_readings(record: StepRecord, readings: Mapping[str, Reading]) -> StepRecord:
    values = dict(record.values)
    for name, reading in readings.items():
        if isinstance(values.get(name, Absent()), Absent):
            values[name] = reading
        elif not isinstance(reading, NotApplicable):
            values[f"{name}/{RECOMPUTED}"] = reading
    return replace(record, values=values)
