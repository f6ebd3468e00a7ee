"""What a rule sees: windows, baselines, knobs, and a run that goes back."""

import gc
import math
import statistics
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.runs.chart import MOST_METRICS, Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.runs.series import BASELINE, WINDOW, Series, once_per_reading
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Absent, Max, Mean, NotApplicable, Reading
from tests.samples import sampled

NAME = "entropy/mean"


def observe(chart: Chart, step: int, value: float, **knobs: Setting) -> None:
    chart.observe(StepRecord(step, {NAME: Mean.of([value])}, knobs))


def charted(values: list[float]) -> Chart:
    chart = Chart()
    for step, value in enumerate(values):
        observe(chart, step, value)
    return chart


def test_the_baseline_is_the_runs_own_start() -> None:
    start = [1.0, 1.2, 0.8, 1.1, 0.9, 1.0, 1.3, 0.7, 1.0, 1.0]
    chart = charted(start[:-1])
    assert chart.baseline(NAME) is None
    observe(chart, 9, start[-1])
    for step in range(10, 500):
        observe(chart, step, 50.0)
    baseline = chart.baseline(NAME)
    assert baseline is not None
    assert baseline.level == statistics.median(start) == 1.0
    assert math.isclose(baseline.spread, 1.4826 * 0.1)


def test_infinity_is_excluded_from_the_baseline() -> None:
    chart = Chart()
    for step in range(BASELINE + 1):
        value = math.inf if step == 4 else 2.0
        chart.observe(StepRecord(step, {"ratio/max": Max(value, "a")}))
    assert math.inf in chart.series("ratio/max").tail(99)
    baseline = chart.baseline("ratio/max")
    assert baseline is not None
    assert (baseline.level, baseline.spread) == (2.0, 0.0)


def test_present_absent_and_not_applicable_stay_apart() -> None:
    chart = Chart()
    readings: dict[str, Reading] = {
        "kl/reference/k3": NotApplicable("no penalty"),
        NAME: Mean.of([]),
    }
    chart.observe(StepRecord(0, readings))
    assert isinstance(chart.reading("accuracy/train"), Absent)
    assert isinstance(chart.reading("kl/reference/k3"), NotApplicable)
    assert chart.value(NAME) is None
    assert chart.names() == []
    assert len(chart.series("accuracy/train")) == 0


def test_a_window_holds_the_latest_readings() -> None:
    chart = charted([float(step) for step in range(1000)])
    series = chart.series(NAME)
    assert len(series) == WINDOW
    assert series.tail(3) == [997.0, 998.0, 999.0]
    assert series.steps(3) == [997, 998, 999]
    assert series.tail(10_000) == [float(step) for step in range(1000 - WINDOW, 1000)]
    assert (series.last, series.last_step, chart.steps_seen) == (999.0, 999, 1000)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=60),
    st.data(),
)
def test_going_back_forgets_the_later_steps(values: list[float], data: st.DataObject) -> None:
    back = data.draw(st.integers(0, len(values)))
    knobs = [data.draw(st.sampled_from([0.1, 0.2])) for _ in values]
    straight, detour = Chart(), Chart()
    for step, value in enumerate(values):
        observe(detour, step, value, clip_low=knobs[step])
        if step < back:
            observe(straight, step, value, clip_low=knobs[step])
    for chart in (straight, detour):
        observe(chart, back, 9.0)
    assert list(straight.series(NAME)) == list(detour.series(NAME))
    assert straight.baseline(NAME) == detour.baseline(NAME)
    assert straight.knobs == detour.knobs
    assert straight.knobs_changed_at == detour.knobs_changed_at
    assert straight.steps_seen == detour.steps_seen


