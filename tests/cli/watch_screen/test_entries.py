"""The lines that the screen and `watch --once` share: any width, any text."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from grpodoctor.cli.watch_screen.entries import (
    Heading,
    VerdictLines,
    fitted,
    no_findings,
    plot,
    sparkline,
    vital_lines,
)
from grpodoctor.cli.watch_screen.page_content import first_action
from grpodoctor.cli.watch_screen.text_screen import TextScreen
from grpodoctor.monitor.session import Session
from grpodoctor.monitor.vitals import Vital
from grpodoctor.report.run.finding_view import first_steps
from grpodoctor.support.numbers import duration
from tests.report.simulated import HOSTILE, record_run


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "sick"
    session = Session(record_run(path, 80, sick_from=30, model=HOSTILE), apply="safe")
    session.read_all()
    return session.snapshot()


def lines(renderable, width=80):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [20, 40, 80, 110, 200, 400])
def test_the_text_fits_any_width_and_leaves_no_finding_out(snapshot, width):
    shown = lines(TextScreen(snapshot), width)
    assert max(map(len, shown)) <= width
    assert not any("\x1b" in line for line in shown)
    if width >= 80:
        text = "\n".join(shown)
        assert all(finding.code in text for finding in snapshot.findings)
        assert all(vital.label in text for vital in snapshot.vitals)
        assert f"{len(snapshot.skipped)} without data, {snapshot.not_applicable} not app" in text
        assert "needs " not in text.partition("Skipped ─")[2]  # `check --verbose` lists the rules
        assert "--verbose" in text
        for title in ("Findings", "Vitals", "Treatment", "Skipped"):
            assert f"{title} ─" in text


def test_the_verdict_stands_above_everything_that_explains_it(snapshot):
    shown = lines(TextScreen(snapshot))
    assert shown[2].startswith(f"Sick since step {snapshot.verdict.since} (")
    assert " ".join(line.strip() for line in shown[2:7]).startswith(snapshot.verdict.line[:100])


def test_a_verdict_that_is_cut_says_so(snapshot):
    assert lines(VerdictLines(snapshot, 1))[0].endswith(" …")
    assert lines(VerdictLines(snapshot, 40))[-1].endswith(snapshot.verdict.line[-12:])


def test_a_part_of_a_run_gets_no_verdict(snapshot):
    assert lines(VerdictLines(snapshot, 3, has_backlog=True)) == [
        "Reading the steps that exist; the verdict follows."
    ]


def test_hostile_text_is_escaped(snapshot):
    console = Console(width=100, height=30, record=True, force_terminal=True)
    with console.capture() as capture:
        console.print(TextScreen(snapshot))
    without_styles = re.sub(r"\x1b\[[0-9;]*m", "", capture.get())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", without_styles)
    assert "[bold red]" in without_styles


def test_states_look_different(snapshot):
    def first(has_backlog=False, is_paused=False, **changes):
        return lines(Heading(replace(snapshot, **changes), has_backlog, is_paused))[0]

    assert first(finished=True).endswith("finished  step 79")
    assert first(finished=False, age=0.2).endswith("live  step 79")
    assert first(finished=False, age=0.2, is_paused=True).endswith("live  paused  step 79")
    assert first(finished=False, age=900.0).endswith("no new steps  step 79")
    assert first(finished=False, age=900.0, has_backlog=True).endswith(
        "reading older steps  step 79"
    )
    waiting = Session(Path("/nonexistent/run")).snapshot()
    assert lines(Heading(waiting))[0].endswith("waiting")


def test_a_sparkline_starts_at_the_baseline():
    assert sparkline([0.0, 1.0], 10) == "▁█"
    assert sparkline([1.0] * 3, 10, start=10.0) == "▁▁▁"
    assert sparkline([10.0, math.nan, math.inf], 10, start=1.0) == "█!!"
    assert set(sparkline([1.0, 1.001, 0.999], 10)) <= set("▄▅")
    assert sparkline([0.0, 0.0], 10) == "▁▁"
    assert sparkline([1, 2, 3, 4], 2) == sparkline([3, 4], 2)
    assert sparkline([1, 2], 0) == ""


def test_values_are_spread_over_the_columns():
    assert fitted([1, 2, 3, 4], 2) == [1.5, 3.5]
    assert fitted([1, 2, 3], 3) == [1, 2, 3]
    assert fitted([1, 2], 5) == [1, 1, 1, 2, 2]
    assert math.isnan(fitted([1, math.nan, 3, 4], 2)[0])
    assert fitted([], 3) == fitted([1], 0) == []


def test_sparklines_cover_the_whole_run_in_columns_of_the_same_steps():
    def vital(course):
        return Vital("reward", "reward/mean", course[-5:], course[-1], course[0], "up", "", None,
                     course)  # fmt: skip

    rare, often = vital((0.0, 1.0)), vital(tuple(step / 199 for step in range(200)))
    first, second = (lines(line)[0] for line in vital_lines([rare, often]))
    drawn = [re.search("[▁-█]+", line)[0] for line in (first, second)]
    assert len(drawn[0]) == len(drawn[1]) == 80 - 21 - 2 * 10 - 2
    assert set(drawn[0][:19]) == {"▁"}
    assert set(drawn[0][20:]) == {"█"}
    assert drawn[1][0] == "▁"
    assert drawn[1][-1] == "█"
    assert "▄" in drawn[1][15:25]


def test_the_steps_of_the_sparklines_are_named(snapshot):
    (title,) = (line for line in lines(TextScreen(snapshot)) if line.startswith("Vitals"))
    assert re.fullmatch("Vitals ─+ steps 0 to 79  +now +start", title.rstrip())


def test_a_plot_has_a_column_per_reading():
    assert plot([0.0, 1.0], 10, 2) == [" █", "▁█"]
    assert plot([1.0, math.nan], 10, 2, start=0.0) == ["█!", "█!"]
    assert plot([1, 2, 3, 4], 2, 3) == plot([3, 4], 2, 3)
    assert plot([0.0, 0.0], 5, 2) == ["  ", "  "]
    assert plot([], 5, 2) == ["", ""]


def test_durations_have_their_unit():
    assert [duration(each) for each in (-1, 5, 150, 8000, 200_000)] == [
        "0 s",
        "5 s",
        "2 min",
        "2 h",
        "2 d",
    ]


@pytest.mark.slow
def test_every_manual_page_keeps_its_words_and_fills_the_width():
    from grpodoctor.cli.rule_page import page_text
    from grpodoctor.cli.watch_screen.page_content import manual
    from grpodoctor.rules.catalogue import all_rules

    widths = []
    for rule in all_rules():
        page = page_text(rule)
        shown = "\n".join(line for part in manual(page) for line in lines(part, 200)).rstrip()
        assert shown.split() == page.split()
        shown_lines = [line.rstrip() for line in shown.splitlines()]
        widths.append(max(map(len, shown_lines)))
        assert "What it sees:" in shown_lines
    assert max(widths) > 180


def test_a_log_without_a_step_is_not_called_absent_and_has_no_last_step(tmp_path):
    absent = Session(tmp_path / "absent").snapshot()
    waiting = replace(absent, age=3.0)
    heading = " ".join(lines(Heading(waiting)))
    assert "log written 3 s ago" in heading
    assert "last step" not in heading
    assert "the log exists" in " ".join(lines(VerdictLines(waiting, 3)))
    assert "nothing is recorded" in " ".join(lines(VerdictLines(absent, 3)))
    assert no_findings(waiting) == "no findings yet; the rules run from the first step"


def test_the_first_thing_to_type_follows_the_verdict(snapshot):
    settings = [each.commented for each in first_steps(snapshot.report) if each.copyable]
    action = first_action(snapshot.report)
    assert settings
    assert action.startswith(settings[0])
    assert action.endswith(f"(+{len(settings) - 1} lines)") == (len(settings) > 2)
    shown = lines(VerdictLines(snapshot, 3, action=action), 40)
    assert len(shown) == 4
    assert shown[-1].strip().startswith(settings[0][:30])
    assert settings[0][:30] not in " ".join(
        lines(VerdictLines(snapshot, 3, has_backlog=True, action=action))
    )
    assert action in "\n".join(lines(TextScreen(snapshot), 200))
