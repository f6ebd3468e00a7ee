"""Reading the logs of a framework, once or while they are written."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from grpodoctor.frameworks.objective import is_supervised_row
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.crash import Crash
from grpodoctor.runs.log_formats.base import EVALUATION, PART_OF_STEP, LogRow, WaitingReader
from grpodoctor.runs.reading.ending import crash_of
from grpodoctor.runs.reading.framework_detection import DETECTION_ROWS, FrameworkDetector
from grpodoctor.runs.reading.log_files import LogFile, LogFiles
from grpodoctor.runs.reading.mixed_runs import (
    refuse_mixed_runs,
    rows_per_step,
    rows_per_step_notes,
    several_runs_error,
)
from grpodoctor.runs.reading.poll import Poll
from grpodoctor.runs.reading.read_notes import (
    ZeroColumns,
    borrowed_keys_note,
    conflict_note,
    order_note,
    repeated_values_note,
    rewind_note,
    step_column_note,
    supervised_rows_note,
)
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.rows.repeated_values import RepeatedValues
from grpodoctor.runs.reading.rows.row_order import RowOrder, split_by_counter, without_suffixes
from grpodoctor.runs.reading.rows.row_sorting import MOST_SORTED, rows_behind, sort_rows
from grpodoctor.runs.reading.rows.run_columns import RunColumns, WantedRows, chosen_number
from grpodoctor.runs.reading.rows.stage_column import StageColumn
from grpodoctor.runs.reading.rows.step_assembly import StepAssembly
from grpodoctor.runs.reading.rows.step_column import StepColumn
from grpodoctor.runs.records import StepRecord
from grpodoctor.runs.rollout_dumps.dump_follower import DumpFollower
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.support.files.growing_files import BLOCK, Chunk
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.values import Reading

QUIET_SECONDS = 0.3
"""A step is complete after so many seconds without a new row."""


class _PlacedRow(NamedTuple):
    """A translated row with its final step."""

    file: LogFile
    row: LogRow
    readings: Mapping[str, Reading]
    restarted: bool
    """Whether the job was restarted at this row's step."""
    unread: Mapping[str, float]
    """Numbers whose keys give no metric, if they are wanted."""

    @property
    def is_evaluation(self) -> bool:
        """Whether the row has nothing but the result of an evaluation."""
        return self.row.counter == EVALUATION or all(
            metric.startswith(HELDOUT) for metric in self.readings
        )


