"""Reads the rows in the console output of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys, is_evaluation
from grpodoctor.runs.crash import Crash
from grpodoctor.runs.log_formats.base import CONSOLE, EVALUATION, LogRow
from grpodoctor.runs.log_formats.decoding import console_lines as lines
from grpodoctor.runs.log_formats.decoding import printed_dicts as dicts
from grpodoctor.runs.log_formats.decoding.crashes import CrashTracker
from grpodoctor.runs.log_formats.decoding.heading_steps import HeadingStep
from grpodoctor.runs.log_formats.decoding.iteration_results import IterationResults
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.decoding.printed_numbers import ParsedLine
from grpodoctor.runs.log_formats.decoding.printed_settings import (
    PrintedSettings,
    parse_argument,
    parse_engine,
)
from grpodoctor.runs.log_formats.decoding.printed_tables import PrintedTable
from grpodoctor.runs.log_formats.decoding.progress_bar_steps import (
    ProgressBarSteps,
    is_training_row,
)
from grpodoctor.runs.log_formats.decoding.recurring_lines import (
    RecurringLines,
    parse_recurring_line,
)
from grpodoctor.runs.log_formats.decoding.reward_below import RewardBelow
from grpodoctor.runs.log_formats.decoding.reward_lines import RewardLines
from grpodoctor.support.files.growing_files import Chunk, Tail

_MOST_JOBS = 128
"""Jobs in the log of a launcher; the lines of further ones are skipped."""

_MAX_WRAPPED = 200
"""Lines of one wrapped row."""

_MAX_PANEL_ROW = 20_000
"""Characters of a row of a panel."""

_MAX_DICT_LINES = 2000
"""Lines of a printed dict; verl prints all of its settings as one."""

_LINE_STEPS = {"line/step", "line/global_step", "line/iter", "line/iteration", "line/epoch"}

_OUTCOME = re.compile(r"reward|score|return|acc|success|solve|win|correct")
"""Keys of what a step achieved. A labeled line without one may share its step with a line in
another notation that has it."""

_JOB_COLUMN = "run_name"
"""The column that names the run of a row, as in a table of several runs."""


class Console:
    """Reads the rows in a growing console log.

    Args:
        path: the file.
        keys: keys of the step in a printed dict.
    """

    name = CONSOLE

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, keys
        self._decoder = RowDecoder(keys)
        self._step_keys = frozenset(keys.step)
        self._tail: Tail[str] = Tail(path, _text, confirm_last_line=True, keep_blank=True)
        self._forget()

    def _forget(self) -> None:
        self._settings = PrintedSettings()
        self._open: list[str] = []
        """Lines of a row that may continue."""
        self._closes = ""
        """How the row ends: `-` or `│` at a line that does not continue it, `}` at that brace."""
        self._depth = 0
        self._block: dict[str, float] = {}
        self._heading = HeadingStep()
        self._title = ""
        """The title of the bullets that follow: `Training` or `Validation`."""
        self._in_list = False
        """Whether the line above is a heading or an entry of the list below it."""
        self._bars = ProgressBarSteps()
        self._recurring = RecurringLines()
        self._results = IterationResults()
        self._table = PrintedTable()
        self._reward_lines = RewardLines()
        self._reward_below = RewardBelow()
        self._jobs: dict[str, Console] = {}
        self._crashes = CrashTracker()
        self._went_on = False
        """Whether the current line shows progress without completing a row."""

    @property
    def crash(self) -> Crash | None:
        """The error with which the log ends; None if it ends with something else."""
        jobs = (console.crash for console in self._jobs.values())
        return next(filter(None, (self._crashes.at_end, *jobs)), None)

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings printed so far."""
        return self._settings.values

    def rewind(self) -> None:
        """Start over at the first line."""
        self._forget()
        self._tail.rewind()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        first = self._tail.lines_read + 1
        chunk = self._tail.read()
        rows, notes = self.parse(chunk.records, more=chunk.more, first_line=first)
        return Chunk(rows, chunk.damage, chunk.size, chunk.more, notes)

    def parse(
        self, texts: Iterable[str], *, more: bool = False, first_line: int = 0
    ) -> tuple[list[LogRow], list[str]]:
        """Return the rows of the next lines, and notes on their steps.

        Args:
            texts: the lines.
            more: whether further lines are known to follow.
            first_line: number of the first line, from 1; 0 if it is not known.
        """
        by_job: dict[str, list[str]] = {}
        rows: list[LogRow] = []
        for place, line in enumerate(texts):
            job = lines.job_of(line)
            if job:
                by_job.setdefault(job, []).append(line)
            elif line:
                rows += self._own_rows(line, first_line and first_line + place)
        if not more:
            rows += self._finish()
        if any(row.step is not None or is_training_row(row) for row in rows):
            self._results.discard()  # the rows of the run have another notation
            self._table.discard()
            self._reward_lines.discard()
        further = self._table.take() or self._results.take(ended=not more)
        if further:
            self._reward_lines.discard()
        # Other rows are dicts in the displayed responses, if lines of rewards make a series.
        rows = self._reward_lines.take() or [*rows, *further]
        rows, notes = self._bars.numbered(rows)
        for job in sorted(by_job.keys() | (set() if more else self._jobs.keys())):
            job_rows, job_notes = self._parse_job(job, by_job.get(job, ()), more=more)
            rows, notes = [*rows, *job_rows], [*notes, *job_notes]
        return rows, notes

    def _own_rows(self, line: str, number: int) -> list[LogRow]:
        """The rows that a line completes; the line itself may be an error."""
        self._went_on = False
        rows = list(self._line(line))
        self._crashes.add(line, number=number, went_on=bool(rows) or self._went_on)
        return rows

    def _parse_job(
        self, job: str, texts: Iterable[str], *, more: bool
    ) -> tuple[list[LogRow], list[str]]:
        """Parse the lines of one of the jobs whose output a launcher mixes in one log."""
        if job not in self._jobs and len(self._jobs) >= _MOST_JOBS:
            return [], []
        console = self._jobs.setdefault(job, Console(self.path, self._keys))
        rows, notes = console.parse(
            (text for line in texts for text in lines.visible_segments(line)), more=more
        )
        self._settings.add_all(console.config)
        return [replace(row, texts={**row.texts, _JOB_COLUMN: job}) for row in rows], notes

    def _line(self, line: str) -> Iterator[LogRow]:
        for segment in lines.visible_segments(line):
            yield from self._segment(segment)

    def _segment(self, text: str) -> Iterator[LogRow]:
        if self._open:
            if self._extend(text):
                return
            yield from self._close()
        if lines.starts_verl_row(text):
            self._open, self._closes = [text], "-"
        elif lines.starts_panel_row(text):
            self._open, self._closes = [text], "│"
        elif dicts.starts_dict(text):
            self._open, self._closes = [text], "}"
            self._depth = text.count("{") - text.count("}")
        elif (argument := parse_argument(text) or parse_engine(text)) is not None:
            self._settings.add_argument(*argument)
        else:
            yield from self._parse(text)

    def _extend(self, text: str) -> bool:
        """Add a line to the open row if it belongs to it; return whether it does."""
        if self._closes == "-":
            more = not lines.starts_verl_row(text) and _continues(self._open[-1], text)
            if more and len(self._open) < _MAX_WRAPPED:
                self._open.append(text)
                return True
            return False
        if self._closes == "│":
            row = lines.with_wrapped(self._open[0], text)
            is_longer = row is not None and len(row) <= _MAX_PANEL_ROW
            self._open = [row] if row is not None and is_longer else self._open
            return is_longer
        if self._depth <= 0 or len(self._open) >= _MAX_DICT_LINES:
            return False
        if text.startswith("{'") and dicts.parse_dict(text) is not None:
            return False  # the open dict was cut off
        if not dicts.continues_dict(text) and not dicts.is_wrapped(self._open, text):
            return False
        self._open.append(text)
        self._depth += text.count("{") - text.count("}")
        return True

    def _close(self) -> Iterator[LogRow]:
        is_wrapped = self._closes == "-" or dicts.is_wrapped(self._open[:-1], self._open[-1])
        text = ("" if is_wrapped else "\n").join(self._open)
        self._open, self._closes = [], ""
        yield from self._parse(text)

    def _parse(self, text: str) -> Iterator[LogRow]:
        self._heading.add_line()
        listed = self._parse_list(text)
        if listed is not None:
            yield from listed
            return
        reward = self._reward_below.take(text)
        yield from self._other_row(reward) if reward is not None else self._parse_row(text)

    def _other_row(self, row: LogRow) -> Iterator[LogRow]:
        """A row in another notation, after the lines that it may complete."""
        yield from self._recurring.release()
        self._recurring.count_other_row()
        yield row

    def _parse_list(self, text: str) -> list[LogRow] | None:
        """Parse a heading with the step, or an entry of the list below it; None for other lines."""
        step = lines.parse_list_heading(text)
        if step is not None:
            self._went_on = True
            complete = list(self._end_block())
            self._heading.add_heading(step)
            self._in_list = True
            return complete
        if not self._in_list:
            return None
        entry = lines.parse_list_entry(text)
        self._in_list = entry is not None
        if entry is None:
            return None
        if len(self._block) < MOST_KEYS:
            self._block.update(entry.pairs)
        return []

    def _parse_row(self, text: str) -> Iterator[LogRow]:
        parsed = lines.parse_verl_row(text) or lines.parse_prime_rl_row(text)
        if parsed is None:
            row = self._json_row(text)
            if row is not None:
                yield from self._recurring.release()
                self._recurring.count_other_row()
                yield from self._end_block()
                yield row
                return
            bar = lines.parse_progress_bar(text)
            if bar is not None:
                self._went_on = self._bars.add_bar(bar)
            parsed = self._parse_dict(text)
        if parsed is None:
            yield from self._parse_block(text)
        else:
            yield from self._complete_row(parsed)

    def _complete_row(self, parsed: ParsedLine) -> Iterator[LogRow]:
        if len(parsed.pairs) <= MOST_KEYS:
            yield from self._recurring.release()
            self._recurring.count_other_row()
            yield from self._end_block()
            yield self._row(parsed.pairs, parsed.step, parsed.counter)

    def _json_row(self, text: str) -> LogRow | None:
        """The row of a line that ends with a JSON object with a step and measurements."""
        data = lines.parse_json_object(text)
        try:
            row = self._decoder.row(data) if data is not None else None
        except ValueError:
            return None
        return row if row is not None and row.step is not None and len(row.values) > 1 else None

    def _parse_dict(self, text: str) -> ParsedLine | None:
        parsed = dicts.parse_dict(text)
        if parsed is None:
            if text.count("{") > 1 and len(text) > 200:
                self._settings.add(text)
            return None
        if parsed.step is None and self._results.take_example(parsed.pairs):
            return None
        labels = lines.labels_before_dict(text)
        if labels is not None and parsed.pairs.keys().isdisjoint(labels.pairs):
            parsed = parsed._replace(pairs={**labels.pairs, **parsed.pairs})
        if parsed.step is None and self._heading.is_near:
            self._heading.extend()
            return ParsedLine(parsed.pairs, self._heading.step_of(parsed.pairs))
        return parsed

    def _parse_block(self, text: str) -> Iterator[LogRow]:
        parsed = lines.parse_labeled_line(text)
        if parsed is not None:
            yield from self._labeled_row(parsed)
            return
        line = parse_recurring_line(text)
        if line is not None and (rows := self._recurring.add(line)):
            yield from rows
            return
        title = lines.results_title(text)
        if title is not None:
            self._title = title
            return
        bullet = lines.parse_bullet(text, self._title)
        parsed = bullet or lines.parse_table_cells(text) if not line else None
        if parsed is not None:
            if not parsed.pairs.keys().isdisjoint(self._block):
                yield from self._end_block()
            if len(self._block) < MOST_KEYS:
                self._block.update(parsed.pairs)
            return
        step = self._heading_in(text)
        if step is not None:
            if step != self._heading.step:
                self._went_on = True
                yield from self._end_block()
            self._heading.add_heading(step)
            self._title = ""
            if pairs := lines.parse_values_of_rollout(text):
                yield LogRow(step, pairs)
            return
        self._table.add_line(text)
        self._reward_lines.add_line(text)
        self._results.add_line(text)

    def _heading_in(self, text: str) -> int | None:
        """The step in a heading; None if the line is none."""
        step = lines.parse_heading(text)
        if step is not None:
            return step
        batch = lines.parse_batch_heading(text)
        return batch if batch is not None and self._heading.takes_batch(batch) else None

    def _labeled_row(self, parsed: ParsedLine) -> Iterator[LogRow]:
        values = {key: value for key, value in parsed.pairs.items() if key not in _LINE_STEPS}
        row = LogRow(parsed.step, values, counter=parsed.counter)
        if parsed.step is None or parsed.counter or any(map(_OUTCOME.search, values)):
            yield from self._other_row(row)
        else:
            self._reward_below.add_row(parsed.step)
            yield from self._recurring.share(row)

    def _end_block(self) -> Iterator[LogRow]:
        if len(self._block) > 1:
            row = self._row(self._block, self._heading.step_of(self._block))
            yield from self._other_row(row)
        self._block = {}

    def _finish(self) -> list[LogRow]:
        """Return the rows that are complete at the end of the text."""
        rows = list(self._close()) if self._closes in ("-", "│") else []
        if self._closes == "}" and self._depth <= 0:
            rows += self._close()
        if rows:  # of the last lines
            self._crashes.note_progress()
        return [*rows, *self._recurring.finish(), *self._end_block()]

    def _row(self, pairs: Mapping[str, float], step: int | None, counter: str = "") -> LogRow:
        own = next((pairs[key] for key in self._keys.step if key in pairs), None)
        if step is None and own is not None and abs(own) < 2**53 and own == int(own):
            step = int(own)
        values = {key: value for key, value in pairs.items() if key not in self._step_keys}
        if step is None and values and all(map(is_evaluation, values)):
            return LogRow(None, values, counter=EVALUATION)  # no bar counts evaluations
        row = LogRow(step, values, counter=counter)
        return row if step is not None else self._bars.add_row(row)


def _continues(before: str, text: str) -> bool:
    """Whether a line can continue a wrapped one: it has only pairs and parts of pairs."""
    if len(before) < 40 or len(text) > 4000:
        return False
    parts = text.split(" - ")
    return all(part.strip(" -") == "" or " " not in part.strip(" -") for part in parts) and (
        ":" in text or len(text.strip()) <= 40
    )


def _text(line: bytes) -> str:
    """Decode a line without zero bytes.

    Truncating a file that a job keeps writing leaves a hole of zeros, and redirected output of a
    Windows console has a zero after each letter.
    """
    return line.replace(b"\0", b"").decode("utf-8", "replace")


def has_rows(head: bytes) -> bool:
    """Whether the first bytes of a file have a line with readings."""
    parsers = (
        lines.parse_verl_row,
        lines.parse_prime_rl_row,
        dicts.parse_dict,
        lines.parse_labeled_line,
    )
    texts = (
        text for line in head.splitlines()[:2000] for text in lines.visible_segments(_text(line))
    )
    return any(parse(text) is not None for text in texts for parse in parsers)
