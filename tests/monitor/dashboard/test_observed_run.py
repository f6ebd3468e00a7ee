"""A run under observation: growing, vanishing, restarting, unreadable."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_urlsafe

import orjson
import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.dashboard.observed_run import ObservedRun, RunView
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from tests.report.simulated import record_run


@pytest.fixture
def settings(tmp_path: Path) -> DashboardSettings:
    return DashboardSettings(token=token_urlsafe(), paths=(tmp_path,))


def _refreshed(run: ObservedRun, is_ready: Callable[[RunView], bool]) -> RunView:
    deadline = time.monotonic() + 30
    while not is_ready(run.refresh(0.5)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert is_ready(run.view), run.view
    return run.view


def _last_step(view: RunView) -> int | None:
    return view.data.report.run.last_step if view.data else None


def test_new_steps_appear_and_earlier_snapshots_stay(
    tmp_path: Path, settings: DashboardSettings
) -> None:
    path = record_run(tmp_path / "run", 30, finished=False)
    run = ObservedRun("run", path, settings)
    before = _refreshed(run, lambda view: _last_step(view) == 29)
    assert before.state == "live"
    longer = record_run(tmp_path / "longer", 40)
    with (path / "steps.jsonl").open("ab") as file:
        file.writelines((longer / "steps.jsonl").read_bytes().splitlines(keepends=True)[30:])
    after = _refreshed(run, lambda view: _last_step(view) == 39)
    assert after.revision > before.revision
    assert _last_step(before) == 29
    assert before.data is not None
    assert before.data.series.points("reward/mean")[-1].step == 29


def test_a_run_that_vanishes_keeps_its_data(tmp_path: Path, settings: DashboardSettings) -> None:
    path = record_run(tmp_path / "run", 30)
    run = ObservedRun("run", path, settings)
    _refreshed(run, lambda view: view.state == "finished")
    shutil.rmtree(path)
    view = _refreshed(run, lambda view: view.state == "gone")
    assert _last_step(view) == 29
    record_run(path, 12, run_id="second")
    _refreshed(run, lambda view: _last_step(view) == 11)


def test_a_run_that_restarts_replaces_the_first(
    tmp_path: Path, settings: DashboardSettings
) -> None:
    path = record_run(tmp_path / "run", 30)
    run = ObservedRun("run", path, settings)
    _refreshed(run, lambda view: _last_step(view) == 29)
    second = record_run(tmp_path / "second", 12, run_id="second")
    for name in ("run.json", "events.jsonl", "steps.jsonl"):
        shutil.copy(second / name, path / name)
    view = _refreshed(run, lambda view: _last_step(view) == 11)
    assert view.means.series["reward/mean"].steps[-1] == 11


def test_a_schema_of_the_future_is_one_clear_line(
    tmp_path: Path, settings: DashboardSettings
) -> None:
    path = record_run(tmp_path / "run", 12)
    manifest = orjson.loads((path / "run.json").read_bytes())
    (path / "run.json").write_bytes(orjson.dumps({**manifest, "schema_version": 99}))
    view = _refreshed(ObservedRun("run", path, settings), lambda view: view.state == "unreadable")
    assert "newer grpodoctor" in view.message
    assert "upgrade" in view.message


def test_a_run_without_steps_waits(tmp_path: Path, settings: DashboardSettings) -> None:
    path = tmp_path / "run"
    path.mkdir()
    view = _refreshed(ObservedRun("run", path, settings), lambda view: view.state == "waiting")
    assert view.data is None


def test_reading_writes_nothing(tmp_path: Path, settings: DashboardSettings) -> None:
    path = record_run(tmp_path / "run", 12, finished=False)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    _refreshed(ObservedRun("run", path, settings), lambda view: view.data is not None)
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def _treatable(tmp_path: Path, *, allowed: bool) -> ObservedRun:
    path = record_run(tmp_path / "run", 60, sick_from=30, finished=False)
    settings = DashboardSettings(token=token_urlsafe(), paths=(tmp_path,), allow_treatment=allowed)
    return ObservedRun("run", path, settings)


def test_a_proposed_treatment_is_sent_once_a_reader_approves_it(tmp_path: Path) -> None:
    run = _treatable(tmp_path, allowed=True)
    view = _refreshed(run, lambda view: view.proposal is not None)
    assert view.proposal is not None
    assert not _requests(run.path, "apply")
    run.approve(view.proposal.id)
    (request,) = _requests(run.path, "apply")
    assert request["remedy"] == view.proposal.remedy
    assert request["changes"] == dict(view.proposal.changes)
    assert run.view.proposal is None or run.view.proposal.id != view.proposal.id
    with pytest.raises(ConfigError, match="no longer proposed"):
        run.approve("another")


def test_a_declined_treatment_is_not_sent(tmp_path: Path) -> None:
    run = _treatable(tmp_path, allowed=True)
    view = _refreshed(run, lambda view: view.proposal is not None)
    assert view.proposal is not None
    run.decline(view.proposal.id)
    assert run.view.proposal is None
    assert not _requests(run.path, "apply")


def test_a_dashboard_that_may_not_treat_sends_nothing(tmp_path: Path) -> None:
    run = _treatable(tmp_path, allowed=False)
    view = _refreshed(run, lambda view: view.data is not None)
    assert view.proposal is None
    with pytest.raises(ConfigError, match="--allow-treatment"):
        run.approve("1")
    assert not (run.path / "mailbox").exists()


def _requests(path: Path, kind: str) -> list[dict[str, object]]:
    found = [orjson.loads(file.read_bytes()) for file in sorted(path.glob("mailbox/*.json"))]
    return [request for request in found if request["kind"] == kind]
