import math
import random
from collections.abc import Callable

import pytest

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import StepRecord
from grpodoctor.treatment.assessment import assess, compare, p_value_of_rise
from grpodoctor.vocabulary.values import Max, Mean

APPLIED = 20


def chart_of(levels: Callable[[int], dict[str, float]], last: int = APPLIED + 11) -> Chart:
    chart = Chart()
    for step in range(last + 1):
        values = {name: Mean.of([value]) for name, value in levels(step).items()}
        chart.observe(StepRecord(step, values))
    return chart


def stepped(
    before: float, after: float, noise: float = 0.01, seed: int = 0
) -> Callable[..., Chart]:
    draw = random.Random(seed)
    return lambda metric: chart_of(
        lambda step: {metric: (before if step < APPLIED else after) + draw.gauss(0, noise)}
    )


@pytest.mark.parametrize(
    ("direction", "before", "after", "moved"),
    [
        ("down", 0.5, 0.2, True),
        ("down", 0.2, 0.5, False),
        ("down", 0.5, 0.5, False),
        ("up", 0.2, 0.5, True),
        ("up", 0.5, 0.2, False),
    ],
)
def test_a_target_moves_in_its_direction(
    direction: str, before: float, after: float, moved: bool
) -> None:
    watch = Criterion("entropy/mean", direction)  # type: ignore[arg-type]
    found = compare(stepped(before, after)("entropy/mean"), watch, "target", APPLIED)
    assert found is not None
    assert found.moved is moved
    assert found.before == pytest.approx(before, abs=0.02)
    assert found.after == pytest.approx(after, abs=0.02)


def test_toward_baseline_works_from_both_sides() -> None:
    watch = Criterion("entropy/mean", "toward-baseline")
    for sick in (0.1, 0.9):
        for after, moved in ((0.5, True), (sick, False), (2 * sick - 0.5, False)):

            def level(step: int, sick: float = sick, after: float = after) -> dict[str, float]:
                wobble = 0.001 * (step % 3)
                course = 0.5 if step < 10 else sick if step < APPLIED else after
                return {"entropy/mean": course + wobble}

            found = compare(chart_of(level), watch, "target", APPLIED)
            assert found is not None
            assert found.moved is moved, (sick, after)


def test_only_the_later_half_of_the_window_counts() -> None:
    """A remedy that needs a few steps to take effect is judged by what it comes to."""
    chart = chart_of(lambda step: {"entropy/mean": 0.5 if step < APPLIED + 5 else 0.1})
    found = compare(chart, Criterion("entropy/mean", "down"), "target", APPLIED)
    assert found is not None
    assert found.moved
    assert found.after == 0.1


def test_what_happened_long_before_is_not_the_level_before() -> None:
    chart = chart_of(lambda step: {"entropy/mean": 5.0 if step < APPLIED - 6 else 0.5})
    found = compare(chart, Criterion("entropy/mean", "down"), "target", APPLIED)
    assert found is not None
    assert (found.before, found.moved) == (0.5, False)


@pytest.mark.parametrize(
    ("watch", "before", "after", "breached"),
    [
        (Criterion("reward/mean", "down", 0.1), 0.5, 0.48, False),
        (Criterion("reward/mean", "down", 0.1), 0.5, 0.44, True),
        (Criterion("reward/mean", "down", 0.1), -0.5, -0.6, True),
        (Criterion("reward/mean", "down", 0.1), 0.5, 0.9, False),
        (Criterion("length/truncated_rate", "up", 0.5, slack=0.05), 0.0, 0.03, False),
        (Criterion("length/truncated_rate", "up", 0.5, slack=0.05), 0.0, 0.08, True),
        (Criterion("length/truncated_rate", "up", 0.5, slack=0.05), 0.4, 0.55, False),
    ],
)
def test_a_guard_tolerates_what_it_says(
    watch: Criterion, before: float, after: float, breached: bool
) -> None:
    chart = stepped(before, after, noise=0.001)(watch.metric)
    found = compare(chart, watch, "guard", APPLIED)
    assert found is not None
    assert found.moved is breached
    assert found.p < 0.05 or not breached


def test_noise_alone_rarely_keeps_a_remedy() -> None:
    """With three targets as with one: the chance is shared among them."""
    for remedy_id in ("recompute-old-logprobs", "lower-learning-rate"):
        remedy = remedy_of(remedy_id)
        kept = sum(judge_noise(remedy, seed) for seed in range(150))
        assert kept <= 15, remedy_id  # 5 % of 150 is 7.5; 15 and more is one in a hundred


def judge_noise(remedy: Remedy, seed: int) -> bool:
    draw = random.Random(seed)
    chart = chart_of(lambda _: {each.metric: draw.gauss(1, 0.1) for each in remedy.targets})
    return assess(chart, remedy, APPLIED, is_resolved=False).keep


def test_the_level_is_shared_among_targets() -> None:
    """What is enough for a remedy's only target is not enough for one of its three."""
    values = [0.6] * (APPLIED - 6) + [0.6, 0.75, 0.8, 1.0, 1.1, 1.2]
    values += [0.6] * 6 + [0.1, 0.3, 0.5, 0.7, 0.9, 0.95]
    chart = chart_of(lambda step: {"kl/old_policy/k3": values[step]})
    alone = compare(chart, Criterion("kl/old_policy/k3", "down"), "target", APPLIED)
    assert alone is not None
    assert 0.05 / 3 < alone.p < 0.05
    assert alone.moved
    assert not assess(chart, remedy_of("fewer-updates"), APPLIED, is_resolved=False).keep


def test_a_breached_guard_counts_more_than_a_target_and_the_end_of_a_finding() -> None:
    def level(step: int) -> dict[str, float]:
        treated = step >= APPLIED
        return {"mismatch/first_ratio_off": 0.4 - 0.4 * treated, "reward/mean": 0.5 - 0.3 * treated}

    found = assess(chart_of(level), remedy_of("recompute-old-logprobs"), APPLIED, is_resolved=True)
    assert not found.keep
    assert found.verdict.startswith("reward/mean fell by more than its tolerance (0.5 to 0.2")


def test_without_readings_there_is_no_assessment_in_favour() -> None:
    assessment = assess(chart_of(lambda _: {}), remedy_of("tis"), APPLIED, is_resolved=False)
    assert not assessment.keep
    assert assessment.comparisons == ()
    assert "too few readings of mismatch/first_ratio_off or reward/mean" in assessment.verdict


def test_an_infinite_level_may_fall() -> None:
    chart = Chart()
    for step in range(APPLIED + 12):
        value = math.inf if step < APPLIED else 1.5
        chart.observe(StepRecord(step, {"ratio/max": Max(value, "s1")}))
    found = compare(chart, Criterion("ratio/max", "down"), "target", APPLIED)
    assert found is None or found.moved


def test_chances() -> None:
    assert p_value_of_rise([1, 2, 3], [4, 5, 6, 7, 8, 9]) == pytest.approx(1 / 84)
    assert p_value_of_rise([0, 0, 0], [0, 0, 0]) == 1.0
    assert p_value_of_rise([1.0] * 6, [0.0] * 6) > 0.99
    assert p_value_of_rise([1.0, math.nan, 2.0], [3.0, 4.0, 5.0]) == 1.0
    assert p_value_of_rise([0.4] * 6, [0.5] * 6) < 0.01
