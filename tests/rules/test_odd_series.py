"""Every rule on series with gaps, NaN, single points, constants and steps out of order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.diagnosis import Diagnosis
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Reading
from tests.rules.scenario import healthy, steps


def _input_names() -> list[str]:
    inputs = (need for rule in all_rules() for need in rule.inputs)
    names = {name for need in inputs for name in ((need,) if isinstance(need, str) else need)}
    return sorted(names | set(healthy(1)))


NAMES = _input_names()
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-12, 1e300, -1e300]),
    st.floats(0, 1),
)
READINGS: st.SearchStrategy[Reading] = st.one_of(
    NUMBERS.map(lambda number: Mean.of([number])),
    NUMBERS.map(lambda number: Max(number, "step-1/prompt-0/0")),
    st.just(Mean.of([])),
    st.just(NotApplicable("no meaning")),
)
KNOBS: st.SearchStrategy[dict[str, Setting]] = st.dictionaries(
    st.sampled_from(["group_size", "updates_per_batch", "kl_coefficient", "max_length"]),
    st.integers(0, 4096),
)


def diagnosed(records: list[StepRecord], knobs: dict[str, Setting] | None = None) -> Diagnosis:
    engine = Engine(all_rules(), Manifest(knobs=knobs or {}))
    for record in records:
        engine.observe(record)
    return engine.diagnosis()


@given(
    columns=st.dictionaries(st.sampled_from(NAMES), st.lists(READINGS, max_size=40), max_size=12),
    order=st.lists(st.integers(0, 10**6), min_size=1, max_size=40),
    knobs=KNOBS,
)
def test_no_rule_raises_on_any_series_in_any_order(
    columns: dict[str, list[Reading]], order: list[int], knobs: dict[str, Setting]
) -> None:
    records = [
        StepRecord(step, {name: each[row] for name, each in columns.items() if row < len(each)})
        for row, step in enumerate(order)
    ]
    assert diagnosed(records, knobs).defects == ()


@given(name=st.sampled_from(NAMES), value=st.sampled_from([0.0, 1.0, 0.3, -2.0, 1e6, 50.0]))
def test_no_rule_raises_on_a_constant(name: str, value: float) -> None:
    records = [StepRecord(step, {name: Mean.of([value])}) for step in range(150)]
    assert diagnosed(records).defects == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_single_point_is_no_finding(name: str) -> None:
    one = diagnosed([StepRecord(0, {name: Mean.of([0.3])})])
    assert (one.findings, one.defects) == ((), ())


def test_readings_that_are_all_nan_are_no_finding_but_that_they_are() -> None:
    broken: dict[str, Reading] = dict.fromkeys(NAMES, Mean.of([math.nan]))
    diagnosis = diagnosed(
        [
            StepRecord(step, {**broken, "length/mean": Mean.of([100 + 0.3 * (step % 7)])})
            for step in range(60)
        ]
    )
    assert diagnosis.defects == ()
    assert {each.code for each in diagnosis.findings} == {"OPT003"}


def test_a_healthy_run_with_gaps_has_no_more_findings_than_without() -> None:
    records = steps(200, healthy(3))
    holes = [
        StepRecord(
            each.step,
            {name: value for name, value in each.values.items() if hash_of(name, each.step) % 3},
        )
        for each in records
    ]
    diagnosis = diagnosed(holes)
    assert diagnosis.defects == ()
    assert [each for each in diagnosis.findings if each.severity != "info"] == []


def hash_of(name: str, step: int) -> int:
    """A hash that is the same in every process."""
    return sum(map(ord, name)) * 31 + step * 17


@pytest.mark.slow
def test_a_million_steps_keep_to_a_constant_memory_and_raise_nothing() -> None:
    reward, gradient = Mean.of([0.5]), Mean.of([1.0])
    engine = Engine(all_rules())
    for step in range(1_000_000):
        noise, risen = (step * 7919 % 101) / 1000, 0.4 * step / (step + 200)
        rewards = Mean.of_number(0.4 + risen + noise)  # a flat reward would be a finding: REW001
        engine.observe(StepRecord(step, {"reward/mean": rewards, "time/step": gradient}))
    diagnosis = engine.diagnosis()
    assert reward.value == 0.5
    assert diagnosis.defects == ()
    assert {each.severity for each in diagnosis.findings} <= {"info"}
