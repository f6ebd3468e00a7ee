"""Phrases that several formats of a report share."""

from __future__ import annotations

import pytest

from grpodoctor.monitor.report import RunFacts
from grpodoctor.report.run.phrases import run_line


@pytest.mark.parametrize(
    ("framework", "steps"),
    [("grpodoctor", "steps 11 to 20 (6 read, 4 missing)"), ("trl", "steps 11 to 20 (6 read)")],
)
def test_steps_without_a_record_are_counted_where_each_step_has_one(
    framework: str, steps: str
) -> None:
    run = RunFacts("out", framework, first_step=11, last_step=20, steps=6, unread_steps=4)
    assert run_line(run).endswith(steps)
