"""The report in a real browser. Skipped, and said so, where there is none; CI installs one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.report import html
from grpodoctor.report.probe.view import view_of as probe_view
from grpodoctor.report.run.view import view_of
from tests.report import probed

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FIXTURE = Path(__file__).parent.parent / "data" / "run"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def _browse(page: Path, profile: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += [*quiet, f"--user-data-dir={profile}", "--enable-logging=stderr", *extra]
    command += ["--virtual-time-budget=10000", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The report of a sick run after the browser has run its scripts."""
    folder = tmp_path_factory.mktemp("browser")
    page = folder / "report.html"
    page.write_text(html.render(view_of(replay(FIXTURE))), encoding="utf-8")
    return _browse(page, folder / "profile", "--dump-dom")


def test_the_charts_are_drawn(visit: subprocess.CompletedProcess[str]) -> None:
    assert visit.returncode == 0, visit.stderr
    drawn = re.findall(r'<svg class="main-svg"', visit.stdout)
    assert len(drawn) >= 8


def test_nothing_is_refused_or_fails_on_the_page(visit: subprocess.CompletedProcess[str]) -> None:
    complaints = [line for line in visit.stderr.splitlines() if ":CONSOLE" in line]
    assert complaints == []


def test_the_findings_are_on_the_page(visit: subprocess.CompletedProcess[str]) -> None:
    assert "MIS002" in visit.stdout
    assert "engine.old_logprobs=recompute" in visit.stdout


def test_the_report_of_a_probe_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "probe.html"
    page.write_text(html.render(probe_view(probed.result())), encoding="utf-8")
    visit = _browse(page, tmp_path / "profile", "--dump-dom")
    assert visit.returncode == 0, visit.stderr
    assert [line for line in visit.stderr.splitlines() if ":CONSOLE" in line] == []
    # three heat maps, and four charts for each of the four pairs that were measured.
    assert len(re.findall(r'id="chart-\d+" class="js-plotly-plot"', visit.stdout)) == 19
