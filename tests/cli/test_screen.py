import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from grpodoctor.cli.screen import Screen, compose, duration, sparkline
from grpodoctor.monitor.session import Session
from tests.report.simulated import HOSTILE, record_run


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "sick"
    session = Session(record_run(path, 80, sick_from=30, model=HOSTILE), apply="safe")
    session.read_all()
    return session.snapshot()


@pytest.mark.parametrize("width", [20, 40, 80, 109, 110, 200, 400])
@pytest.mark.parametrize("height", [1, 3, 8, 12, 24, 40, 100])
def test_the_screen_fits_any_terminal(snapshot, width, height):
    lines = compose(snapshot, width, height, "a hint")
    assert len(lines) <= height
    assert max(line.cell_len for line in lines) <= width


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_an_ordinary_terminal_shows_all_sections(snapshot, width, height):
    shown = "\n".join(line.plain for line in compose(snapshot, width, height, "a hint"))
    for word in ("loud", "step 79", "entropy"):
        assert word in shown
    for title in ("Vitals", "Findings", "Treatment", "Skipped"):
        assert f"{title} ─" in shown
    gravest = snapshot.findings[0]
    assert f"{gravest.code} {gravest.name}"[:24] in shown
    assert f"since step {gravest.onset_step}" in shown
    assert shown.splitlines()[-1] == "a hint"
    assert "▁" in shown


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_verdict_stands_above_everything_that_explains_it(snapshot, width, height):
    lines = [line.plain.strip() for line in compose(snapshot, width, height)]
    assert lines[2].startswith(f"Sick since step {snapshot.verdict.since}: ")
    assert " ".join(lines[2:6]).startswith(snapshot.verdict.line[:100])


def test_a_high_terminal_names_every_finding(snapshot):
    shown = "\n".join(line.plain for line in compose(snapshot, 160, 60))
    assert all(finding.code in shown for finding in snapshot.findings)
    assert "more" not in shown.split("Findings")[1].split("Treatment")[0]


def test_hidden_lines_are_counted(snapshot):
    shown = "\n".join(line.plain for line in compose(snapshot, 80, 16))
    listed = sum(finding.code in shown for finding in snapshot.findings)
    assert f"and {len(snapshot.findings) - listed} more" in shown


def test_hostile_text_is_escaped(snapshot):
    console = Console(width=100, height=30, record=True, force_terminal=True)
    with console.capture() as capture:
        console.print(Screen(snapshot))
    without_styles = re.sub(r"\x1b\[[0-9;]*m", "", capture.get())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", without_styles)
    assert "[bold red]" in without_styles


def test_without_colour_the_whole_screen_is_plain(snapshot):
    console = Console(width=80, record=True, color_system=None)
    with console.capture() as capture:
        console.print(Screen(snapshot, whole=True))
    shown = capture.get()
    assert "\x1b" not in shown
    assert all(finding.code in shown for finding in snapshot.findings)
    assert all(vital.label in shown for vital in snapshot.vitals)


def test_states_look_different(snapshot):
    def state(**changes):
        return compose(replace(snapshot, **changes), 80, 24)[0].plain.split()[-3]

    assert state(finished=True) == "finished"
    assert state(finished=False, age=0.2) == "live"
    assert "no new steps" in compose(replace(snapshot, finished=False, age=900.0), 80, 24)[0].plain
    waiting = Session(Path("/nonexistent/run")).snapshot()
    assert compose(waiting, 80, 24)[0].plain.endswith("waiting")


def test_a_sparkline_starts_at_the_baseline():
    assert sparkline([0.0, 1.0], 10) == "▁█"
    assert sparkline([1.0] * 3, 10, start=10.0) == "▁▁▁"
    assert sparkline([10.0, math.nan, math.inf], 10, start=1.0) == "█!!"
    assert set(sparkline([1.0, 1.001, 0.999], 10)) <= set("▄▅")
    assert sparkline([0.0, 0.0], 10) == "▁▁"
    assert sparkline([1, 2, 3, 4], 2) == sparkline([3, 4], 2)
    assert sparkline([1, 2], 0) == ""


def test_durations_have_their_unit():
    assert [duration(each) for each in (-1, 5, 150, 8000, 200_000)] == [
        "0 s",
        "5 s",
        "2 min",
        "2 h",
        "2 d",
    ]
