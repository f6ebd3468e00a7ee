from __future__ import annotations

import gc
import random
import tracemalloc
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.rules.base import (
    NOT_LOGGED,
    RECOVERED,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
)
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import RESOLVED_KEPT, Engine
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.values import Mean, NotApplicable, Reading
from tests.rules.scenario import Patient, every, healthy, noisy, ramp, steps

REWARD = "reward/mean"


@dataclass(frozen=True)
class AboveBar(Rule):
    """Sees a reward above a bar: a rule whose sightings a test decides step by step."""

    code: ClassVar[str] = "TST001"
    name: ClassVar[str] = "above-bar"
    summary: ClassVar[str] = "Reward above a bar."
    inputs: ClassVar[tuple[Need, ...]] = (REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("tis",)

    bar: float = 0.5
    """Where a sighting begins."""

    def examine(self, chart: Chart) -> RuleResult:
        value = chart.series(REWARD).last
        if value < 0:
            return NotApplicable("a negative reward")
        if value <= self.bar:
            return None
        severity: Severity = "critical" if value > 2 else "warning" if value > 1 else "info"
        return Sighting(severity, f"reward is {value:g}", (cite(chart, REWARD),))


@dataclass(frozen=True)
class EitherInput(AboveBar):
    """Has alternatives and a second input."""

    code: ClassVar[str] = "TST002"
    inputs: ClassVar[tuple[Need, ...]] = (
        (REWARD, "accuracy/train"),
        "accuracy/heldout",
    )


@dataclass(frozen=True)
class SinceAlways(AboveBar):
    """Says that what it sees was so from the beginning."""

    def examine(self, chart: Chart) -> RuleResult:
        verdict = super().examine(chart)
        return replace(verdict, find_onset=lambda: -5) if isinstance(verdict, Sighting) else verdict


def watched(values: list[float | None], rule: Rule | None = None) -> Patient:
    readings = [{} if each is None else {REWARD: Mean.of([each])} for each in values]
    records = [StepRecord(step, reading) for step, reading in enumerate(readings)]
    return Patient(records, rules=[rule or AboveBar()])


def kinds(patient: Patient) -> list[tuple[int, str]]:
    return [(step, change.kind) for step, change in patient.changes]


def test_a_finding_needs_persistence_and_begins_at_its_first_sighting() -> None:
    assert kinds(watched([0, 1, 1])) == []
    assert kinds(watched([0, 1, 1, 0, 1, 1])) == []
    patient = watched([0, 1, 1, 1])
    assert kinds(patient) == [(3, "raised")]
    finding = patient.finding("TST001")
    assert (finding.onset_step, finding.last_step, finding.active) == (1, 3, True)
    assert finding.remedies == ("tis",)
    assert finding.evidence[0].value == 1


def test_it_ends_after_clearance_and_a_later_one_is_new() -> None:
    patient = watched([1] * 3 + [0] * 5 + [1] * 3)
    assert kinds(patient) == [(2, "raised"), (7, "resolved"), (10, "raised")]
    first, second = patient.findings("TST001")
    assert (first.onset_step, first.last_step, first.active) == (0, 2, False)
    assert (second.onset_step, second.active) == (8, True)


def test_what_began_before_it_could_be_seen_begins_then() -> None:
    finding = watched([0, 0, *[1] * 4], SinceAlways()).finding("TST001")
    assert (finding.onset_step, finding.last_step) == (0, 5)


def test_a_finding_that_is_dated_into_the_one_before_continues_it() -> None:
    values = [0, 0, *[1] * 4, *[0] * 5, *[1] * 3]
    patient = watched(values, SinceAlways())
    assert [kind for _, kind in kinds(patient)] == ["raised", "resolved", "raised"]
    (finding,) = patient.findings("TST001")
    assert (finding.onset_step, finding.active) == (0, True)
    treated = [
        StepRecord(step, {REWARD: Mean.of([value])}, {"temperature": 0.9} if step == 7 else {})
        for step, value in enumerate(values)
    ]
    first, second = Patient(treated, rules=[SinceAlways()]).findings("TST001")
    assert (first.onset_step, first.last_step, first.active) == (0, 5, False)
    assert (second.onset_step, second.active) == (6, True)


def test_a_sighting_before_clearance_keeps_it() -> None:
    assert kinds(watched([1] * 3 + [0] * 4 + [1] + [0] * 4)) == [(2, "raised")]


def test_severity_escalates_when_it_persists_and_never_falls() -> None:
    patient = watched([1, 1, 1, 3, 3])
    assert patient.finding("TST001").severity == "info"
    patient = watched([1, 1, 1, 3, 3, 3, 1, 1, 1, 1])
    assert kinds(patient) == [(2, "raised"), (5, "escalated")]
    finding = patient.finding("TST001")
    assert (finding.severity, finding.summary, finding.last_step) == ("critical", "reward is 3", 9)
    assert watched([1.5, 3, 3]).finding("TST001").severity == "warning"


def test_a_severe_finding_ends_when_only_a_milder_form_lasts() -> None:
    patient = watched([3] * 3 + [1] * 60)
    assert kinds(patient) == [(2, "raised"), (52, "resolved"), (52, "raised")]
    mild, severe = sorted(patient.findings("TST001"), key=lambda each: not each.active)
    assert (severe.severity, severe.onset_step, severe.last_step) == ("critical", 0, 2)
    assert (mild.severity, mild.onset_step, mild.summary) == ("info", 3, "reward is 1")
    assert kinds(watched([3] * 3 + [1] * 49 + [3] + [1] * 49)) == [(2, "raised")]


@dataclass(frozen=True)
class CertainEnd(AboveBar):
    """Knows that it is over at 0, and that a level of 1 is all there is."""

    def examine(self, chart: Chart) -> RuleResult:
        verdict = super().examine(chart)
        if not isinstance(verdict, Sighting):
            return RECOVERED
        return replace(verdict, ends_severer=verdict.severity == "info")


def test_what_is_certainly_over_or_milder_ends_at_once() -> None:
    patient = watched([3] * 3 + [0] + [3] * 3 + [0], CertainEnd())
    assert [kind for _, kind in kinds(patient)] == ["raised", "resolved"] * 2
    assert kinds(watched([0] * 9, CertainEnd())) == []
    patient = watched([3] * 3 + [1] * 3, CertainEnd())
    assert kinds(patient) == [(2, "raised"), (3, "resolved"), (3, "raised")]
    assert sorted(each.severity for each in patient.findings("TST001")) == ["critical", "info"]


def test_a_single_grave_sighting_after_a_break_does_not_escalate() -> None:
    patient = watched([1, 1, 1, 0, 3, 0, 3, 0])
    finding = patient.finding("TST001")
    assert (finding.severity, finding.summary, finding.last_step) == ("info", "reward is 1", 6)
    assert watched([1, 1, 1, 0, 3, 3, 3]).finding("TST001").severity == "critical"


def test_a_step_without_the_input_is_neither_sighting_nor_clear() -> None:
    patient = watched([1, None, 1, None, None, 1])
    assert kinds(patient) == [(5, "raised")]
    assert patient.finding("TST001").onset_step == 0
    assert kinds(watched([1] * 3 + [0, None] * 4)) == [(2, "raised")]
    assert kinds(watched([1] * 3 + [0, None] * 5)) == [(2, "raised"), (11, "resolved")]


def test_not_applicable_ends_a_finding_and_says_why() -> None:
    patient = watched([-1])
    assert patient.why_not("TST001") == "a negative reward"
    assert patient.engine.diagnosis().quiet == ()
    patient = watched([1] * 3 + [-1] * 5)
    assert kinds(patient) == [(2, "raised"), (7, "resolved")]


def test_a_reading_that_does_not_apply_reaches_no_rule() -> None:
    why = NotApplicable("one update per batch")
    patient = Patient([StepRecord(0, {REWARD: why})], rules=[AboveBar()])
    diagnosis = patient.engine.diagnosis()
    assert patient.why_not("TST001") == "one update per batch"
    assert diagnosis.skipped == ()
    patient.observe(StepRecord(1, {REWARD: Mean.of([0])}))
    assert patient.engine.diagnosis().quiet == ("TST001",)


def test_what_was_never_read_is_skipped_with_advice() -> None:
    (skipped,) = watched([None]).engine.diagnosis().skipped
    assert skipped.missing == (REWARD,)
    assert skipped.how == "log it, or name its key with --map KEY=reward/mean"
    (skipped,) = watched([1.0], EitherInput()).engine.diagnosis().skipped
    assert skipped.missing == ("accuracy/heldout",)
    assert "evaluate on held-out prompts" in skipped.how
    (skipped,) = watched([None], EitherInput()).engine.diagnosis().skipped
    assert skipped.missing == (REWARD, "accuracy/heldout")
    assert "alternative metrics: accuracy/train" in skipped.how


def test_inputs_that_never_meet_are_asked_for_together() -> None:
    records = [
        StepRecord(0, {REWARD: Mean.of([0])}),
        StepRecord(1, {"accuracy/heldout": Mean.of([0])}),
    ]
    (skipped,) = Patient(records, rules=[EitherInput()]).engine.diagnosis().skipped
    assert skipped.missing == (REWARD, "accuracy/heldout")


def test_an_empty_mean_is_no_reading() -> None:
    patient = Patient([StepRecord(0, {REWARD: Mean.of([])})], rules=[AboveBar()])
    assert [each.code for each in patient.engine.diagnosis().skipped] == ["TST001"]


def test_unknown_names_are_listed_once_and_bounded() -> None:
    patient = Patient([], rules=[AboveBar()])
    for step in range(1200):
        patient.observe(StepRecord(step, {f"made/up-{step}": Mean.of([1]), REWARD: Mean.of([0])}))
    unmapped = patient.engine.diagnosis().unmapped
    assert unmapped[0] == "made/up-0"
    assert len(unmapped) == len(set(unmapped)) == 1000


def test_every_rule_is_in_one_list() -> None:
    diagnosis = Patient(steps(40, healthy(1))).engine.diagnosis()
    lists = [
        {each.code for each in diagnosis.findings},
        {each.code for each in diagnosis.skipped},
        {each.code for each in diagnosis.not_applicable},
        set(diagnosis.quiet),
    ]
    assert sum(map(len, lists)) == len(set().union(*lists)) == len(all_rules())


def test_going_back_drops_what_is_no_longer_so() -> None:
    patient = watched([0, 0, 1, 1, 1, 1])
    changes = patient.observe(StepRecord(1, {REWARD: Mean.of([0])}))
    assert [change.kind for change in changes] == ["resolved"]
    assert patient.findings("TST001") == []
    assert patient.engine.diagnosis().quiet == ("TST001",)


def test_going_back_keeps_an_earlier_onset_and_starts_streaks_anew() -> None:
    patient = watched([1, 1, 1, 1, 1])
    patient.observe(StepRecord(3, {REWARD: Mean.of([1])}))
    assert patient.finding("TST001").onset_step == 0
    patient = watched([0, 0, 0, 1, 1])
    patient.observe(StepRecord(3, {REWARD: Mean.of([1])}))
    assert patient.findings("TST001") == []


def test_a_run_that_restarts_at_zero_again_and_again_builds_up_nothing() -> None:
    records = [StepRecord(0, {REWARD: Mean.of([3])}) for _ in range(20)]
    assert Patient(records, rules=[AboveBar()]).findings("TST001") == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_around_a_threshold_does_not_flap(seed: int) -> None:
    generator = random.Random(seed)
    patient = watched([generator.gauss(0.5, 0.2) for _ in range(5000)])
    assert 1 <= patient.raised("TST001") <= 6


def test_a_rule_that_fires_again_long_after_resolves_as_fast_as_at_first() -> None:
    episode = [1.0] * 3 + [0.0] * 200
    patient = watched(episode * 4)
    ends = [step for step, kind in kinds(patient) if kind == "resolved"]
    assert ends == [7 + 203 * i for i in range(4)]


def test_resolved_findings_are_bounded() -> None:
    patient = watched(([1.0] * 3 + [0.0] * 140) * (RESOLVED_KEPT + 20))
    findings = patient.findings("TST001")
    assert len(findings) == RESOLVED_KEPT
    assert findings[0].onset_step == 143 * 20


def test_findings_are_ordered_by_severity_then_onset() -> None:
    sick = {
        **healthy(3),
        "length/truncated_rate": 1.0,
        "optimizer/loss": 0.0,
        "mismatch/prob_diff_mean": 0.03,
    }
    findings = Patient(steps(40, sick)).engine.diagnosis().findings
    ranks = [("critical", "warning", "info").index(each.severity) for each in findings]
    assert ranks == sorted(ranks)
    assert {each.code for each in findings} >= {"LEN002", "OPT001", "MIS001"}


@lru_cache(maxsize=8)
def troubled(seed: int) -> list[StepRecord]:
    """A run in which much goes wrong, and some of it heals, as it is read from disk."""
    curves = {
        **healthy(seed),
        "entropy/mean": noisy(ramp(0.5, 0.02, 60), 0.02, seed),
        "accuracy/train": noisy(ramp(0.45, 0.1, 20, begin=40), 0.05, seed),
        "length/truncated_rate": lambda step: 0.6 if step % 50 < 25 else 0.01,
        "mismatch/first_ratio_off": every(3, 0.4),
        "clip/high_rate": lambda step: NotApplicable("one update") if step > 70 else 0.2,
        "optimizer/grad_norm": noisy([2.4] * 30 + [60.0] + [2.4] * 20 + [0.0] * 60, 0.0, seed),
    }
    return [StepRecord.from_line(record.to_line()) for record in steps(130, curves)]


CUTS = (1, 7, 23, 31, 52, 70, 101, 119)
"""Before, at and after the faults of the troubled run."""


@pytest.mark.parametrize("seed", range(2))
def test_a_prefix_of_the_log_gives_what_the_live_run_gave(seed: int) -> None:
    records, live, then = troubled(seed), Engine(all_rules()), {}
    for count, record in enumerate(records, start=1):
        live.observe(record)
        if count in CUTS:
            then[count] = live.diagnosis()
    for cut in CUTS:
        offline = Engine(all_rules())
        for record in records[:cut]:
            offline.observe(record)
        assert offline.diagnosis() == then[cut]
        assert live.diagnosis() != then[cut]


def _names(need: Need) -> tuple[str, ...]:
    return (need,) if isinstance(need, str) else need


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run() -> None:
    wanted = {name for rule in all_rules() for need in rule.inputs for name in _names(need)}
    curves = {name: curve for name, curve in healthy(1).items() if name in wanted}
    records = steps(400, curves)
    engine = Engine(all_rules())

    def run(begin: int, end: int) -> None:
        for step in range(begin, end):
            engine.observe(StepRecord(step, records[step % 400].values))

    run(0, 1000)
    tracemalloc.start()
    try:
        run(1000, 1500)
        gc.collect()  # empties the interpreter's lists of free objects, which are not in use
        before, _ = tracemalloc.get_traced_memory()
        run(1500, 20_000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000


@given(data=st.data())
def test_no_rule_breaks_on_odd_readings(data: st.DataObject) -> None:
    numbers = st.floats(allow_nan=True, allow_infinity=True)
    readings: st.SearchStrategy[Reading] = st.one_of(
        numbers.map(lambda x: Mean.of([x])),
        st.just(NotApplicable("no meaning")),
        st.just(Mean.of([])),
        st.floats(-1e300, 1e300).map(lambda x: Mean.of([x])),
        st.just(Mean.of([0.0])),
    )
    names = sorted(healthy(1))
    engine = Engine(all_rules())
    for step in range(25):
        odd = data.draw(st.dictionaries(st.sampled_from(names), readings, max_size=len(names)))
        engine.observe(StepRecord(step, odd))
    assert engine.diagnosis().defects == ()


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ("verl", "verl logs it as critic/score/mean"),
        ("tinker-cookbook", "tinker-cookbook logs it as env/all/reward/total"),
        ("nobody-knows", "log it, or name its key with --map KEY=reward/mean"),
    ],
)
def test_the_advice_names_the_key_of_the_runs_own_framework(framework: str, said: str) -> None:
    engine = Engine([AboveBar()], Manifest(framework=framework))
    engine.observe(StepRecord(1, {}))
    (skipped,) = engine.diagnosis().skipped
    assert skipped.how == said


