"""Following the logs of other frameworks, once or while they are written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError, name_some
from grpodoctor.frameworks.detection import guess_frameworks
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.registry import (
    find_framework,
    framework_named,
    generic_framework,
    logging_frameworks,
)
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.run_config import read_settings
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.catalogue import all_log_formats, log_format_named
from grpodoctor.runs.reading.log_files import LogFile, LogFiles
from grpodoctor.runs.reading.mixed_runs import refuse_mixed_runs, rows_per_step, rows_per_step_notes
from grpodoctor.runs.reading.native_run import Poll
from grpodoctor.runs.reading.read_notes import (
    ZeroColumns,
    borrowed_keys_note,
    conflict_note,
    guess_notes,
    named_framework_note,
    repeated_values_note,
    rewind_note,
    settings_notes,
)
from grpodoctor.runs.reading.repeated_values import RepeatedValues
from grpodoctor.runs.reading.step_assembly import StepAssembly
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.runs.rollout_dumps.dump_follower import DumpFollower
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading

QUIET_SECONDS = 0.3
"""Without a new row for so long, a step is taken for whole."""

DETECT_ROWS = 50
"""Rows looked at before the framework is decided, unless the log ends earlier."""

_MOST_WAITING = 5000
"""Rows looked at where none of them has a key that is a framework's own."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user says about a log."""

    format: str | None = None
    """A framework or a file format; found out if None."""
    run_config: Path | None = None
    """The run's settings, where the log has none."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """RowKeys of the log to canonical metrics; goes before any table."""
    ray: str | None = None
    """A Ray cluster to read rollout dumps on: `local`, `auto` or its address."""
    elsewhere: tuple[tuple[DumpFormat, DumpFile], ...] = ()
    """Rollout dumps that lie in a store, and are read there."""


class FrameworkFollower:
    """Reads the logs of another framework, to the end or again and again.

    Args:
        path: a log, or the directory that a training job left or is writing.
        options: what the user says about it.

    Raises:
        ConfigError: if nobody knows the format.
    """

    def __init__(self, path: str | Path, options: ReadOptions | None = None) -> None:
        self.path = Path(path)
        self.options = options or ReadOptions()
        self._named: Framework | None = None
        self._carrier_name: str | None = None
        if self.options.format is not None:
            self._decide_format(self.options.format)
        self._begin()

    def _begin(self) -> None:
        self._framework = self._named
        keys = self._named.row_keys if self._named else RowKeys()
        self._dumps = DumpFollower(self.options.ray, self.options.elsewhere)
        self._logs = LogFiles(self.path, self._carrier_name, keys, self._dumps)
        self._waiting: list[tuple[LogFile, LogRow]] = []
        self._assembly = StepAssembly()
        self._translator: Translator | None = None
        self._counted: dict[Path, int] = {}
        self._held: dict[Path, RepeatedValues] = {}
        self._zeros = ZeroColumns()
        self._told: dict[str, str] = {}
        self._grew_at = 0.0
        self._restarted = False
        self._settled_by: str | None = None
        self._notes: list[str] = []

    def _decide_format(self, name: str) -> None:
        if log_format_named(name) is not None:
            self._carrier_name = name
        else:
            formats = [log_format.name for log_format in all_log_formats()]
            self._named = framework_named(name, other_names=formats)

    @property
    def translator(self) -> Translator | None:
        """What reads the rows; None until the framework is known."""
        return self._translator

    @property
    def rollouts(self) -> DumpedResponses:
        """The single responses of the dumps that were read so far."""
        return self._dumps.texts

    @property
    def unread(self) -> list[str]:
        """The rollout dumps that could not be read, with the reason; once all was read."""
        return self._dumps.failed

    def written_at(self) -> float:
        """Unix time of the latest writing to the logs; 0 if there are none."""
        return self._logs.written_at()

    def poll(self, *, final: bool = False) -> Poll:
        """What is new since the poll before.

        Args:
            final: whether nobody writes any more, so that nothing is worth waiting for.

        Raises:
            RunError: if the log cannot be read.
        """
        news = Poll()
        if self._logs.are_gone():
            return self._start_over()
        self._find_logs(news)
        news.more |= self._dumps.read(final=final)
        self._read_all(news)
        if self._restarted:
            return self._start_over()
        ended = final and not news.more
        if self._translator is None and self._waiting and (ended or self._seen_enough()):
            self._settle(news, ended=ended)
        if self._translator is not None and (ended or self._is_quiet()):
            news.steps += self._assembly.flush()
            self._tell(ended=ended)
        self._join_dumps(news, ended=ended)
        news.held = bool(self._waiting) or self._assembly.holds or self._dumps.holds
        news.notes, self._notes = self._notes, []
        return news

    def _join_dumps(self, news: Poll, *, ended: bool) -> None:
        """Put what the dumps say to the steps; without a log, their own steps are the run."""
        writer = self._dumps.framework
        alone = writer is not None and self._translator is None and not self._waiting
        if alone and self._settled_by != writer and (ended or self._is_quiet()):
            self._settled_by = writer
            news.manifest = self._manifest_of_dumps(str(writer))
        settled = alone and self._settled_by is not None
        news.steps = self._dumps.join(news.steps, final=ended and not self._waiting, alone=settled)
        news.damage += self._dumps.damage
        self._notes += self._dumps.notes
        self._dumps.damage, self._dumps.notes = [], []

    def _manifest_of_dumps(self, writer: str) -> Manifest:
        """The manifest of a run that left no log."""
        framework = find_framework(writer, logging_frameworks())
        if framework is None:
            return Manifest(framework=writer)
        settings = self._settings(framework)
        knobs = framework.knobs.read(settings)
        return Manifest(framework=writer, knobs=knobs, config=dict(settings))

    def _tell(self, *, ended: bool) -> None:
        """Note what has become known: of a log that grows once, of one that is read to its end all.

        The counts in it grow with the log, and each would be news.
        """
        held = [each for each in self._held.values() if each.periods]
        said = {
            "rewinds": rewind_note(self._assembly),
            "conflicts": conflict_note(self._assembly),
            "held": repeated_values_note(held),
            "zeros": self._zeros.told(),
            "borrowed": borrowed_keys_note(self._translator),
        }
        for key, text in said.items():
            before = self._told.get(key)
            if text and (before is None or (ended and text != before)):
                self._notes.append(text)
                self._told[key] = text

    def _start_over(self) -> Poll:
        """Another run stands there: nothing that was read counts."""
        self._begin()
        return Poll(restarted=True, more=True)

    def _find_logs(self, news: Poll) -> None:
        """Open what is new on disk."""
        opened, closed = self._logs.look()
        for log in opened:
            self._assembly.open_log(log)
        for log in closed:
            self._assembly.close_log(log)
        news.more |= bool(opened)
        self._notes += self._logs.notes
        self._logs.notes = []

    def _read_all(self, news: Poll) -> None:
        """Read a block of each log; a later part of one waits for those before it."""
        behind: set[str] = set()
        for file in self._logs.in_order():
            if file.log not in behind and self._read(file, news):
                behind.add(file.log)

    def _read(self, file: LogFile, news: Poll) -> bool:
        """Read a block; whether there is more of it."""
        chunk = file.reader.read()
        news.damage += chunk.damage
        self._notes += chunk.notes
        news.more |= chunk.more
        if chunk.records:
            self._grew_at = time.monotonic()
        for row in chunk.records:
            if self._translator is None:
                self._waiting.append((file, row))
            else:
                news.steps += self._take(file, row, self._translator)
        return chunk.more

    def _take(
        self, file: LogFile, row: LogRow, translator: Translator, *, learnt: bool = False
    ) -> list[StepRecord]:
        readings = translator.readings(row.values)
        if not readings:
            return []
        self._zeros.take(row.values)
        path = file.reader.path
        held = self._held.setdefault(path, RepeatedValues())
        if not learnt:
            held.learn(readings)
        if file.begun_anew:
            self._counted.pop(path, None)
        count = self._counted.get(path, translator.framework.first_step - 1) + 1
        self._counted[path] = count
        step = row.step if row.step is not None else count
        if file.begun_anew and not self._goes_on(file, step):
            return []
        return self._assembly.add(file.log, step, held.thinned(readings), row.time)

    def _goes_on(self, file: LogFile, step: int) -> bool:
        """Whether a file that was replaced is the next one of the same run; if not, start over."""
        file.begun_anew = False
        if step < self._assembly.last_of(file.log):
            self._restarted = True
            return False
        self._notes.append(f"{file.reader.path.name} was begun anew and goes on at step {step}")
        return True

    def _seen_enough(self) -> bool:
        return len(self._waiting) >= DETECT_ROWS or self._is_quiet()

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._grew_at > QUIET_SECONDS

    def _settle(self, news: Poll, *, ended: bool) -> None:
        """Decide what wrote the log, and read what has been waiting for that."""
        if self._framework is None:
            self._framework = self._recognise(ended=ended)
            if self._framework is None:
                return
        else:
            self._notes.append(named_framework_note(self._framework, self._formats()))
        settings = self._settings(self._framework)
        settings = {**self._hints(self._framework), **settings}
        version = str(settings.get(self._framework.version_key, ""))
        self._translator = Translator(
            self._framework,
            settings,
            version,
            own=self.options.mapping,
            generic=generic_framework(),
        )
        news.manifest = Manifest(
            framework=self._framework.name,
            knobs=self._framework.knobs.read(settings),
            config=dict(settings),
        )
        waiting, self._waiting = self._waiting, []
        self._learn(waiting, self._translator)
        self._notes += settings_notes(self._translator, news.manifest.knobs)
        for file, row in waiting:
            news.steps += self._take(file, row, self._translator, learnt=True)

    def _learn(self, waiting: list[tuple[LogFile, LogRow]], translator: Translator) -> None:
        """See what is usual in each log, and that all are of one run, before any row is taken."""
        rows: dict[Path, list[LogRow]] = {}
        read: list[tuple[LogFile, int, Mapping[str, Reading]]] = []
        for file, row in waiting:
            readings = translator.readings(row.values)
            if not readings:
                continue
            path = file.reader.path
            self._held.setdefault(path, RepeatedValues()).learn(readings)
            rows.setdefault(path, []).append(row)
            step = row.step if row.step is not None else len(rows[path])
            read.append((file, step, readings))
        refuse_mixed_runs(self.path, read)
        counts = {path: rows_per_step(each) for path, each in rows.items()}
        several = {path: count for path, count in counts.items() if count > 1}
        self._assembly.of_several_rows |= {
            file.log for file, _ in waiting if file.reader.path in several
        }
        self._notes += rows_per_step_notes(several)

    def _hints(self, framework: Framework) -> Mapping[str, Setting]:
        """Settings that the numbers themselves give away."""
        if framework.infer_settings is None:
            return {}
        rows = [
            {framework.bare_key(key): value for key, value in row.values.items()}
            for _, row in self._waiting[:DETECT_ROWS]
        ]
        return framework.infer_settings(rows)

    def _recognise(self, *, ended: bool) -> Framework | None:
        """The framework by the keys seen so far; None to see more first.

        Much else may be printed before the first row of a training step.
        """
        keys = {key for _, row in self._waiting for key in row.values}
        found = guess_frameworks(keys)
        settled = ended or len(self._waiting) >= _MOST_WAITING or (found and self._is_quiet())
        if not settled and not (found and found[0].signature):
            return None
        if not found and not keys.isdisjoint(self.options.mapping):
            self._notes.append(f"read by --map alone: no other of its {len(keys)} keys is known")
            return generic_framework()
        if not found:
            raise self._unknown(keys)
        self._notes += guess_notes(found, self._formats())
        return found[0].framework

    def _unknown(self, keys: set[str]) -> RunError:
        where = str(self.path)
        if keys:
            return RunError(
                f"no framework is known that logs these keys: {name_some(sorted(keys))}",
                where=where,
                remedy="name it with --format, or map keys with --map key=metric",
            )
        named = self._carrier_name
        remedy = "leave out --format" if named else "give the file or directory that has the log"
        kind = f"read as {named}, it holds" if named else "it holds"
        return RunError(f"{kind} no numbers of a training", where=where, remedy=remedy)

    def _formats(self) -> list[str]:
        return [file.reader.name for file, _ in self._waiting]

    def _settings(self, framework: Framework) -> dict[str, Any]:
        readers = self._logs.readers
        inside = [reader.config for reader in readers if reader.config]
        paths = [reader.path for reader in readers]
        return read_settings(self.path, framework, inside, self.options.run_config, paths)
