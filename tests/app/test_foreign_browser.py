"""Logs of every framework and in every file format, in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.report.dashboard.comparison_figure import MOST_RUNS
from grpodoctor.runs.log_formats.registry import all_log_formats
from tests.app.browser_page import SECONDS, Browser
from tests.app.conftest import Server
from tests.frameworks.courses import MISMATCHED
from tests.frameworks.generated_logs import WRITERS
from tests.runs.log_formats.sound_logs import SOUND

NAMES = {
    "jsonl": "metrics.jsonl", "json": "history.json", "trainer_state": "trainer_state.json",
    "notebook": "train.ipynb", "csv": "progress.csv", "console": "train.log",
    "tensorboard": "events.out.tfevents.1.host", "wandb": "run-1.wandb", "trackio": "project.db",
    "mlflow": "metrics/reward", "parquet": "history.parquet", "kaggle": "kernel.log",
}  # fmt: skip
"""A file of each format, as its program names it."""

FRAMEWORKS = {re.sub(r"\W+", "-", name): write for name, (_, write) in WRITERS.items()}
RUNS = [*FRAMEWORKS, *(f"format-{name}" for name in SOUND)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each framework and of each file format, by a name without spaces."""
    folder = tmp_path_factory.mktemp("foreign")
    paths = {}
    for name, write in FRAMEWORKS.items():
        paths[name] = folder / name
        paths[name].mkdir()
        write(MISMATCHED, paths[name])
    for name, content in SOUND.items():
        path = folder / f"format-{name}" / NAMES[name]
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        if name == "mlflow":  # its folder is recognized by this file
            (folder / f"format-{name}" / "meta.yaml").write_text("run_id: a1\n")
        paths[f"format-{name}"] = folder / f"format-{name}"
    return paths


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server], runs: dict[str, Path]) -> Server:
    return serve(*runs.values())


def test_every_format_has_a_log() -> None:
    assert {each.name for each in all_log_formats()} == set(SOUND)


@pytest.mark.slow  # `test_browser` opens one log of TRL
@pytest.mark.parametrize("name", RUNS)
def test_every_log_opens_and_sick_ones_have_remedies(
    server: Server, browser: Browser, name: str
) -> None:
    browser.open(server.url(run=name))
    browser.sees(re.compile(r"\d+ rules? ran"))
    browser.draws()
    browser.check()
    if not name.startswith("format-"):  # long enough for a diagnosis
        browser.go("Finding")
        browser.page.get_by_role("heading", name="Remedies").wait_for(timeout=SECONDS)
        browser.page.get_by_test_id("stCode").first.wait_for(timeout=SECONDS)
        browser.check()


@pytest.mark.slow
def test_logs_of_different_frameworks_are_compared(
    server: Server, browser: Browser, runs: dict[str, Path]
) -> None:
    names = list(runs)
    for chosen in (names[:MOST_RUNS], names[-MOST_RUNS:]):
        browser.open(server.url(runs=";".join(chosen)))
        browser.page.get_by_role("heading", name="Where they diverge").wait_for(timeout=SECONDS)
        browser.draws()
        browser.check()