def test_how_to_log_says_nothing_twice() -> None:
    engine = Engine(all_rules(), Manifest(framework="trl"))
    engine.observe(StepRecord(1, {}))
    for skipped in engine.diagnosis().skipped:
        parts = skipped.how.split("; ")
        assert len(parts) == len(set(parts)), skipped


@dataclass(frozen=True)
class Broken(AboveBar):
    """Raises at every third step."""

    code: ClassVar[str] = "TST009"
    name: ClassVar[str] = "broken"

    def examine(self, chart: Chart) -> RuleResult:
        if chart.step % 3 == 1:
            raise ZeroDivisionError("no groups\nat all")
        return super().examine(chart)


def test_a_rule_that_raises_is_a_defect_and_the_others_continue() -> None:
    engine = Engine([Broken(), AboveBar()])
    for step in range(10):
        engine.observe(StepRecord(step, {"reward/mean": Mean.of([1.0])}))
    diagnosis = engine.diagnosis()
    (defect,) = diagnosis.defects
    assert (defect.code, defect.step, defect.count) == ("TST009", 1, 3)
    assert defect.error == "ZeroDivisionError: no groups at all"
    assert [each.code for each in diagnosis.findings if each.code != "TST009"] == [AboveBar.code]
    assert "TST009" not in diagnosis.quiet


