"""The plotly.js of a report contains only the kinds of charts that the page draws."""

import re
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.report import html
from grpodoctor.report.plotly_bundle import TESTED, bundle_for
from grpodoctor.report.run.view import view_of
from tests.report.packed import unpacked

FIXTURE = Path(__file__).parent.parent / "data" / "run"


@pytest.fixture(scope="module")
def library() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def trace_types(bundle: str) -> set[str]:
    return set(re.findall(r'moduleType:"trace",name:"(\w+)"', bundle))


def test_a_bundle_has_the_wanted_charts_and_what_they_build_on(library: str) -> None:
    bundle = bundle_for(library, frozenset({"heatmap", "scatter"}))
    assert {"heatmap", "scatter"} <= trace_types(bundle) < trace_types(library)
    assert not trace_types(bundle) & {"scatter3d", "scattermap", "choropleth", "sankey"}
    assert len(bundle) < len(library) / 3


def test_a_bundle_grows_with_the_kinds_of_charts(library: str) -> None:
    lines = bundle_for(library, frozenset({"scatter"}))
    more = bundle_for(library, frozenset({"scatter", "parcoords"}))
    assert trace_types(more) >= trace_types(lines) | {"parcoords"}
    assert "parcoords" not in trace_types(lines)


def test_the_licenses_stay(library: str) -> None:
    bundle = bundle_for(library, frozenset({"scatter"}))
    notes = [line for line in library.splitlines() if "icense" in line and len(line) < 200]
    assert len(notes) > 5
    assert all(line in bundle for line in notes)


def test_a_kind_of_chart_that_the_bundle_lacks_keeps_it_whole(library: str) -> None:
    assert bundle_for(library, frozenset({"hologram"})) is library


def test_the_installed_version_was_tested_and_another_is_kept_whole(library: str) -> None:
    version = re.search(r"plotly\.js v([\d.]+)", library)
    assert version is not None
    assert version[1] in TESTED, "look at a report in a browser, then add the version"
    newer = library.replace(version[0], "plotly.js v99.0.0", 1)
    assert bundle_for(newer, frozenset({"scatter"})) is newer


@pytest.mark.parametrize(
    "library",
    [
        "",
        "plotly.js v3.7.0 var Plotly = {};",
        "plotly.js v3.7.0 var w=(e,t)=>()=>(t||e((t={exports:{}}).exports,t),t);",
    ],
)
def test_a_bundle_of_another_form_is_kept_whole(library: str) -> None:
    assert bundle_for(library, frozenset({"scatter"})) == library


def test_a_report_contains_the_charts_that_it_draws() -> None:
    page = html.render(view_of(replay(FIXTURE)))
    assert len(page.encode()) < 1_000_000
    assert not trace_types(unpacked(page, "packed-library")) & {"scatter3d", "heatmap", "bar"}
