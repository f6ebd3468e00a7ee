"""The unit of a key that its name does not tell."""

from __future__ import annotations

import math

import pytest

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.reading.share_units import counts_and_percentages


@pytest.mark.parametrize(
    ("values", "units"),
    [
        ([3.0, 0.0, 1.0, 5.0, 2.0], (["key"], [])),
        ([12.5, 0.0, 31.25, 0.5, 50.0], ([], ["key"])),
        ([0.5, 0.7, 1.2, 0.9, 0.8, 1.1], ([], [])),  # a ratio that is sometimes above 1
        ([12.5, 31.25, 150.0, 40.0, 50.0], ([], [])),
        ([-12.5, 31.25, 20.0, 40.0, 50.0], ([], [])),
        ([0.25, 0.5, 40.0, 0.75, 0.5], ([], [])),  # one value may be a mistake
        ([12.5, 31.25], ([], [])),
        ([math.nan] * 6, ([], [])),
    ],
)
def test_all_values_of_a_key_show_its_unit(
    values: list[float], units: tuple[list[str], list[str]]
) -> None:
    rows = [LogRow(step, {"key": value}) for step, value in enumerate(values)]
    assert counts_and_percentages(rows) == units
