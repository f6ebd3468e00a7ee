"""Runs of known health, logged by each framework in its own format, are read and named."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.report import Report
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar
from tests.frameworks.courses import COURSES, LIMIT, PROMPTS, STEPS
from tests.frameworks.generated_logs import FROM_ZERO, WRITERS


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated")


@functools.cache
def written(directory: Path, name: str, course: str) -> Path:
    place = directory / f"{name}-{course}".replace(" ", "-").replace(",", "")
    place.mkdir()
    return WRITERS[name][1](COURSES[course], place)


@functools.cache
def checked(directory: Path, name: str, course: str) -> Report:
    return replay(written(directory, name, course)).report


def steps_of(path: Path) -> list[StepRecord]:
    return list(open_run(path).steps)


def number(step: StepRecord, metric: str) -> float | None:
    return scalar(step.values[metric]) if metric in step.values else None


def families(report: Report) -> set[str]:
    """The rule families with a finding above a note."""
    return {each.code[:3] for each in report.findings if each.severity != "info"}


@pytest.mark.parametrize("name", WRITERS)
def test_the_framework_and_every_step_are_read(name: str, directory: Path) -> None:
    run = open_run(written(directory, name, "healthy"))
    steps = list(run.steps)
    assert run.manifest.framework == WRITERS[name][0]
    first = 0 if name in FROM_ZERO else 1
    assert [step.step for step in steps] == list(range(first, first + STEPS))
    wanted = COURSES["healthy"].at(STEPS)
    assert number(steps[-1], "length/mean") == pytest.approx(wanted["length"], rel=1e-3)
    filtered = name.startswith("open-instruct")
    outcome, rounding = ("accuracy/train", 0.05) if filtered else ("reward/mean", 1e-3)
    assert number(steps[-1], outcome) == pytest.approx(wanted["reward"], rel=rounding)


@pytest.mark.parametrize("name", WRITERS)
def test_no_alarm_on_a_healthy_run(name: str, directory: Path) -> None:
    assert families(checked(directory, name, "healthy")) == set()


NAMED: dict[str, set[str]] = {
    "starved": {"GRP", "REW", "OPT"},
    "collapsed": {"ENT", "REW", "LEN", "KLD", "GRP"},
    "truncated": {"LEN"},
    "mismatched": {"MIS"},
}
"""Families of rules; one of them must fire."""


@pytest.mark.parametrize(
    ("name", "course"),
    [
        pytest.param(name, course, marks=pytest.mark.slow if (row + column) % 2 else ())
        for row, name in enumerate(WRITERS)
        for column, course in enumerate(NAMED)
    ],
)
def test_a_sick_run_is_named(name: str, course: str, directory: Path) -> None:
    if (name, course) == ("verl, early", "mismatched"):
        pytest.skip("early versions of verl do not compare sampler and learner")
    found = families(checked(directory, name, course))
    assert found & NAMED[course], found


@pytest.mark.parametrize("course", COURSES)
def test_verls_padded_truncation_is_read_only_at_the_limit(course: str, directory: Path) -> None:
    """V1 counts the longest response of each batch as truncated, whatever its length."""
    for step in steps_of(written(directory, "verl V1", course)):
        values = COURSES[course].at(step.step)
        wanted = values["truncated"] if values["max_length"] == LIMIT else 0.0
        assert number(step, "length/truncated_rate") == pytest.approx(wanted, abs=1e-9)


def test_the_means_of_several_held_out_sets(directory: Path) -> None:
    step = steps_of(written(directory, "verl", "healthy"))[9]
    for metric in ("accuracy/heldout", "accuracy/heldout/set/math"):
        assert number(step, metric) == pytest.approx(COURSES["healthy"].at(10)["heldout"])


@pytest.mark.parametrize("course", ["healthy", "starved"])
def test_slimes_counts_of_groups_become_rates(course: str, directory: Path) -> None:
    for step in steps_of(written(directory, "slime", course)):
        values = COURSES[course].at(step.step + 1)
        shares = [values["all_incorrect"], values["all_correct"]]
        rates = [round(share * PROMPTS) / PROMPTS for share in shares]
        assert number(step, "groups/all_incorrect_rate") == pytest.approx(rates[0])
        assert number(step, "groups/all_correct_rate") == pytest.approx(rates[1])
        assert number(step, "groups/zero_variance_rate") == pytest.approx(sum(rates))


def test_open_instructs_rates_count_filtered_prompts_once(directory: Path) -> None:
    for step in steps_of(written(directory, "open-instruct", "starved")):
        values = COURSES["starved"].at(step.step)
        wrong = round(PROMPTS * values["all_incorrect"]) / PROMPTS
        assert number(step, "groups/all_incorrect_rate") == pytest.approx(wrong)
        assert number(step, "groups/zero_variance_rate") == pytest.approx(wrong, abs=0.02)


def test_the_summary_of_ms_swift_is_no_restart(directory: Path) -> None:
    report = checked(directory, "ms-swift", "healthy")
    assert not [note for note in report.notes if "restarted" in note]
    last = steps_of(written(directory, "ms-swift", "healthy"))[-1]
    assert number(last, "optimizer/loss") == pytest.approx(COURSES["healthy"].at(STEPS)["loss"])
