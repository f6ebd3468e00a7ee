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
from grpodoctor.runs.carriers.trainer_state import (
    TRAINER_STATE,
    TRAINER_STATE_FILE,
    is_checkpoint,
    progress_of,
)
from grpodoctor.runs.dialects.catalogue import framework_named, guesses, plain_names
from grpodoctor.runs.dialects.semantics import Framework
from grpodoctor.runs.dialects.settings import knobs_from, read_settings
from grpodoctor.runs.dialects.translate import Translator
from grpodoctor.runs.follower import Poll
from grpodoctor.runs.held import Held
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.runs.remarks import (
    Zeros,
    told_borrowed,
    told_conflicts,
    told_guesses,
    told_held,
    told_rewinds,
)
from grpodoctor.vocabulary.knobs import Setting

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
        self._held: dict[Path, Held] = {}
        self._zeros = Zeros()
        self._told: dict[str, str] = {}
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
            self._tell()
        news.notes, self._notes = self._notes, []
        return news

    def _tell(self) -> None:
        """Note what has become known since it was told last."""
        held = [each for each in self._held.values() if each.periods]
        said = {
            "rewinds": told_rewinds(self._assembly),
            "conflicts": told_conflicts(self._assembly),
            "held": told_held(held),
            "zeros": self._zeros.told(),
            "borrowed": told_borrowed(self._translator),
        }
        self._notes += [text for key, text in said.items() if text and text != self._told.get(key)]
        self._told = said

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
        self._close_older_checkpoints()

    def _close_older_checkpoints(self) -> None:
        """Of the states of one run only the newest is read: it holds all that the others do."""
        newest: dict[Path, Path] = {}
        for path, carrier in self._carriers.items():
            if carrier.name == TRAINER_STATE:
                run = path.parent.parent if is_checkpoint(path.parent) else path.parent
                newest[run] = max(path, newest.get(run, path), key=progress_of)
        kept = set(newest.values())
        older = [path for path in self._carriers if self._carriers[path].name == TRAINER_STATE]
        for path in older:
            if path not in kept and path.name == TRAINER_STATE_FILE:
                del self._carriers[path]
                self._refused.add(path)
                self._assembly.close_log(str(path))

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
        self._notes += chunk.notes
        news.more |= chunk.more
        if chunk.records:
            self._grew_at = time.monotonic()
        for row in chunk.records:
            if self._translator is None:
                self._waiting.append((carrier, row))
            else:
                news.steps += self._take(carrier, row, self._translator)

    def _take(
        self, carrier: Carrier, row: Row, translator: Translator, *, learnt: bool = False
    ) -> list[StepRecord]:
        readings = translator.readings(row.values)
        if not readings:
            return []
        self._zeros.take(row.values)
        held = self._held.setdefault(carrier.path, Held())
        if not learnt:
            held.learn(readings)
        count = self._counted.get(carrier.path, translator.framework.first_step - 1) + 1
        self._counted[carrier.path] = count
        step = row.step if row.step is not None else count
        return self._assembly.add(str(carrier.path), step, held.thinned(readings), row.time)

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
        settings = {**self._hints(self._framework), **settings}
        version = str(settings.get(self._framework.version_key, ""))
        self._translator = Translator(
            self._framework, settings, version, own=self.options.mapping, plain=plain_names()
        )
        news.manifest = Manifest(
            framework=self._framework.name,
            knobs=knobs_from(self._framework, settings),
            config=dict(settings),
        )
        waiting, self._waiting = self._waiting, []
        for carrier, row in waiting:
            readings = self._translator.readings(row.values)
            if readings:
                self._held.setdefault(carrier.path, Held()).learn(readings)
        for carrier, row in waiting:
            news.steps += self._take(carrier, row, self._translator, learnt=True)

    def _hints(self, framework: Framework) -> Mapping[str, Setting]:
        """Settings that the numbers themselves give away."""
        if framework.hints is None:
            return {}
        rows = [
            {framework.bare(key): value for key, value in row.values.items()}
            for _, row in self._waiting[:DETECT_ROWS]
        ]
        return framework.hints(rows)

    def _recognise(self, keys: set[str]) -> Framework:
        found = guesses(keys)
        if not found:
            raise RunError(
                f"no framework is known that logs these keys: {name_some(sorted(keys))}",
                where=str(self.path),
                remedy="name it with --format, or map keys with --map key=metric",
            )
        self._notes += told_guesses(found)
        return found[0].framework

    def _settings(self, framework: Framework) -> dict[str, Any]:
        inside = [carrier.config for carrier in self._carriers.values() if carrier.config]
        return read_settings(self.path, framework, inside, self.options.run_config)
