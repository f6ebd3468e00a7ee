"""Trackio's databases: by its documented tables, and by Trackio itself where it is installed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.log_formats.trackio import Trackio
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.support.files.growing_files import Damage

Log = tuple[str, int, dict[str, object]]


def rows_of(reader: Trackio) -> tuple[list[LogRow], list[Damage], list[str]]:
    rows, damage, notes, more = list[LogRow](), list[Damage](), list[str](), True
    while more:
        chunk = reader.read()
        rows += chunk.records
        damage += chunk.damage
        notes += chunk.notes
        more = chunk.more
    return rows, damage, notes


def tables(path: Path, *, runs_have_ids: bool = True) -> sqlite3.Connection:
    """The tables that Trackio makes, of a recent version or of the first that had one per file."""
    database = sqlite3.connect(path)
    column = "run_id TEXT NOT NULL," if runs_have_ids else ""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(
        f"CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, {column} "
        "timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, "
        "metrics TEXT NOT NULL)"
    )
    database.execute(
        f"CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, {column} "
        "run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL)"
    )
    return database


def write(database: sqlite3.Connection, logs: Sequence[Log], *, with_ids: bool = True) -> None:
    for run, step, values in logs:
        cells = ["2026-01-01T00:00:00+00:00", run, step, json.dumps(values)]
        names = "timestamp, run_name, step, metrics"
        if with_ids:
            names, cells = f"{names}, run_id", [*cells, f"id-{run}"]
        marks = ", ".join("?" * len(cells))
        insert = f"INSERT INTO metrics ({names}) VALUES ({marks})"  # noqa: S608 - ours
        database.execute(insert, cells)
    database.commit()


def some(run: str, steps: range) -> list[Log]:
    return [(run, step, {"reward": step / 8, "kl": 0.01, "reward_std": 0.2}) for step in steps]


@pytest.mark.parametrize("with_ids", [True, False])
def test_rows_config_and_time(tmp_path: Path, with_ids: bool) -> None:
    path = tmp_path / "project.db"
    database = tables(path, runs_have_ids=with_ids)
    write(database, [*some("a", range(20)), ("a", 20, {"kl": "NaN", "x": "Infinity"})],
          with_ids=with_ids)  # fmt: skip
    values = ("a", json.dumps({"num_generations": 8}), "2026", *(["id-a"] if with_ids else []))
    names = "run_name, config, created_at" + (", run_id" if with_ids else "")
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO configs ({names}) VALUES ({marks})", values)  # noqa: S608 - ours
    database.commit()
    assert log_format_of(path).name == "trackio"
    reader = Trackio(path, RowKeys())
    rows, damage, notes = rows_of(reader)
    assert not damage
    assert not notes
    assert [row.step for row in rows] == list(range(21))
    assert rows[8].values == {"reward": 1.0, "kl": 0.01, "reward_std": 0.2}
    assert rows[0].time == 1767225600
    assert rows[20].values["x"] == float("inf")
    assert reader.config == {"num_generations": 8}


def test_the_newest_of_several_runs_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    write(tables(path), [*some("old", range(5)), *some("new", range(3)), *some("old", range(5, 9))])
    rows, damage, notes = rows_of(Trackio(path, RowKeys()))
    assert not damage
    assert [row.step for row in rows] == [0, 1, 2]
    assert notes == ["project.db has 2 runs; the newest, 'new', was read"]


def test_the_trainers_steps_take_precedence_over_the_loggers(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    write(tables(path), [("a", n, {"train/global_step": 10 * n, "reward": 1}) for n in range(3)])
    rows, _, _ = rows_of(Trackio(path, RowKeys()))
    assert [row.step for row in rows] == [0, 10, 20]


def test_rows_are_followed_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    database = tables(path)
    reader = Trackio(path, RowKeys())
    assert rows_of(reader)[0] == []
    for step in range(5):
        write(database, some("a", range(step, step + 1)))
        rows, damage, _ = rows_of(reader)
        assert not damage
        assert [row.step for row in rows] == [step]
    assert not reader.was_replaced()


def test_a_newer_run_replaces_the_followed_one(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    database = tables(path)
    write(database, some("a", range(1, 6)))
    follower = FrameworkFollower(path)
    steps = [record.step for _ in range(4) for record in follower.poll(final=True).steps]
    assert steps == [1, 2, 3, 4, 5]
    write(database, some("b", range(1, 4)))
    polls = [follower.poll(final=True) for _ in range(8)]
    assert sum(poll.restarted for poll in polls) == 1
    assert [record.step for poll in polls for record in poll.steps] == [1, 2, 3]


def test_an_open_transaction_does_not_block_reading(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    database = tables(path)
    write(database, some("a", range(3)))
    database.execute("BEGIN EXCLUSIVE")
    rows, damage, _ = rows_of(Trackio(path, RowKeys()))
    database.rollback()
    assert not damage
    assert len(rows) in (0, 3)


def test_rows_without_metrics_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    database = tables(path)
    write(database, some("a", range(2)))
    for bad in ("{", "[1]", "nonsense"):
        database.execute(
            "INSERT INTO metrics (timestamp, run_name, run_id, step, metrics) "
            "VALUES ('', 'a', 'id-a', 9, ?)", (bad,)
        )  # fmt: skip
    database.commit()
    rows, damage, _ = rows_of(Trackio(path, RowKeys()))
    assert len(rows) == 2
    assert len(damage) == 3


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE other (x)",
        "CREATE TABLE metrics (id INTEGER, x TEXT)",
        "CREATE VIEW metrics AS WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) "
        "SELECT id, 1 AS step, '' AS timestamp, '{}' AS metrics, 'a' AS run_name FROM c",
    ],
)
def test_other_databases_are_damage_and_end(tmp_path: Path, definition: str) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute(definition)
    database.close()
    rows, damage, _ = rows_of(Trackio(path, RowKeys()))
    assert rows == []
    assert len(damage) == 1
    assert path.stat().st_size > 0


@pytest.mark.skipif(find_spec("trackio") is None, reason="Trackio is not installed")
def test_a_database_of_trackio_itself(tmp_path: Path) -> None:
    script = """
import trackio
for name, reward in (("first", 0.25), ("second", 0.5)):
    trackio.init(project="proj", name=name, config={"num_generations": 8}, embed=False)
    for step in range(1, 6):
        trackio.log({"reward": reward, "reward_std": 0.1, "completion_length": 9.0,
                     "kl": float("nan"), "train/global_step": step})
    trackio.finish()
"""
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, cwd=tmp_path,
                   capture_output=True)  # fmt: skip
    run = open_run(tmp_path)
    steps = list(run.steps)
    assert [record.step for record in steps] == [1, 2, 3, 4, 5]
    assert run.manifest.framework == "trl"
    assert run.manifest.knobs["group_size"] == 8
    assert any("2 runs" in note for note in run.notes)
