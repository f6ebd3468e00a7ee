"""The table of runs: keys, examination on change, and paths outside the command line."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_urlsafe

import pytest

from grpodoctor.monitor.dashboard.run_files import names_of
from grpodoctor.monitor.dashboard.run_summary import summarize
from grpodoctor.monitor.dashboard.run_table import RunRow, RunTable
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.monitor.replay import replay
from grpodoctor.probe.results.results_json import write_result
from tests.report import probed
from tests.report.simulated import record_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    record_run(folder / "sick", 80, sick_from=40)
    record_run(folder / "healthy", 80)
    (folder / "notes.txt").write_text("no run")
    return folder


def _table(*paths: Path) -> RunTable:
    return RunTable(DashboardSettings(token=token_urlsafe(), paths=paths))


def _rows_when(table: RunTable, is_ready: Callable[[dict[str, RunRow]], bool]) -> dict[str, RunRow]:
    deadline = time.monotonic() + 90
    rows: dict[str, RunRow] = {}
    while time.monotonic() < deadline:
        rows = {row.key: row for row in table.refresh(1.0)}
        if table.is_searched and is_ready(rows):
            return rows
        time.sleep(0.2)
    raise AssertionError(rows)


def _all_examined(rows: dict[str, RunRow]) -> bool:
    return bool(rows) and all(row.summary for row in rows.values())


def test_a_folder_is_searched_and_its_runs_are_examined(folder: Path) -> None:
    rows = _rows_when(_table(folder), _all_examined)
    assert set(rows) == {f"{folder.name}/sick", f"{folder.name}/healthy"}
    sick = rows[f"{folder.name}/sick"].summary
    assert sick is not None
    assert sick.verdict == "sick"
    cause = replay(folder / "sick").report.diagnosis.problems[0].cause
    assert sick.finding == f"{cause.code} {cause.name}"
    assert sick.cost.split()[0].isdigit()
    assert 20 <= len(sick.sparkline) <= 60


@pytest.mark.slow
def test_only_a_run_that_changed_is_examined_again(folder: Path, tmp_path: Path) -> None:
    path = record_run(tmp_path / "run", 30)
    table = _table(path)
    first = _rows_when(table, _all_examined)["run"]
    assert _rows_when(table, _all_examined)["run"] is first
    longer = record_run(tmp_path / "longer", 40)
    with (path / "steps.jsonl").open("ab") as file:
        file.writelines((longer / "steps.jsonl").read_bytes().splitlines(keepends=True)[30:])
    later = _rows_when(table, lambda rows: (rows["run"].summary or first.summary).last_step == 39)
    assert later["run"].summary is not None


def test_a_run_that_cannot_be_read_has_a_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"\x00\xff not a log\n" * 10)
    (row,) = _rows_when(_table(tmp_path / "log.jsonl"), _all_examined).values()
    assert row.summary is not None
    assert row.summary.verdict == "unreadable"
    assert row.summary.sentence


def test_a_key_from_an_address_reaches_no_other_path(folder: Path) -> None:
    table = _table(folder / "sick")
    assert table.path_of("sick") == folder / "sick"
    for key in ("healthy", "../healthy", "sick/../healthy", "/etc", str(folder / "healthy"), "",
                "sick/\0", "sick/" + "x" * 5000):  # fmt: skip
        assert table.path_of(key) is None


def test_runs_of_several_folders_have_short_names(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / folder.name
    other.mkdir()
    log = shutil.copytree(folder / "sick", other / "sick") / "steps.jsonl"
    table = _table(folder, other, folder / "healthy")
    rows = _rows_when(table, lambda rows: len(rows) == 3)
    both = {f"{root.parent.name}/{root.name}/sick" for root in (folder, other)}
    assert set(rows) == {*both, f"{folder.parent.name}/{folder.name}/healthy"}
    assert all(table.path_of(key) == row.path for key, row in rows.items())
    assert _table(folder, other, folder / "healthy").path_of("healthy") == folder / "healthy"
    assert names_of([log, log, Path("/sick/steps.jsonl"), Path("/runs")]) == {
        log: f"{other.name}/sick/steps.jsonl",
        Path("/sick/steps.jsonl"): "/sick/steps.jsonl",
        Path("/runs"): "runs",
    }


def test_a_probe_report_is_no_run(tmp_path: Path) -> None:
    write_result(probed.result(), tmp_path / "probe.json")
    for path in (tmp_path, tmp_path / "probe.json"):
        table = _table(path)
        assert not _rows_when(table, lambda rows: not rows)


def test_the_process_ends_with_its_table(folder: Path) -> None:
    table = _table(folder)
    _rows_when(table, _all_examined)
    process = table._worker._process
    assert process is not None
    table._worker.close()
    assert process.poll() is not None


def test_a_run_of_a_log_with_several_is_chosen(tmp_path: Path) -> None:
    log = tmp_path / "chart.csv"
    rows = [f"{step},{0.2 + step / 100},{0.9 - step / 100}" for step in range(40)]
    log.write_text("\n".join(["Step,up - train/reward,down - train/reward", *rows]))
    settings = DashboardSettings(token=token_urlsafe(), paths=(log,))
    assert "--where run=down" in summarize(log, settings).sentence
    chosen = settings.model_copy(update={"where": {"run": "down"}})
    assert summarize(log, chosen).verdict == "sick"
