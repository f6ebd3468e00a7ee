"""Wording of the page Compare."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.monitor.dashboard.config_differences import ConfigDifference
from grpodoctor.monitor.dashboard.divergence import Axis, Divergence
from grpodoctor.monitor.vitals import format_reading
from grpodoctor.report.view import Column, Inline, Table, code
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import plain

TEST_IN_WORDS = (
    "Test: the difference of the two runs is cut into blocks of ten shared readings. The runs "
    "diverge at the first two neighboring blocks whose means differ from zero in the same "
    "direction by more than the noise from one reading to the next, at a level of 5 % for all "
    "blocks together. Two seeds of one setup also diverge once their paths differ: the test shows "
    "when, not why."
)

_NAME_LETTERS, _VALUE_LETTERS = 120, 120


def divergence_sentence(compared: Sequence[Divergence], axis: Axis) -> str:
    """Where two runs diverge, in one sentence."""
    if not compared:
        return "The runs share too few readings for a comparison: at least 20 of one metric."
    diverged = [each for each in compared if each.differs]
    if not diverged:
        count = count_of(len(compared), "metric")
        return f"The runs do not diverge: {count} differ by no more than noise."
    first = diverged[0]
    unit = "step" if axis == "step" else "token"
    last_equal = min((e.equal_until for e in compared if e.equal_until is not None), default=None)
    equal = "" if last_equal is None else f" All readings are equal up to {unit} {last_equal:,.0f}."
    means = [format_reading(first.metric, mean) for mean in (first.first, first.second)]
    return (
        f"They diverge {place_phrase(first, axis)}, first in {first.label}: "
        f"{means[0]} against {means[1]} from there on "
        f"(means).{equal}"
    )


def place_phrase(divergence: Divergence, axis: Axis) -> str:
    """The point where two runs diverge."""
    if divergence.at is None:
        return ""
    unit = "step" if axis == "step" else "token"
    return f"at {unit} {divergence.at:,.0f}"


def divergence_table(compared: Sequence[Divergence], axis: Axis) -> Table:
    """Each metric with the point where the runs diverge, and their means from there on."""
    columns = (
        Column("metric"),
        Column("they diverge"),
        Column("first run", numeric=True),
        Column("this run", numeric=True),
        Column("shared readings", numeric=True),
    )
    rows = tuple(
        (
            each.label,
            place_phrase(each, axis) or "no difference beyond noise",
            format_reading(each.metric, each.first),
            format_reading(each.metric, each.second),
            str(each.shared),
        )
        for each in compared
    )
    return Table(columns, rows)


def config_table(differences: Sequence[ConfigDifference], names: Sequence[str]) -> Table:
    """The settings that differ, one column per run."""
    columns = (Column("setting"), *(Column(plain(name, limit=_NAME_LETTERS)) for name in names))
    rows: tuple[tuple[Inline, ...], ...] = tuple(
        (
            code(plain(each.name, limit=_NAME_LETTERS)),
            *(plain(value, limit=_VALUE_LETTERS) for value in each.values),
        )
        for each in differences
    )
    return Table(columns, rows)