def test_going_back_to_the_beginning_restores_the_first_knobs() -> None:
    chart = Chart(Manifest(knobs={"clip_low": 0.2}))
    for step in range(300):
        observe(chart, step, 1.0, **({"clip_low": 0.3, "loss": "x"} if step == 50 else {}))
    assert (chart.knobs, chart.knobs_changed_at) == ({"clip_low": 0.3, "loss": "x"}, 50)
    observe(chart, 0, 1.0)
    assert (chart.knobs, chart.knobs_changed_at) == ({"clip_low": 0.2}, -1)
    assert (chart.steps_seen, chart.baseline(NAME)) == (1, None)


def test_repeating_a_knob_is_not_a_change() -> None:
    chart = Chart(Manifest(knobs={"clip_low": 0.2}))
    observe(chart, 3, 1.0, clip_low=0.2)
    assert chart.knobs_changed_at == -1


def test_extremes_are_levels_and_not_outliers() -> None:
    values = [1.0] * 20 + [99.0] + [1.0] * 9 + [2.0] * 10 + [1.0] * 200
    series = charted(values).series(NAME)
    assert series.highest is not None
    assert series.lowest is not None
    assert (series.highest.level, series.highest.step) == (2.0, 39)
    assert series.lowest.level == 1.0


def test_a_log_that_invents_names_does_not_grow_the_chart() -> None:
    chart = Chart()
    for step in range(MOST_METRICS + 500):
        chart.observe(StepRecord(step, {f"made/up-{step}": Mean.of([1.0])}))
    assert len(chart.names()) == MOST_METRICS
    assert chart.value(f"made/up-{chart.step}") == 1.0


def _growth(steps: int) -> int:
    """Bytes held after all steps minus those held after 7 tenths, when all windows are full."""
    readings = [
        {f"metric/{number}": Mean.of([float(number + phase % 7)]) for number in range(20)}
        for phase in range(13)
    ]
    chart = Chart()

    def run(start: int, end: int) -> int:
        for step in range(start, end):
            knobs = {"clip_low": step % 5 / 10} if step % 100 == 0 else {}
            chart.observe(StepRecord(step, readings[step % 13], knobs))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tenth = steps // 10
    run(0, 6 * tenth)
    tracemalloc.start()
    before = run(6 * tenth, 7 * tenth)  # the windows now hold traced readings only
    after = run(7 * tenth, steps)
    tracemalloc.stop()
    assert chart.steps_seen == steps
    assert all(len(chart.series(name)) == WINDOW for name in chart.names())
    return after - before


@pytest.mark.slow
@pytest.mark.parametrize("steps", sampled([10_000, 50_000], {10_000}))
def test_memory_is_constant_over_many_steps(steps: int) -> None:
    # A process of its own: threads that other tests left behind allocate, too.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert abs(pool.submit(_growth, steps).result()) < 50_000


def test_a_mean_of_huge_readings_does_not_overflow() -> None:
    series = Series()
    for step in range(4):
        series.append(step, 1.5e308)
    assert series.mean(4) == pytest.approx(1.5e308)


def test_a_result_is_kept_until_the_next_reading() -> None:
    asked: list[int] = []

    @once_per_reading
    def total(series: Series, count: int) -> float:
        asked.append(count)
        return sum(series.tail(count))

    series = Series()
    for step in range(4):
        series.append(step, float(step))
    assert [total(series, 2), total(series, 2), total(series, 3)] == [5, 5, 6]
    assert asked == [2, 3]
    series.append(4, 4.0)
    assert total(series, 2) == 7
    series.rewind(3)
    assert total(series, 2) == 3
    assert asked == [2, 3, 2, 2]


