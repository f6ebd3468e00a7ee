"""Trackio's databases: one SQLite file per project, with all runs in one table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.runs.log_formats.wandb import with_trainer_steps
from grpodoctor.support.files.growing_files import Chunk, Damage

if TYPE_CHECKING:
    import sqlite3

_MAGIC = b"SQLite format 3\0"
_ROWS = 1000
"""Rows per read."""

_MAX_ROW_BYTES = 8 * 1024 * 1024

_READ_SECONDS = 5.0
"""Time limit of one read: a malicious file must not block the reader."""

_LOCKED_SECONDS = 0.2
"""How long to wait for the lock while the job writes."""

_INSTRUCTIONS_PER_CHECK = 20_000

_NEEDED = {"id", "step", "timestamp", "metrics", "run_name"}
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 100"
"""Views are excluded: a malicious one could run forever."""


class Trackio:
    """Reads the newest run of a database, which may still grow.

    Args:
        path: the database.
        keys: keys of the step; without them, Trackio's own count is used.
    """

    name = "trackio"
    crash: None = None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._decoder = path, RowDecoder(with_trainer_steps(keys))
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first row of the newest run."""
        self.config: Mapping[str, Any] = {}
        self._identity: tuple[int, int] | None = None
        self._run: str | None = None
        self._column = "run_name"
        self._read = self._seen = 0
        self._replaced = False

    def was_replaced(self) -> bool:
        """Whether the database was replaced, or another run began in it."""
        if self._identity is None or self._replaced:
            return self._replaced
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return True
        return self._identity != (status.st_dev, status.st_ino)

    def read(self) -> Chunk[LogRow]:
        """Read the next rows of the run."""
        import sqlite3

        if not self.path.is_file():
            return Chunk()
        status = self.path.stat()
        self._identity = (status.st_dev, status.st_ino)
        try:
            with _opened(self.path) as database:
                return self._read_rows(database)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:160]
            if "locked" in reason:
                return Chunk()  # the job is writing; the next read succeeds
            return Chunk(damage=[Damage(self.path.name, 0, reason)])

    def _read_rows(self, database: sqlite3.Connection) -> Chunk[LogRow]:
        chunk = Chunk[LogRow]()
        if self._run is None and not self._choose(database, chunk):
            return chunk
        self._check_for_newer_run(database)
        rows = database.execute(
            f"SELECT id, step, timestamp, metrics FROM metrics WHERE id > ? AND {self._column} = ? "  # noqa: S608 - one of two fixed names
            "ORDER BY id LIMIT ?",
            (self._read, self._run, _ROWS),
        ).fetchall()
        for place, step, stamp, text in rows:
            self._read = int(place)
            chunk.size += len(text) if isinstance(text, str | bytes) else 0
            try:
                chunk.records.append(self._row(step, stamp, text))
            except (ValueError, TypeError) as error:
                chunk.damage.append(Damage(self.path.name, int(place), str(error)[:160]))
        chunk.more = len(rows) == _ROWS
        return chunk

    def _choose(self, database: sqlite3.Connection, chunk: Chunk[LogRow]) -> bool:
        """Choose the run that began last; return whether there is one."""
        columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")}
        tables = {row[0] for row in database.execute(_TABLES)}
        if "metrics" not in tables or not columns >= _NEEDED:
            chunk.damage.append(Damage(self.path.name, 0, "not a database of Trackio"))
            return False
        self._column = "run_id" if "run_id" in columns else "run_name"
        runs = database.execute(
            f"SELECT {self._column}, min(id), max(run_name) FROM metrics "  # noqa: S608 - as above
            f"GROUP BY {self._column} ORDER BY 2"
        ).fetchall()
        if not runs:
            return False
        self._run = runs[-1][0]
        if len(runs) > 1:
            name = str(runs[-1][2])[:60]
            chunk.notes.append(
                f"{self.path.name} has {len(runs)} runs; the newest, {name!r}, was read"
            )
        (self._seen,) = database.execute("SELECT max(id) FROM metrics").fetchone()
        self.config = self._config(database)
        return True

    def _check_for_newer_run(self, database: sqlite3.Connection) -> None:
        newer = database.execute(
            f"SELECT id, {self._column} FROM metrics WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - as above
            (self._seen, _ROWS),
        ).fetchall()
        for place, run in newer:
            known = run == self._run or self._wrote_before(database, run, int(place))
            self._replaced |= not known
            self._seen = int(place)

    def _wrote_before(self, database: sqlite3.Connection, run: object, place: int) -> bool:
        query = f"SELECT 1 FROM metrics WHERE {self._column} = ? AND id < ? LIMIT 1"  # noqa: S608 - as above
        return database.execute(query, (run, place)).fetchone() is not None

    def _config(self, database: sqlite3.Connection) -> dict[str, Any]:
        columns = {row[1] for row in database.execute("PRAGMA table_info(configs)")}
        if not {self._column, "config"} <= columns:
            return {}
        query = f"SELECT config FROM configs WHERE {self._column} = ? ORDER BY id DESC LIMIT 1"  # noqa: S608 - as above
        record = database.execute(query, (self._run,)).fetchone()
        try:
            config = orjson.loads(record[0]) if record else {}
        except (orjson.JSONDecodeError, TypeError):
            return {}
        return config if isinstance(config, dict) else {}

    def _row(self, step: object, stamp: object, text: object) -> LogRow:
        if not isinstance(text, str | bytes):
            raise ValueError("metrics are not text")  # noqa: TRY004 - counted as damage
        data = orjson.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not an object")  # noqa: TRY004 - as above
        return self._decoder.row({"step": step, "time": _unix(stamp), **data})


def _unix(stamp: object) -> float:
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open read-only, with bounded time and memory, and without trusting the schema."""
    import sqlite3

    uri = f"{path.absolute().as_uri()}?mode=ro"
    database = sqlite3.connect(uri, uri=True, timeout=_LOCKED_SECONDS)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW_BYTES)
        ends = time.monotonic() + _READ_SECONDS
        database.set_progress_handler(lambda: time.monotonic() > ends, _INSTRUCTIONS_PER_CHECK)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        yield database
    finally:
        database.close()


def _claims(path: Path, head: bytes) -> bool:  # noqa: ARG001 - the first bytes suffice
    return head.startswith(_MAGIC)


FORMAT = LogFormat("trackio", 6, _claims, Trackio)