class FrameworkFollower:
    """Reads the logs of a framework, once to the end or repeatedly.

    Args:
        path: a log, or the directory of a training job, finished or running.
        options: the user's options.

    Raises:
        ConfigError: if the options name an unknown format.
    """

    def __init__(self, path: str | Path, options: ReadOptions | None = None) -> None:
        self.path = Path(path)
        self.options = options or ReadOptions()
        self._wanted_number = chosen_number(self.options.where)
        self._detector = FrameworkDetector(self.path, self.options)
        self._begin()

    def _begin(self) -> None:
        options, detector = self.options, self._detector
        self._dumps = DumpFollower(options.ray, options.remote_dumps, options.progress)
        self._logs = LogFiles(
            self.path, detector.format_name, detector.row_keys, self._dumps, options.progress
        )
        self._undetected: list[tuple[LogFile, LogRow]] = []
        """Rows that were read before the framework was detected."""
        self._assembly = StepAssembly()
        self._stages = StageColumn()
        self._translator: Translator | None = None
        self._row_counts: dict[Path, int] = {}
        self._orders: dict[str, RowOrder] = {}
        self._run_columns: dict[str, RunColumns] = {}
        self.wanted_rows = WantedRows(options.where)
        self._step_columns: dict[Path, StepColumn] = {}
        self._repeated: dict[tuple[Path, str], RepeatedValues] = {}
        self._zeros = ZeroColumns()
        self._sorted = 0
        """Rows that were sorted before the framework was detected."""
        self._supervised = 0
        """Rows of supervised fine-tuning before the run."""
        self._latest_notes: dict[str, str] = {}
        self._wrote_rows: set[Path] = set()
        self._bytes_read = 0
        self._grew_at = 0.0
        self._more_rows = False
        """Whether the logs have rows that were not read yet."""
        self._restarted = False
        self._dump_writer: str | None = None
        """Framework of the dumps, once its manifest was returned because there is no log."""
        self._notes: list[str] = []

    @property
    def translator(self) -> Translator | None:
        """The translator of the rows; None until the framework is detected."""
        return self._translator

    @property
    def rollouts(self) -> DumpedResponses:
        """The responses of the dumps that were read so far."""
        return self._dumps.responses

    @property
    def failed_dumps(self) -> list[str]:
        """Rollout dumps that could not be read, with the reason; complete after the last poll."""
        return self._dumps.failed

    @property
    def search_is_cut_off(self) -> bool:
        """Whether the path has more files and folders than are searched for logs."""
        return self._logs.is_cut_off

    @property
    def first_log(self) -> Path | None:
        """The first of the log files; None if the user gave none."""
        return self._logs.first

    @property
    def _was_told_how_to_read(self) -> bool:
        return self.options.format is not None or bool(self.options.mapping)

    @property
    def crash(self) -> Crash | None:
        """The error with which the logs end, as far as they were read; None if there is none."""
        if self._more_rows or self.options.where:
            return None  # the end of the log may belong to another of its runs
        return crash_of([file.reader for file in self._logs.in_order()], self._wrote_rows)

    def written_at(self) -> float:
        """Unix time of the latest write to the logs; 0 if there are none."""
        return self._logs.written_at()

    def poll(self, *, final: bool = False) -> Poll:
        """Return what is new since the previous poll.

        Args:
            final: whether the job has ended, so that waiting is pointless.

        Raises:
            RunError: if a log cannot be read.
        """
        poll = Poll()
        if self._logs.are_replaced():
            return self._start_over()
        self._find_logs(poll)
        more_dumps = self._dumps.read(final=final)
        self._read_logs(poll, final=final)
        self._more_rows = poll.more
        poll.more |= more_dumps
        if self._restarted:
            return self._start_over()
        ended = final and not poll.more
        if self._translator is None and self._undetected:
            self._detect(poll, ended=ended)
        if self._translator is not None and (ended or self._is_quiet()):
            poll.steps += self._chosen(self._assembly.flush(ended=ended), self._run_number)
            self._add_notes(ended=ended)
        self._join_dumps(poll, ended=ended)
        poll.pending = bool(self._undetected) or self._assembly.is_waiting or self._dumps.is_waiting
        poll.notes, self._notes = self._notes, []
        return poll

    def _join_dumps(self, poll: Poll, *, ended: bool) -> None:
        """Add the dumps' readings to the steps; without a log, the dumps are the run."""
        writer = self._dumps.framework
        no_log = writer is not None and self._translator is None and not self._undetected
        if no_log and self._dump_writer != writer and (ended or self._is_quiet()):
            self._dump_writer = writer
            poll.manifest = self._detector.manifest_of_dumps(str(writer), self._logs.readers)
        poll.steps = self._dumps.join(
            poll.steps,
            final=ended and not self._undetected,
            no_log=no_log and self._dump_writer is not None,
        )
        poll.damage += self._dumps.damage
        self._notes += self._dumps.notes
        self._dumps.damage, self._dumps.notes = [], []

    def _add_notes(self, *, ended: bool) -> None:
        """Add each note when it first applies, and again at the end if it has changed.

        The notes contain counts that grow with the log; repeating them at each poll is noise.
        """
        repeated = [values for values in self._repeated.values() if values.periods]
        notes = {
            "rewinds": rewind_note(self._assembly, self._wanted_number),
            "order": order_note(self._sorted + sum(each.late for each in self._orders.values())),
            "conflicts": conflict_note(self._assembly),
            "repeated": repeated_values_note(repeated),
            "zeros": self._zeros.note(),
            "supervised": supervised_rows_note(self._supervised),
            "borrowed": borrowed_keys_note(self._translator),
            "steps": step_column_note(self._step_columns.values()),
        }
        for kind, note in notes.items():
            before = self._latest_notes.get(kind)
            if note and (before is None or (ended and note != before)):
                self._notes.append(note)
                self._latest_notes[kind] = note

    def _start_over(self) -> Poll:
        """Discard everything: another run replaced the previous one."""
        self._begin()
        return Poll(restarted=True, more=True)

    def _find_logs(self, poll: Poll) -> None:
        opened, closed = self._logs.search()
        for log in opened:
            self._assembly.open_log(log)
        for log in closed:
            self._assembly.close_log(log)
        poll.more |= bool(opened)
        self._notes += self._logs.notes
        poll.damage += self._logs.damage
        self._logs.notes, self._logs.damage = [], []

    def _read_logs(self, poll: Poll, *, final: bool) -> None:
        """Read a block of each log, which may contain many small files."""
        for _, files in itertools.groupby(self._logs.in_order(), key=lambda file: file.log):
            self._read_log(list(files), poll, final=final)

    def _read_log(self, files: list[LogFile], poll: Poll, *, final: bool) -> None:
        """Read a block of a log; a later file waits for the earlier ones."""
        *earlier, last = files
        room = BLOCK
        for file in earlier:  # nothing is written to it any more, so it is read to its end
            more = True
            while more and room > 0:
                chunk = self._read_block(file, poll, final=True)
                more = chunk.more
                room -= max(chunk.size, 1)
            if more:
                poll.more = True
                return
        self._read_block(last, poll, final=final)

    def _read_block(self, file: LogFile, poll: Poll, *, final: bool) -> Chunk[LogRow]:
        """Read a block of a file, and pass its rows on."""
        chunk = file.reader.read()
        if final and not chunk.more and isinstance(file.reader, WaitingReader):
            rest = file.reader.read_end()
            chunk = Chunk(
                chunk.records + rest.records, chunk.damage + rest.damage, chunk.size, rest.more,
                rest.notes,
            )  # fmt: skip
        poll.damage += chunk.damage
        self._notes += chunk.notes
        poll.more |= chunk.more
        if chunk.size:
            self._report_progress(file, chunk.size)
        if chunk.records:
            self._grew_at = time.monotonic()
            self._wrote_rows.add(file.reader.path)
        for row in chunk.records:
            if not self._is_wanted(file, row):
                continue
            if self._translator is None:
                if row.counts:
                    self._step_column(file).learn(row)
                self._undetected.append((file, row))
            else:
                poll.steps += self._take(file, row, self._translator)
        return chunk

    def _is_wanted(self, file: LogFile, row: LogRow) -> bool:
        """Whether a row belongs to the run to read.

        Raises:
            MixedRunsError: if the log has the rows of several runs, and the user chose none.
        """
        if self.options.where:
            return self.wanted_rows.add(row)
        columns = self._run_columns.get(file.log)
        if columns is None:
            columns = self._run_columns[file.log] = RunColumns()
        if column := columns.add(row):
            raise several_runs_error(file.reader.path, column, columns.runs_of(column))
        return True

    def _report_progress(self, file: LogFile, size: int) -> None:
        self._bytes_read += size
        total = self._logs.size
        completed = min(self._bytes_read, total)  # the end of a block may be read twice
        self.options.progress.update(completed, total=total, detail=file.reader.path.name)

    def _take(self, file: LogFile, row: LogRow, translator: Translator) -> list[StepRecord]:
        steps: list[StepRecord] = []
        if row.counts and self._step_column(file).learn(row):
            self._restarted = True  # the steps so far were read from another column
        for placed in self._place(file, row, translator):
            self._repeats(placed).learn(placed.readings)
            steps += self._add(placed)
        return steps

    def _step_column(self, file: LogFile) -> StepColumn:
        column = self._step_columns.get(file.reader.path)
        if column is None:
            column = self._step_columns[file.reader.path] = StepColumn()
        return column

    def _with_step(self, file: LogFile, row: LogRow) -> LogRow:
        """The row with the step of the column that the rows of its file chose."""
        return self._step_column(file).with_step(row) if row.counts else row

    def _repeats(self, placed: _PlacedRow) -> RepeatedValues:
        place = (placed.file.reader.path, placed.row.counter)
        repeats = self._repeated.get(place)
        if repeats is None:
            repeats = self._repeated[place] = RepeatedValues()
        return repeats

    def _add(self, placed: _PlacedRow) -> list[StepRecord]:
        file, row = placed.file, placed.row
        self._zeros.add(row.values)
        path = file.reader.path
        if file.restarted:
            self._row_counts.pop(path, None)
        step = row.step if row.step is not None else self._count(placed)
        if file.restarted and not self._continues(file, step):
            return []
        number = self._run_number  # steps that are complete now belong to the run before the row
        steps = self._assembly.add(
            file.log,
            step,
            self._repeats(placed).without_repeats(placed.readings),
            row.time,
            counter=row.counter,
            restarted=placed.restarted,
            logged=placed.unread,
        )
        return self._chosen(steps, number)

    @property
    def _run_number(self) -> int:
        """The number of the run that the log has reached, from 1."""
        return len(self._assembly.earlier_runs) + 1

    def _chosen(self, steps: list[StepRecord], number: int) -> list[StepRecord]:
        """The steps of a run, if it is the one to read."""
        return steps if self._wanted_number in (None, number) else []

    def _place(self, file: LogFile, row: LogRow, translator: Translator) -> Iterator[_PlacedRow]:
        """Translate a row and give its parts their final steps; nothing for repeats."""
        if file.restarted:
            self._orders.pop(file.log, None)
        if not self._was_told_how_to_read and is_supervised_row(row.values):
            self._supervised += 1
            return
        row = self._with_step(file, row) if row.counts else row
        framework = translator.framework
        order = self._orders.get(file.log)
        if order is None:
            order = self._orders[file.log] = RowOrder(framework.update_counters)
            # The updates of a rollout are averaged.
            for counter in (*framework.update_counters, PART_OF_STEP):
                self._assembly.several_rows_per_step.add((file.log, counter))
        for part in split_by_counter(without_suffixes(row, framework), framework):
            readings = translator.readings(part.values)
            placed = order.place(part) if readings else None
            if placed is not None and part.counter != EVALUATION:
                readings |= self._stages.readings(part)
            if placed is not None:
                unread = translator.unread(part.values) if self.options.keep_unread_keys else {}
                yield _PlacedRow(file, placed[0], readings, placed[1], unread)

    def _count(self, placed: _PlacedRow) -> int:
        """The step of a row without one: the next, or the latest if it is an evaluation."""
        path = placed.file.reader.path
        before_first = self._translator.framework.first_step - 1 if self._translator else -1
        if placed.is_evaluation:
            return max(0, before_first, self._assembly.last_of(placed.file.log))
        self._row_counts[path] = self._row_counts.get(path, before_first) + 1
        return self._row_counts[path]

    def _continues(self, file: LogFile, step: int) -> bool:
        """Whether a replaced file continues the same run; if not, start over."""
        file.restarted = False
        if step < self._assembly.last_of(file.log):
            self._restarted = True
            return False
        self._notes.append(f"{file.reader.path.name} was replaced and continues at step {step}")
        return True

    def _is_quiet(self) -> bool:
        """Whether the logs were read to their ends and have not grown for a while."""
        return not self._more_rows and time.monotonic() - self._grew_at > QUIET_SECONDS

    def _detect(self, poll: Poll, *, ended: bool) -> None:
        """Detect the framework, then translate the rows that were read before."""
        quiet = self._is_quiet()
        if not ended and not quiet and len(self._undetected) < DETECTION_ROWS:
            return
        self._undetected = [(file, self._with_step(file, row)) for file, row in self._undetected]
        detection = self._detector.detect(
            [row for _, row in self._undetected],
            self._logs.readers,
            [file.reader.name for file, _ in self._undetected],
            ended=ended,
            quiet=quiet,
        )
        if detection is None or not self._sort_undetected(detection.translator, ended or quiet):
            return
        self._translator, poll.manifest = detection.translator, detection.manifest
        undetected, self._undetected = self._undetected, []
        translator = detection.translator
        rows = [part for file, row in undetected for part in self._place(file, row, translator)]
        self._learn(rows)
        self._notes += detection.notes
        for placed in rows:
            poll.steps += self._add(placed)

    def _sort_undetected(self, translator: Translator, ended: bool) -> bool:
        """Sort the rows of each log by step, if they are out of order and no step occurs twice.

        False to wait for the rest of such a log. The order of rows is needed where updates are
        counted as well as rollouts.
        """
        if translator.framework.update_counters:
            return True
        places_of: dict[str, list[int]] = defaultdict(list)
        for place, (file, _) in enumerate(self._undetected):
            places_of[file.log].append(place)
        for places in places_of.values():
            if not rows_behind(self._undetected[place][1] for place in places):
                continue  # the common case
            readable = [place for place in places if self._is_readable(place, translator)]
            rows = [self._undetected[place] for place in readable]
            in_order = sort_rows([row for _, row in rows])
            if in_order is None:
                continue
            if not ended and len(self._undetected) < MOST_SORTED:
                return False
            self._sorted += in_order.moved
            for place, index in zip(readable, in_order.order, strict=True):
                self._undetected[place] = rows[index]
        return True

    def _is_readable(self, place: int, translator: Translator) -> bool:
        """Whether an undetected row has metrics: other lines with numbers are in no order."""
        row = without_suffixes(self._undetected[place][1], translator.framework)
        return bool(translator.readings(row.values))

    def _learn(self, rows: list[_PlacedRow]) -> None:
        """Find repeated values and rows per step, and check that all logs belong to one run."""
        rows_of: dict[tuple[LogFile, str], list[LogRow]] = defaultdict(list)
        starts: list[tuple[LogFile, int, Mapping[str, Reading]]] = []
        for placed in rows:
            file, row = placed.file, placed.row
            self._repeats(placed).learn(placed.readings)
            rows_of[file, row.counter].append(row)
            step = row.step if row.step is not None else len(rows_of[file, row.counter])
            starts.append((file, step, placed.readings))
        refuse_mixed_runs(self.path, starts)
        counts = {source: rows_per_step(rows) for source, rows in rows_of.items()}
        several = {source: count for source, count in counts.items() if count > 1}
        self._assembly.several_rows_per_step |= {(file.log, name) for file, name in several}
        self._notes += rows_per_step_notes(
            {file.reader.path: count for (file, _), count in several.items()}
        )
