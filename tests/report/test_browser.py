"""The HTML report in a real browser, offline. Skipped without Chromium; CI installs one."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.monitor.chart_specs import CHARTED_METRICS
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report import html
from grpodoctor.report.probe.view import view_of as probe_view
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean
from tests.report import probed
from tests.report.simulated import HOSTILE, record_run

FIXTURE = Path(__file__).parent.parent / "data" / "run"


class Visit:
    """A page that a browser opened without a network."""

    def __init__(self, chromium: Any, path: Path, **options: Any) -> None:
        settings = {"viewport": {"width": 1280, "height": 900}, "offline": True, **options}
        self.context = chromium.new_context(**settings)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.path = path

    def open(self) -> "Visit":
        """Load the page and wait until its charts are drawn."""
        self.page.goto(self.path.as_uri())
        note = self.page.locator(".chart-note").first
        note.wait_for(state="detached", timeout=60_000)
        return self

    def ranges(self) -> list[tuple[float, float]]:
        """The step axis of each chart."""
        script = """[...document.querySelectorAll(".chart")].map(e => e.layout.xaxis.range)"""
        return [tuple(each) for each in self.page.evaluate(script)]

    def drawn_charts(self) -> int:
        """Number of charts that plotly has drawn."""
        return self.page.locator(".chart.js-plotly-plot > .plot-container .main-svg").count() // 3


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html.render(view_of(replay(FIXTURE))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def visit(chromium: Any, report: Path) -> Visit:
    return Visit(chromium, report).open()


def test_every_chart_is_drawn_and_nothing_is_loaded_or_fails(visit: Visit) -> None:
    assert visit.drawn_charts() == visit.page.locator("figure").count() >= 10
    assert visit.complaints == []
    assert visit.requests == [visit.path.as_uri()]


def test_the_findings_on_the_page_are_those_of_the_json(visit: Visit) -> None:
    findings = replay(FIXTURE).report.to_json()["findings"]
    anchors = visit.page.locator("article.finding").evaluate_all("all => all.map(e => e.id)")
    assert anchors == [f"finding-{each['code']}-{each['onset_step']}" for each in findings]
    for finding, anchor in zip(findings, anchors, strict=True):
        card = visit.page.locator(f"#{anchor}").inner_text()
        assert finding["summary"] in card
        assert all(remedy["id"] in card for remedy in finding["remedies"] if remedy["spelling"])


def test_the_first_chart_comes_before_the_findings_and_the_others_after(visit: Visit) -> None:
    first_chart, second_chart = (
        visit.page.locator("figure").nth(number).bounding_box() for number in (0, 1)
    )
    findings = visit.page.locator("article.finding")
    last_finding = findings.last.bounding_box()
    assert first_chart["y"] + first_chart["height"] < findings.first.bounding_box()["y"]
    assert second_chart["y"] > last_finding["y"] + last_finding["height"]


def test_a_narrow_window_cuts_no_setting_and_does_not_scroll_sideways(
    chromium: Any, report: Path
) -> None:
    page = Visit(chromium, report, viewport={"width": 400, "height": 900}).open().page
    settings = page.locator(".advice pre, header pre")
    assert settings.count()
    assert settings.evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
    page.locator("li").last.evaluate("e => e.append(' set actor_rollout_ref.' + 'x'.repeat(60))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


_BROKEN_WORDS = """() => {
  const broken = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const element = node.parentElement;
    if (element.closest("script,svg,.chart,article.sample") || !element.checkVisibility()) continue;
    for (const match of node.data.matchAll(/[A-Za-z]{2,24}/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      if (range.getClientRects().length > 1) broken.push(match[0]);
    }
  }
  return broken;
}"""


@pytest.mark.parametrize("width", [400, 1280])
def test_no_word_is_broken_over_two_lines(chromium: Any, report: Path, width: int) -> None:
    page = Visit(chromium, report, viewport={"width": width, "height": 900}).open().page
    assert page.locator("code").count() > 10
    assert page.evaluate(_BROKEN_WORDS) == []


def test_zooming_one_chart_zooms_all(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report).open()
    before = visit.ranges()
    plot = visit.page.locator(".chart .nsewdrag").nth(2)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    middle = box["y"] + box["height"] / 2
    visit.page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=8)
    visit.page.mouse.up()
    visit.page.wait_for_timeout(500)
    zoomed = visit.ranges()
    assert zoomed != before
    assert max(math.dist(each, zoomed[0]) for each in zoomed) < 1e-9
    visit.page.mouse.dblclick(box["x"] + 20, middle)
    visit.page.wait_for_timeout(500)
    assert visit.ranges() == before


def test_charts_can_be_moved_with_the_keyboard(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report).open()
    before = visit.ranges()
    visit.page.locator(".chart").first.focus()
    for key in ("+", "ArrowRight"):
        visit.page.keyboard.press(key)
    visit.page.wait_for_timeout(300)
    (low, high), *others = visit.ranges()
    assert high - low == pytest.approx((before[0][1] - before[0][0]) / 2)
    assert low > before[0][0] + (before[0][1] - before[0][0]) / 4
    assert set(others) == {(low, high)}
    visit.page.keyboard.press("0")
    visit.page.wait_for_timeout(300)
    assert visit.ranges() == before


def test_the_page_fits_800_pixels_and_paper(chromium: Any, report: Path) -> None:
    visit = Visit(chromium, report, viewport={"width": 800, "height": 900}).open()
    width = "document.documentElement.scrollWidth"
    assert visit.page.evaluate(width) == 800
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate(width) == 800
    assert visit.page.pdf()[:5] == b"%PDF-"
    assert visit.complaints == []


@pytest.mark.parametrize("how", ["no scripts", "an old browser"])
def test_without_charts_the_page_says_so_and_has_their_content(
    chromium: Any, report: Path, how: str
) -> None:
    visit = Visit(chromium, report, java_script_enabled=how != "no scripts")
    visit.page.add_init_script("delete window.DecompressionStream")
    visit.page.goto(report.as_uri())
    note = visit.page.get_by_text("The charts need JavaScript and a browser from 2023 or later.")
    note = note.first  # each group of charts has one
    note.wait_for(state="visible", timeout=10_000)
    visit.page.locator("summary").first.click()
    assert "lowest" in visit.page.locator("details p").first.inner_text()
    visit.page.emulate_media(media="print")
    words = visit.page.locator("details p")
    assert all(words.nth(number).is_visible() for number in range(words.count()))
    assert visit.complaints == []


def test_the_report_of_a_probe_is_drawn(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "probe.html"
    path.write_text(html.render(probe_view(probed.result())), encoding="utf-8")
    visit = Visit(chromium, path).open()
    assert visit.complaints == []
    # three heat maps, and four charts for each of the four pairs that were measured.
    assert visit.page.locator(".chart.js-plotly-plot").count() == 19


def test_text_of_a_log_runs_nothing(chromium: Any, tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", 40, sick_from=15, text=HOSTILE, model=HOSTILE)
    path = tmp_path / "hostile.html"
    path.write_text(html.render(view_of(replay(run))), encoding="utf-8")
    visit = Visit(chromium, path)
    dialogs: list[str] = []
    visit.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    visit.open()
    assert (dialogs, visit.complaints) == ([], [])
    assert visit.requests == [path.as_uri()]


def long_run(steps: int) -> ReportData:
    """A run that logs all charted metrics, with noise that does not compress."""
    rng = np.random.default_rng(0)
    series = SeriesByMetric(CHARTED_METRICS)
    for step in range(steps):
        noise = rng.lognormal(size=len(CHARTED_METRICS))
        values = {
            metric: Mean.of_number(float(value))
            for metric, value in zip(CHARTED_METRICS, noise, strict=True)
        }
        series.observe(StepRecord(step, values))
    return ReportData(Report(RunFacts("run", "verl", steps=steps)), series=series)


def test_the_page_stays_small() -> None:
    page = html.render(view_of(long_run(10_000)))
    assert len(page.encode()) < 1.5e6
