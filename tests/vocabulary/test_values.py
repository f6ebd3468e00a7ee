import json
import math
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.vocabulary.values import (
    ABSENT,
    Max,
    Mean,
    Min,
    NotApplicable,
    Quantiles,
    Rate,
    exact_sum,
    merge,
    merge_all,
    reading_from_json,
    reading_to_json,
    scalar,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.lists(st.floats(), max_size=30)
IDS = st.lists(st.tuples(st.floats(), st.text("ab🙂", max_size=2)), max_size=30)
VALUES = st.one_of(
    NUMBERS.map(Mean.of),
    st.lists(st.booleans()).map(Rate.of),
    NUMBERS.map(Quantiles.of),
    IDS.map(lambda pairs: Max.of([v for v, _ in pairs], [i for _, i in pairs])),
    IDS.map(lambda pairs: Min.of([v for v, _ in pairs], [i for _, i in pairs])),
)
READINGS = st.one_of(VALUES, st.just(ABSENT), st.text().map(NotApplicable))
SAME_KIND = st.one_of(
    *(
        st.tuples(kind, kind, kind)
        for kind in (
            st.one_of(NUMBERS.map(Mean.of), st.just(ABSENT), st.text("xy").map(NotApplicable)),
            IDS.map(lambda pairs: Max.of([v for v, _ in pairs], [i for _, i in pairs])),
            IDS.map(lambda pairs: Min.of([v for v, _ in pairs], [i for _, i in pairs])),
            NUMBERS.map(Quantiles.of),
            st.lists(st.booleans()).map(Rate.of),
        )
    )
)


@given(st.lists(FINITE, max_size=60))
def test_a_sum_is_exact(numbers):
    expected = sum(map(Fraction, numbers), Fraction(0))
    assert exact_sum(np.array(numbers, dtype=np.float64)) == expected


def test_a_sum_is_exact_over_many_numbers_of_every_size():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=50_000) * 10.0 ** rng.integers(-320, 300, 50_000)
    assert exact_sum(numbers) == sum(map(Fraction, numbers.tolist()), Fraction(0))


@pytest.mark.parametrize("kind", [Mean, Quantiles])
@given(parts=st.lists(NUMBERS, min_size=1, max_size=5))
def test_merging_equals_computing_on_the_union(kind, parts):
    merged = kind.of(parts[0])
    for part in parts[1:]:
        merged = merged.merge(kind.of(part))
    assert merged == kind.of(list(chain.from_iterable(parts)))


@given(st.lists(st.lists(st.booleans()), min_size=1, max_size=5))
def test_merged_rates_equal_the_rate_of_the_union(parts):
    merged = Rate.of(parts[0])
    for part in parts[1:]:
        merged = merged.merge(Rate.of(part))
    assert merged == Rate.of(list(chain.from_iterable(parts)))


@pytest.mark.parametrize("kind", [Max, Min])
@given(parts=st.lists(IDS, min_size=1, max_size=5))
def test_merged_extremes_keep_the_sequence_of_the_union(kind, parts):
    def of(pairs):
        return kind.of([v for v, _ in pairs], [i for _, i in pairs])

    merged = of(parts[0])
    for part in parts[1:]:
        merged = merged.merge(of(part))
    assert merged == of(list(chain.from_iterable(parts)))


@given(SAME_KIND)
def test_merging_is_commutative_and_associative(readings):
    a, b, c = readings
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(READINGS)
def test_a_value_overrides_absent_and_not_applicable(reading):
    assert merge(ABSENT, reading) == merge(reading, ABSENT) == reading
    if not isinstance(reading, NotApplicable) and reading is not ABSENT:
        assert merge(NotApplicable("why"), reading) == reading


def test_values_of_different_kinds_do_not_merge():
    with pytest.raises(TypeError, match="Mean with Rate"):
        merge(Mean.of([1.0]), Rate.of([True]))


@given(st.dictionaries(st.sampled_from("abc"), NUMBERS.map(Mean.of)),
       st.dictionaries(st.sampled_from("abc"), NUMBERS.map(Mean.of)))  # fmt: skip
def test_sets_of_readings_merge_name_by_name(left, right):
    merged = merge_all(left, right)
    assert merged.keys() == left.keys() | right.keys()
    for name, reading in merged.items():
        assert reading == merge(left.get(name, ABSENT), right.get(name, ABSENT))


@given(READINGS)
def test_a_reading_survives_strict_json(reading):
    text = json.dumps(reading_to_json(reading), allow_nan=False)
    back = reading_from_json(json.loads(text))
    if not isinstance(reading, Mean):
        assert back == reading
        return
    assert isinstance(back, Mean)
    assert (back.count, back.nonfinite) == (reading.count, reading.nonfinite)
    rounded = reading.to_json()[0]
    assert Mean.from_json([rounded, 1]).total == back.total
    assert json.dumps(reading_to_json(back)) == text


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=50))
def test_a_mean_is_the_exact_mean_rounded(numbers):
    true = sum(map(Fraction, numbers)) / len(numbers)
    assert Mean.of(numbers).value == pytest.approx(float(true), rel=1e-15, abs=1e-300)


@given(st.lists(st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6) | st.just(0.0), min_size=1),
       st.floats(0, 1))  # fmt: skip
def test_a_quantile_has_the_promised_relative_error(numbers, q):
    ordered = sorted(numbers)
    position = q * (len(ordered) - 1)
    near = {ordered[math.floor(position)], ordered[math.ceil(position)]}
    read = Quantiles.of(numbers).quantile(q)
    assert any(abs(read - each) <= 1.0001 * Quantiles.RELATIVE_ERROR * abs(each) for each in near)


def test_non_finite_entries_are_counted_and_never_summed():
    mean = Mean.of([1.0, math.inf, 3.0, math.nan])
    assert (mean.value, mean.count, mean.nonfinite) == (2.0, 2, 2)
    sketch = Quantiles.of([1.0, -math.inf, math.nan])
    assert (sketch.count, sketch.nonfinite) == (1, 2)
    assert Max.of([math.nan, -2.0], ["a", "b"]) == Max(-2.0, "b")
    assert Min.of([math.nan, -2.0], ["a", "b"]) == Min(-2.0, "b")


def test_an_empty_population_gives_nan_and_never_zero():
    for value in (Mean.of([]), Rate.of([]), Quantiles.of([])):
        assert scalar(value) is None
    assert scalar(ABSENT) is None
    assert scalar(NotApplicable("why")) is None
    assert scalar(Rate(0, 3)) == 0.0


@pytest.mark.parametrize(
    "data",
    [
        [],
        "mean",
        {},
        {"mean": [1.0]},
        {"mean": [1.0, 2], "rate": [1, 2]},
        {"median": 3},
        {"mean": [float("inf"), 2]},
        {"rate": ["a", 1]},
        {"quantiles": {"positive": 3}},
        {"max": [1.0]},
        7,
    ],
)
def test_other_json_is_not_a_reading(data):
    with pytest.raises(ValueError, match="not a reading"):
        reading_from_json(data)


@pytest.mark.parametrize("side", ["positive", "negative"])
def test_a_bucket_of_a_hundred_digits_is_refused(side: str) -> None:
    data = Quantiles.of([5e-324, 1.7e308, -1.0]).to_json()
    assert Quantiles.from_json(data) == Quantiles.of([5e-324, 1.7e308, -1.0])
    data[side] = {"9" * 100: 1}
    with pytest.raises(ValueError, match="beyond 64 bits"):
        Quantiles.from_json(data)
