import math
import random
from collections.abc import Callable, Mapping

import pytest

from grpodoctor.remedies.base import Criterion
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import StepRecord
from grpodoctor.treatment.assessment import LEVEL, LOOKS, Comparison, assess, compare
from grpodoctor.treatment.switchback import Stage
from grpodoctor.vocabulary.values import Max, Mean

STAGE = Stage(20, 2, "0110100101")
Levels = Callable[[bool, int], Mapping[str, float]]


def chart_of(levels: Levels, stages: int = 1) -> Chart:
    """A run whose metrics depend on whether the treatment is on, with later stages after gaps."""
    chart, drawn = Chart(), stages_of(stages)
    for step in range(drawn[-1].end):
        on = any(stage.first_step <= step < stage.end and stage.is_on(step) for stage in drawn)
        values = {name: Mean.of([value]) for name, value in levels(on, step).items()}
        chart.observe(StepRecord(step, values))
    return chart


def stages_of(count: int) -> list[Stage]:
    return [Stage(20 + 30 * number, 2, STAGE.order) for number in range(count)]


def stepped(metric: str, off: float, on: float, noise: float = 0.01, seed: int = 0) -> Levels:
    draw = random.Random(seed)
    return lambda is_on, _: {metric: (on if is_on else off) + draw.gauss(0, noise)}


def compared(criterion: Criterion, levels: Levels, role: str = "target") -> Comparison:
    (found,) = compare(chart_of(levels), [criterion], role, [STAGE], LEVEL)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("direction", "off", "on", "moved"),
    [
        ("down", 0.5, 0.2, True),
        ("down", 0.2, 0.5, False),
        ("down", 0.5, 0.5, False),
        ("up", 0.2, 0.5, True),
        ("up", 0.5, 0.2, False),
    ],
)
def test_a_target_moves_in_its_direction(
    direction: str, off: float, on: float, moved: bool
) -> None:
    criterion = Criterion("entropy/mean", direction)  # type: ignore[arg-type]
    found = compared(criterion, stepped("entropy/mean", off, on, seed=1))
    assert found.moved is moved
    assert found.untreated == pytest.approx(off, abs=0.02)
    assert found.treated == pytest.approx(on, abs=0.02)


@pytest.mark.parametrize("sick", [0.1, 0.9])
def test_toward_baseline_works_from_both_sides(sick: float) -> None:
    criterion = Criterion("entropy/mean", "toward-baseline")
    for on, moved in ((0.5, True), (sick, False), (2 * sick - 0.5, False)):

        def level(is_on: bool, step: int, on: float = on) -> dict[str, float]:
            course = 0.5 if step < 10 else on if is_on else sick
            return {"entropy/mean": course + 0.001 * (step % 3)}

        assert compared(criterion, level).moved is moved, (sick, on)


@pytest.mark.parametrize(
    ("criterion", "off", "on", "breached"),
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
    criterion: Criterion, off: float, on: float, breached: bool
) -> None:
    found = compared(criterion, stepped(criterion.metric, off, on, noise=0.001), "guard")
    assert found.moved is breached
    assert found.p < 0.05 or not breached


def test_a_target_that_moves_keeps_the_treatment_after_one_stage() -> None:
    levels = stepped("mismatch/first_ratio_off", 0.4, 0.0)
    found = assess(chart_of(levels), remedy_of("recompute-old-logprobs"), [STAGE])
    assert found.decision == "keep"
    assert found.verdict.startswith("mismatch/first_ratio_off falls (0.398 off, ")
    assert found.comparisons[0].p <= LEVEL / LOOKS


def test_a_breached_guard_counts_more_than_a_target() -> None:
    def level(on: bool, step: int) -> dict[str, float]:
        wobble = 0.001 * (step % 3)
        return {
            "mismatch/first_ratio_off": 0.4 - 0.4 * on + wobble,
            "reward/mean": 0.5 - 0.3 * on + wobble,
        }

    found = assess(chart_of(level), remedy_of("recompute-old-logprobs"), [STAGE])
    assert found.decision == "undo"
    assert found.verdict.startswith("reward/mean falls by more than its tolerance (0.5 off, 0.2")


def test_the_wrong_direction_ends_a_treatment_early_and_a_faint_effect_gets_more_stages() -> None:
    remedy = remedy_of("recompute-old-logprobs")
    worse = chart_of(stepped("mismatch/first_ratio_off", 0.4, 0.6))
    assert assess(worse, remedy, [STAGE]).decision == "undo"
    # The readings agree with the drawn order, but not well enough for a third of the level.
    faint = chart_of(stepped("mismatch/first_ratio_off", 0.4, 0.37, noise=0.05, seed=3), LOOKS)
    decisions = [assess(faint, remedy, stages_of(n)).decision for n in range(1, LOOKS + 1)]
    assert decisions[0] == "continue"
    assert decisions[-1] != "continue"


def test_without_readings_there_is_no_assessment_in_favor() -> None:
    found = assess(chart_of(lambda *_: {}), remedy_of("tis"), [STAGE])
    assert (found.decision, found.comparisons) == ("undo", ())
    assert "too few readings of mismatch/first_ratio_off or reward/mean" in found.verdict


def test_an_infinite_level_may_fall() -> None:
    chart = Chart()
    for step in range(STAGE.end):
        on = step >= STAGE.first_step and STAGE.is_on(step)
        chart.observe(StepRecord(step, {"ratio/max": Max(1.5 if on else math.inf, "s1")}))
    (found,) = compare(chart, [Criterion("ratio/max", "down")], "target", [STAGE], LEVEL)
    assert found.moved
    assert found.untreated == math.inf
