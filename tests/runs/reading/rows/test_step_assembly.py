"""Rows of several logs, of restarted jobs and of two writers, made into steps."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grpodoctor.runs.reading.read_notes import conflict_note, rewind_note
from grpodoctor.runs.reading.rows import step_assembly
from grpodoctor.runs.reading.rows.step_assembly import StepAssembly
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean, Reading, scalar


def given(**numbers: float) -> dict[str, Reading]:
    return {name.replace("_", "/", 1): Mean.of([number]) for name, number in numbers.items()}


def plain(records: list[StepRecord]) -> list[tuple[int, Mapping[str, float | None]]]:
    return [
        (each.step, {name: scalar(reading) for name, reading in each.values.items()})
        for each in records
    ]


def alone() -> StepAssembly:
    assembly = StepAssembly()
    assembly.open_log("a")
    return assembly


def test_a_step_of_several_rows_is_returned_when_the_next_begins() -> None:
    assembly = alone()
    assert assembly.add("a", 0, given(reward_mean=0.5)) == []
    assert assembly.add("a", 0, given(length_mean=10)) == []
    found = assembly.add("a", 1, given(reward_mean=0.6))
    assert plain(found) == [(0, {"reward/mean": 0.5, "length/mean": 10})]
    assert plain(assembly.flush()) == [(1, {"reward/mean": 0.6})]
    assert rewind_note(assembly) == ""


def test_the_last_value_counts_when_a_resumed_job_repeats_steps() -> None:
    assembly, records = alone(), []
    for step in [*range(1, 41), *range(21, 51)]:
        records += assembly.add("a", step, given(reward_mean=len(records)))
    records += assembly.flush()
    steps = [each.step for each in records]
    assert steps == [*range(1, 41), *range(21, 51)]
    assert "jumps back once (to step 21)" in rewind_note(assembly)


def test_a_repeated_step_replaces_the_first_one_completely() -> None:
    assembly = alone()
    assembly.add("a", 0, given(reward_mean=0.0, entropy_mean=1.0, length_mean=5))
    assembly.add("a", 0, given(reward_mean=0.1, length_mean=6))
    assert plain(assembly.flush()) == [(0, {"reward/mean": 0.1, "length/mean": 6})]
    assert "has 1 row that repeats a step" in rewind_note(assembly)


def test_logs_of_one_run_are_joined_and_conflicts_are_reported() -> None:
    assembly = alone()
    assembly.open_log("b")
    assembly.add("a", 1, given(reward_mean=0.5, length_mean=10))
    assert assembly.add("a", 2, given(reward_mean=0.6)) == []
    assembly.add("b", 1, given(reward_mean=0.50001, entropy_mean=0.3))
    found = assembly.add("b", 2, given(reward_mean=0.9))
    assert plain(found) == [(1, {"reward/mean": 0.5, "length/mean": 10, "entropy/mean": 0.3})]
    assert plain(assembly.flush()) == [(2, {"reward/mean": 0.6})]
    assert "reward/mean at step 2 (0.6 in a, 0.9 in b)" in conflict_note(assembly)


def test_values_rounded_by_a_console_are_not_conflicts() -> None:
    assembly = alone()
    assembly.open_log("b")
    assembly.add("a", 1, given(kl_reference=0.00071))
    assembly.add("b", 1, given(kl_reference=0.001))
    assert assembly.conflict_count == 0
    assembly.add("b", 1, given(kl_reference=0.003))
    assert assembly.conflict_count == 1


def test_several_logs_may_go_back_together() -> None:
    assembly = alone()
    assembly.open_log("b")
    for step in [1, 2, 3, 4, 2, 3, 4, 5]:
        assembly.add("a", step, given(reward_mean=step / 10))
    first = []
    for step in [1, 2, 3, 4, 2, 3, 4, 5]:
        first += assembly.add("b", step, given(entropy_mean=step))
    records = dict(plain([*first, *assembly.flush()]))
    assert sorted(records) == [1, 2, 3, 4, 5]
    assert records[3] == {"reward/mean": 0.3, "entropy/mean": 3}
    assert assembly.conflict_count == 0


def test_two_writers_of_one_file_are_not_a_restart() -> None:
    """prime-rl's trainer and orchestrator, the latter two steps ahead."""
    assembly, records = alone(), []
    for step in range(1, 30):
        records += assembly.add("a", step + 2, given(reward_mean=step + 2))
        records += assembly.add("a", step, given(entropy_mean=step))
    records += assembly.flush()
    last = dict(plain(records))
    assert rewind_note(assembly) == ""
    assert last[10] == {"reward/mean": 10, "entropy/mean": 10}
    assert all(set(last[step]) == {"reward/mean", "entropy/mean"} for step in range(3, 30))


def test_steps_that_never_advance_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_assembly, "MAX_PENDING", 1000)
    assembly = alone()
    assembly.open_log("never")
    for step in range(1002):
        assembly.add("a", step, {})
    assert len(assembly.flush()) < 10
