"""What the pages Compare and Mismatch show of runs with known differences, in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean
from tests.app.browser_page import SECONDS, Browser
from tests.app.conftest import Server
from tests.report.simulated import KNOBS, readings, record_run

PARTED = 40
"""The step from which one of the two runs loses its reward."""
PEAK_STEP, PEAK = 12, 0.37
PARTS = {
    "position": ("0-15", "16-63", "64-255"),
    "probability": ("0-0.1", "0.1-0.5", "0.5-0.9"),
    "engine": ("tp1-bf16", "tp2-fp8"),
}
"""The parts of the mismatch by kind; the last one of each has the peak."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("known")
    record_run(folder / "steady", 80)
    record_run(folder / "sick", 80, sick_from=PARTED, seed=8, knobs={**KNOBS, "clip_high": 0.28})
    _write_steps(record_run(folder / "parts", 2))
    return folder


def _write_steps(run: Path) -> None:
    """Replace the steps of a run by steps with a mismatch by position, probability and engine."""
    with (run / "steps.jsonl").open("wb") as file:
        for step in range(30):
            parts = {
                f"mismatch/prob_diff_mean/{kind}/{name}": Mean.of_number(
                    PEAK if name == names[-1] and step == PEAK_STEP else 0.01
                )
                for kind, names in PARTS.items()
                for name in names
            }
            file.write(StepRecord(step, {**readings(step, sick_from=None), **parts}).to_line())


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server], folder: Path) -> Server:
    return serve(folder)


def _top(browser: Browser, heading: str) -> float:
    place = browser.page.get_by_role("heading", name=heading, exact=True)
    place.wait_for(timeout=SECONDS)
    box = place.bounding_box()
    assert box is not None
    return float(box["y"])


@pytest.mark.slow
def test_compared_runs_show_settings_first_and_then_where_they_part(
    server: Server, browser: Browser, folder: Path
) -> None:
    runs = ";".join(f"{folder.name}/{name}" for name in ("steady", "sick"))
    browser.open(server.url(runs=runs))
    browser.draws()
    headings = ("Settings that differ", "Verdicts", "Where they diverge", "Charts")
    tops = [_top(browser, heading) for heading in headings]
    assert tops == sorted(tops)
    rows = browser.page.get_by_role("row").all_inner_texts()
    cells = [[cell for cell in re.split(r"\s+", row) if cell] for row in rows]
    assert KNOBS["clip_high"] != 0.28
    assert ["clip_high", str(KNOBS["clip_high"]), "0.28"] in cells
    assert ["seed", "7", "8"] in cells
    said = browser.page.get_by_text("They diverge at step").first.inner_text()
    step = int(re.search(r"They diverge at step (\d+)", said)[1])  # type: ignore[index]
    assert PARTED <= step <= PARTED + 20
    assert re.search(rf"equal up to step ({PARTED - 1}|{PARTED})\b", said)
    marked = browser.page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')]"
        ".flatMap(chart => (chart.layout.shapes || []).map(shape => shape.x0))"
    )
    assert step in marked
    browser.page.get_by_text("By generated tokens", exact=True).click()
    browser.sees("They diverge at token")
    browser.check()


@pytest.mark.slow
def test_the_mismatch_of_each_part_is_a_heat_map_with_its_peak(
    server: Server, browser: Browser, folder: Path
) -> None:
    browser.open(server.page("mismatch", run=f"{folder.name}/parts"))
    for kind, names in PARTS.items():
        browser.sees(f"Highest: {PEAK} in {kind} {names[-1]} at step {PEAK_STEP}.")
    browser.page.locator(".js-plotly-plot .heatmaplayer").nth(len(PARTS) - 1).wait_for(
        timeout=SECONDS
    )
    maps = browser.page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(chart => chart._fullData[0])"
        ".filter(trace => trace.type === 'heatmap').map(trace => [[...trace.y], trace.z.map("
        "row => row.indexOf(Math.max(...row)))])"
    )
    labels = [[f"{kind} {name}" for name in names] for kind, names in PARTS.items()]
    assert [rows for rows, _ in maps] == labels
    assert [peaks[-1] for _, peaks in maps] == [PEAK_STEP] * len(PARTS)
    browser.check()
