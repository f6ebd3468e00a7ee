"""Following the logs of other frameworks, once or while they are written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError, name_some
from grpodoctor.runs.assembly import Assembly
from grpodoctor.runs.carriers.base import Carrier, Keys, Row
from grpodoctor.runs.carriers.catalogue import format_named, logs_in, open_carrier
from grpodoctor.runs.dialects.catalogue import Guess, framework_named, guesses
from grpodoctor.runs.dialects.semantics import Framework
from grpodoctor.runs.dialects.settings import knobs_from, read_settings
from grpodoctor.runs.dialects.translate import Translator
from grpodoctor.runs.follower import Poll
from grpodoctor.runs.records import Manifest, StepRecord

QUIET_SECONDS = 0.3
"""Without a new row for so long, a step is taken for whole."""

DETECT_ROWS = 50
"""Rows looked at before the framework is decided, unless the log ends earlier."""

_LOOK_AGAIN_SECONDS = 5.0
"""Between two searches of a directory for new logs: checkpoints, rotated files."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user says about a log."""

    format: str | None = None
    """A framework or a file format; found out if None."""
    run_config: Path | None = None
    """The run's settings, where the log has none."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Keys of the log to canonical metrics; goes before any table."""


class ForeignFollower:
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
        self._framework: Framework | None = None
        self._carrier_name: str | None = None
        if self.options.format is not None:
            self._decide_format(self.options.format)
        self._begin()

    def _begin(self) -> None:
        self._carriers: dict[Path, Carrier] = {}
        self._refused: set[Path] = set()
        self._waiting: list[tuple[Carrier, Row]] = []
        self._assembly = Assembly()
        self._translator: Translator | None = None
        self._counted: dict[Path, int] = {}
        self._grew_at = self._looked_at = 0.0
        self._notes: list[str] = []

    def _decide_format(self, name: str) -> None:
        if format_named(name) is not None:
            self._carrier_name = name
        else:
            self._framework = framework_named(name)

    @property
    def translator(self) -> Translator | None:
        """What reads the rows; None until the framework is known."""
        return self._translator

    def poll(self, *, final: bool = False) -> Poll:
        """What is new since the poll before.

        Args:
            final: whether nobody writes any more, so that nothing is worth waiting for.

        Raises:
            RunError: if the log cannot be read.
        """
        news = Poll()
        if any(carrier.was_replaced() for carrier in self._carriers.values()):
            self._begin()
            news.restarted = True
        self._find_logs(news)
        for carrier in list(self._carriers.values()):
            self._read(carrier, news)
        ended = final and not news.more
        if self._translator is None and self._waiting and (ended or self._seen_enough()):
            self._settle(news)
        if self._translator is not None and (ended or self._is_quiet()):
            news.steps += self._assembly.flush()
        news.notes, self._notes = self._notes, []
        return news

    def _find_logs(self, news: Poll) -> None:
        """Open what is new on disk, now and then."""
        now = time.monotonic()
        if self._carriers and now - self._looked_at < _LOOK_AGAIN_SECONDS:
            return
        self._looked_at = now
        for path in self._candidates():
            if path in self._carriers or path in self._refused:
                continue
            carrier = self._open(path)
            if carrier is None:
                self._refused.add(path)
            else:
                self._carriers[path] = carrier
                self._assembly.open_log(str(path))
                news.more = True

    def _candidates(self) -> list[Path]:
        if not self.path.exists():
            return []
        return [self.path] if self.path.is_file() else list(logs_in(self.path))

    def _open(self, path: Path) -> Carrier | None:
        keys = self._framework.row_keys if self._framework else Keys()
        try:
            return open_carrier(path, keys, self._carrier_name)
        except OSError as error:
            raise RunError(
                f"cannot read the log: {error.strerror}",
                where=str(path)[:200],
                remedy="check the path and its permissions",
            ) from error

    def _read(self, carrier: Carrier, news: Poll) -> None:
        chunk = carrier.read()
        news.damage += chunk.damage
        news.more |= chunk.more
        if chunk.records:
            self._grew_at = time.monotonic()
        for row in chunk.records:
            if self._translator is None:
                self._waiting.append((carrier, row))
            else:
                news.steps += self._take(carrier, row, self._translator)

    def _take(self, carrier: Carrier, row: Row, translator: Translator) -> list[StepRecord]:
        readings = translator.readings(row.values)
        if not readings:
            return []
        count = self._counted.get(carrier.path, 0) + 1
        self._counted[carrier.path] = count
        step = row.step if row.step is not None else count
        return self._assembly.add(str(carrier.path), step, readings, row.time)

    def _seen_enough(self) -> bool:
        return len(self._waiting) >= DETECT_ROWS or self._is_quiet()

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._grew_at > QUIET_SECONDS

    def _settle(self, news: Poll) -> None:
        """Decide what wrote the log, and read what has been waiting for that."""
        keys = {key for _, row in self._waiting for key in row.values}
        if self._framework is None:
            self._framework = self._recognise(keys)
        settings = self._settings(self._framework)
        version = str(settings.get(self._framework.version_key, ""))
        self._translator = Translator(self._framework, settings, version, own=self.options.mapping)
        news.manifest = Manifest(
            framework=self._framework.name,
            knobs=knobs_from(self._framework, settings),
            config=dict(settings),
        )
        waiting, self._waiting = self._waiting, []
        for carrier, row in waiting:
            news.steps += self._take(carrier, row, self._translator)

    def _recognise(self, keys: set[str]) -> Framework:
        found = guesses(keys)
        if not found:
            raise RunError(
                f"no framework is known that logs these keys: {name_some(sorted(keys))}",
                where=str(self.path),
                remedy="name it with --format, or map keys with --map key=metric",
            )
        self._notes += _reasons(found)
        return found[0].framework

    def _settings(self, framework: Framework) -> dict[str, Any]:
        inside = [carrier.config for carrier in self._carriers.values() if carrier.config]
        return read_settings(self.path, framework, inside, self.options.run_config)


def _reasons(found: list[Guess]) -> list[str]:
    best = found[0]
    notes = [f"read as {best.framework.title}: {best.why}"]
    if len(found) > 1 and found[1].signature:
        notes.append(f"it could be {found[1].framework.title}: {found[1].why}")
    return notes