def test_the_whole_run_is_its_finite_readings() -> None:
    series = Series()
    for step in range(25):
        series.append(step, math.inf if step % 10 == 3 else float(step))
    assert series.whole_run() == [step for step in range(25) if step % 10 != 3]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(0, 200),
)
def test_the_extremes_of_the_window_are_those_of_its_readings(
    readings: list[tuple[int, bool]], repeated: int, rewound: int
) -> None:
    """They are kept between questions, so ask at some steps only, and after the run went back."""
    series = Series()
    for step, (value, is_asked) in enumerate(readings * repeated):
        series.append(step, float(value))
        if is_asked:
            assert series.window_max() == max(series.tail(WINDOW))
            assert series.window_min() == min(series.tail(WINDOW))
            assert series.is_within(2, 7) == all(2 <= each <= 7 for _, each in series)
    series.rewind(rewound)
    for step, (value, _) in enumerate(readings, start=rewound):
        series.append(step, 9.0 - value)
        assert series.window_max() == max(series.tail(WINDOW))
        assert series.window_min() == min(series.tail(WINDOW))


@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.7, 1.3, 1e308, -1e308, math.inf]), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 5),
    st.integers(0, 200),
)
def test_the_noise_is_that_of_the_latest_readings(
    readings: list[tuple[float, bool]], repeated: int, rewound: int
) -> None:
    """Distances are kept between questions, so ask at some steps only, and after a rewind."""
    series = Series()
    for step, (value, is_asked) in enumerate(readings * repeated):
        series.append(step, value)
        if is_asked:
            assert all(_has_noise_of_its_tail(series, count) for count in (1, 30, WINDOW))
    series.rewind(rewound)
    for step, (value, _) in enumerate(readings, start=rewound):
        series.append(step, value)
        assert all(_has_noise_of_its_tail(series, count) for count in (2, WINDOW))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(0, 200),
)
def test_the_rises_are_those_of_the_window(
    readings: list[tuple[int, bool]], repeated: int, rewound: int
) -> None:
    """Bits are kept between questions, so ask at some steps only, and after a rewind."""
    series = Series()
    for step, (value, is_asked) in enumerate(readings * repeated):
        series.append(step, float(value))
        if is_asked:
            assert all(_rises_of_its_tail(series, n) == series.rises(n) for n in (0, 1, 29, 127))
    series.rewind(rewound)
    for step, (value, _) in enumerate(readings, start=rewound):
        series.append(step, 3.0 - value)
        assert _rises_of_its_tail(series, 29) == series.rises(29)


def _rises_of_its_tail(series: Series, count: int) -> int:
    changes = pairwise(series.tail(count + 1))
    return sum((after > before) << at for at, (before, after) in enumerate(reversed(list(changes))))


@pytest.mark.parametrize("odd", [math.nan, math.inf, None], ids=["nan", "infinite", "absent"])
def test_a_reading_without_a_number_leaves_the_others(odd: float | None) -> None:
    """The chart looks at single readings only if one of a step has no number."""
    chart = Chart()
    for step in range(3):
        reading: Reading = Absent() if odd is None else Mean(odd, 1)
        values: dict[str, Reading] = {
            "groups/zero_variance_rate": Mean(0.5, 1),
            "optimizer/loss": Mean(-math.inf, 1) if step == 1 else Mean(2.0, 1),
            NAME: reading if step == 1 else Mean(1.0, 1),
        }
        chart.observe(StepRecord(step, values))

    is_number = odd is not None and not math.isnan(odd)
    assert chart.series("groups/zero_variance_rate").tail(3) == [0.5] * 3
    assert chart.series("optimizer/loss").tail(3) == [2.0, -math.inf, 2.0]
    assert chart.series(NAME).tail(3) == ([1.0, math.inf, 1.0] if is_number else [1.0, 1.0])
    assert chart.is_complete


def _has_noise_of_its_tail(series: Series, count: int) -> bool:
    noise, expected = series.noise(count), step_noise(series.tail(count))
    return noise == expected or (math.isnan(noise) and math.isnan(expected))


def test_the_readings_since_a_step_are_those_of_the_window() -> None:
    series = Series()
    for step in range(0, 400, 2):
        series.append(step, float(step))
    assert series.since(395) == [396.0, 398.0]
    assert series.since(396) == [396.0, 398.0]
    assert series.since(400) == []
    assert series.since(0) == series.tail(WINDOW)
    assert series.window_step == series.steps(WINDOW)[0]
