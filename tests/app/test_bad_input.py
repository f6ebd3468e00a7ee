"""Runs that vanish, restart, come from the future or are many: the rest of a page keeps working."""

import json
import shutil
from pathlib import Path

import pytest

from tests.app.page_script import drawn_until, page_test, text_of
from tests.report.simulated import record_run
from tests.samples import sampled

_CONTENT = {
    "overview": "**Reward**: Training",
    "finding": "What it sees",
    "rollouts": "24 responses",
    "mismatch": "Over the run",
    "treatment": "not been treated",
}
"""What a page says about a run of 41 steps, whether or not the run is still on disk."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return record_run(tmp_path / "run", 41, sick_from=15)


@pytest.mark.parametrize("page", sampled(_CONTENT, 3))
def test_a_page_keeps_what_it_read_of_a_run_that_vanishes(run: Path, page: str) -> None:
    test = drawn_until(page_test(page, run.parent, run=f"{run.parent.name}/run"), "step 40")
    drawn_until(test, _CONTENT[page])
    shutil.rmtree(run)
    drawn_until(test, "the files have vanished")
    assert not test.exception
    kept = "The files with the responses have vanished" if page == "rollouts" else _CONTENT[page]
    assert kept in text_of(test)


@pytest.mark.slow
def test_a_page_follows_a_run_that_restarts(run: Path, tmp_path: Path) -> None:
    test = drawn_until(page_test("overview", run), "step 40")
    second = record_run(tmp_path / "second", 12, run_id="second")
    for name in ("run.json", "events.jsonl", "steps.jsonl"):
        shutil.copy(second / name, run / name)
    drawn_until(test, "step 11")
    assert not test.exception
    assert not test.error


def test_a_run_of_the_future_is_one_line_and_the_others_are_listed(run: Path) -> None:
    future = record_run(run.parent / "future", 12)
    manifest = json.loads((future / "run.json").read_text())
    (future / "run.json").write_text(json.dumps({**manifest, "schema_version": 99}))
    folder = run.parent
    test = drawn_until(page_test("runs", folder), "**2 runs**")
    assert set(test.dataframe[0].value["Verdict"]) == {"✖ sick", "⚠ unreadable"}
    test = drawn_until(page_test("overview", folder, run=f"{folder.name}/future"), "upgrade")
    assert not test.exception
    assert len(test.error) == 1


def test_a_folder_of_two_hundred_runs_lists_all_of_them(tmp_path: Path) -> None:
    for number in range(200):
        record_run(tmp_path / f"run-{number:03}", 12)
    test = drawn_until(page_test("runs", tmp_path), "**200 runs")
    assert not test.exception
    assert len(test.dataframe[0].value) == 200
