"""A gap is counted however the lines around it repeat."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.step_gaps import StepGaps
from grpodoctor.runs.records import Manifest, StepRecord


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80))
def test_the_count_is_that_of_the_steps_nobody_read(steps: list[int]) -> None:
    gaps = StepGaps()
    steps = [min(steps), *steps]  # the first step is the lowest; a lower one begins another run
    for step in steps:
        gaps.add(step)
    assert gaps.count == max(steps) - min(steps) + 1 - len(set(steps))


def test_many_gaps_take_bounded_memory() -> None:
    gaps = StepGaps()
    for step in range(0, 100_000, 10):
        gaps.add(step)
    assert gaps.count == 9 * 9_999
    assert len(gaps._ranges) == 1000


def test_repeated_steps_hide_no_gap(tmp_path) -> None:
    """A run that lost steps 4 to 6 and repeated four others after its next resume."""
    examination = Examination(tmp_path, Manifest(), ())
    order = [1, 2, 3, 7, 8, 9, 10, 7, 8, 9, 10]
    for step in order:
        examination.observe(StepRecord(step, {}, {}, random.Random(step).random()))
    facts = examination.facts()
    assert (facts.steps, facts.missing_steps) == (len(order), 3)