@dataclass(frozen=True)
class Undated(AboveBar):
    """Sees its condition, and raises when it dates it."""

    code: ClassVar[str] = "TST008"
    name: ClassVar[str] = "undated"

    def examine(self, chart: Chart) -> RuleResult:
        sighting = super().examine(chart)
        assert isinstance(sighting, Sighting)

        def find_onset() -> int:
            raise IndexError("no such step")

        return replace(sighting, find_onset=find_onset)


def test_a_rule_that_cannot_date_its_finding_is_a_defect_and_the_finding_stays() -> None:
    engine = Engine([Undated(), AboveBar()])
    for step in range(10):
        engine.observe(StepRecord(step, {"reward/mean": Mean.of([1.0])}))
    diagnosis = engine.diagnosis()
    (defect,) = diagnosis.defects
    assert (defect.code, defect.error) == ("TST008", "IndexError: no such step")
    dated, undated = (
        next(each for each in diagnosis.findings if each.code == code)
        for code in (AboveBar.code, "TST008")
    )
    assert undated.onset_step == dated.onset_step


def test_a_lack_of_memory_is_no_fault_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(self: AboveBar, chart: Chart) -> RuleResult:
        raise MemoryError

    monkeypatch.setattr(AboveBar, "examine", examine)
    engine = Engine([AboveBar()])
    with pytest.raises(MemoryError):
        engine.observe(StepRecord(0, {"reward/mean": Mean.of([1.0])}))


@dataclass(frozen=True)
class NeedsMore(AboveBar):
    """Finds that the readings do not suffice before step 5."""

    code: ClassVar[str] = "TST010"
    name: ClassVar[str] = "needs-more"

    def examine(self, chart: Chart) -> RuleResult:
        return NOT_LOGGED if chart.step < 5 else None


def test_a_rule_whose_readings_do_not_suffice_is_skipped_until_they_do() -> None:
    engine = Engine([NeedsMore()])
    record = {"reward/mean": Mean.of([1.0])}
    for step in range(5):
        engine.observe(StepRecord(step, record))
    assert [each.code for each in engine.diagnosis().skipped] == ["TST010"]
    engine.observe(StepRecord(5, record))
    assert engine.diagnosis().quiet == ("TST010",)
