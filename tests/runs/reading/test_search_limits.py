"""The search for logs and runs opens and visits a limited number of files, and says so."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from grpodoctor.errors import NoLogError, RunError
from grpodoctor.runs.reading import run_discovery
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.support.files import regular_files

FILES = 40


def write_log(path: Path, shift: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = ("reward", "loss", "entropy", "kl", "grad_norm")
    rows = [{"step": step, **dict.fromkeys(keys, shift + step / 100)} for step in range(30)]
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs, and a tree of files that are no logs."""
    write_log(tmp_path / "a" / "log.jsonl", 0.1)
    write_log(tmp_path / "z" / "log.jsonl", 0.5)
    for number in range(FILES):
        path = tmp_path / "m" / str(number % 4) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0\1")
    return tmp_path


def test_a_folder_without_a_log_is_not_searched_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Counter[Path] = Counter()

    def counted(path: Path, options: ReadOptions) -> object:
        opened[path] += 1
        return open_run(path, options)

    monkeypatch.setattr(run_discovery, "open_run", counted)
    runs = run_discovery.runs_in(folder, ReadOptions())
    assert runs == [folder / "a", folder / "z"]
    assert [path.name for path in opened] == [folder.name, "a", "m", "z"]
    with pytest.raises(NoLogError):
        open_run(folder / "m")


@pytest.mark.parametrize("limit", ["_MOST_OPENED", "_MOST_VISITED"])
def test_the_search_for_runs_stops_at_its_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(run_discovery, limit, 60)
    left: list[Path] = []
    runs = run_discovery.runs_in(folder, ReadOptions(), on_cut_off=left.extend)
    assert (runs, left) == ([folder / "a"], [folder / "m", folder / "z"])


def test_a_search_ends_that_finds_no_run_for_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_discovery, "_MOST_SECONDS", -1)
    left: list[Path] = []
    runs = run_discovery.runs_in(folder, ReadOptions(), on_cut_off=left.extend)
    assert (runs, left) == ([], [folder / name for name in "amz"])
    runs = run_discovery.runs_in(folder / "a", ReadOptions(), on_cut_off=left.extend)
    assert (runs, len(left)) == ([folder / "a"], 3)  # the folder itself is always opened


def test_each_run_gives_the_search_more_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        write_log(folder / f"n{number}" / "log.jsonl", number)
    clock = iter(range(1000))
    monkeypatch.setattr(run_discovery.time, "thread_time", lambda: next(clock))
    left: list[Path] = []
    runs = run_discovery.runs_in(folder, ReadOptions(), on_cut_off=left.extend)
    assert (len(runs), left) == (10, [])
    assert next(clock) > 2 * run_discovery._MOST_SECONDS


def test_the_number_of_runs_in_a_report_is_limited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_discovery, "MOST_RUNS", 1)
    left: list[Path] = []
    runs = run_discovery.runs_in(folder, ReadOptions(), on_cut_off=left.extend)
    assert (runs, left) == ([folder / "a"], [folder / "z"])


def test_the_search_for_logs_says_that_it_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = regular_files.files_below.__defaults__
    assert defaults is not None
    monkeypatch.setattr(regular_files.files_below, "__defaults__", (defaults[0], 5, *defaults[2:]))
    run = open_run(folder / "a")
    assert not any("stopped" in note for note in run.notes)  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="no readable log among the first"):
        open_run(folder / "m")
    write_log(folder / "m" / "0" / "0.jsonl", 0.2)
    monkeypatch.setattr(regular_files.files_below, "__defaults__", (defaults[0], 6, *defaults[2:]))
    run = open_run(folder / "m")
    notes = run.notes  # type: ignore[attr-defined]
    assert sum("the search for logs stopped" in note for note in notes) == 1


def test_a_folder_that_cannot_be_entered_hides_no_run(folder: Path) -> None:
    closed = folder / "b"
    closed.mkdir(mode=0o600)
    (folder / "z" / "run.json").write_text('{"schema_version": 1}')
    try:
        assert run_discovery.has_native_run(folder)
    finally:
        closed.chmod(0o700)
