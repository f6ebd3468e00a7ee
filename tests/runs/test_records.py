"""Every record survives its line of JSON, and a line that is none says why."""

import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.support.safe_text import clean_text
from grpodoctor.vocabulary.values import (
    ABSENT,
    Max,
    Mean,
    Min,
    NotApplicable,
    Quantiles,
    Rate,
    Reading,
    scalar,
)

ANY_FLOATS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6)
COUNTS = st.integers(0, 10**6)
READINGS: st.SearchStrategy[Reading] = st.one_of(
    st.just(ABSENT),
    st.text().map(NotApplicable),
    ANY_FLOATS.map(Mean.of),
    ANY_FLOATS.map(Max.of),
    ANY_FLOATS.map(Min.of),
    ANY_FLOATS.map(Quantiles.of),
    st.builds(Rate, COUNTS, COUNTS),
)


@given(READINGS, st.integers(0, 2**62))
def test_every_reading_survives_its_line(reading: Reading, step: int) -> None:
    record = StepRecord(step, {"a/b": reading}, {"clip_low": 0.2, "loss": "x", "on": True}, 12.5)
    line = record.to_line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    again = StepRecord.from_line(line)
    assert (again.step, again.knobs, again.time) == (record.step, record.knobs, record.time)
    back = again.values["a/b"]
    if isinstance(reading, Mean):
        assert isinstance(back, Mean)
        assert (back.count, back.nonfinite) == (reading.count, reading.nonfinite)
        assert back.value == pytest.approx(reading.value, rel=1e-12, nan_ok=True)
    else:
        assert back == reading
        assert scalar(back) == scalar(reading)


def test_a_total_beyond_the_largest_double_is_not_lost() -> None:
    mean = Mean.of([1.7e308] * 9)
    (back,) = StepRecord.from_line(StepRecord(0, {"a": mean}).to_line()).values.values()
    assert isinstance(back, Mean)
    assert back.value == pytest.approx(1.7e308, rel=1e-12)
    assert back.count == 9


def test_a_quantile_of_a_bucket_beyond_the_doubles_is_finite() -> None:
    line = b'{"step":0,"values":{"a":{"quantiles":{"positive":{"99999999":1},"negative":{},'
    (sketch,) = StepRecord.from_line(line + b'"zeros":0,"nonfinite":0}}}}').values.values()
    value = scalar(sketch)
    assert value is not None
    assert math.isfinite(value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "unexpected end|empty"),
        (b"[1]", "not an object"),
        (b'{"values":{}}', "no step number"),
        (b'{"step":1}', "no values"),
        (b'{"step":1,"values":{"a":7}}', "not a reading: 7"),
        (b'{"step":1,"values":{"a":{"mean":["x",1]}}}', "not a reading"),
        (b'{"step":1,"values":{},"knobs":{"a":null}}', "a knob without a valid value"),
    ],
)
def test_a_line_that_is_no_step_says_why(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        StepRecord.from_line(line)


def test_an_event_cannot_pretend_to_be_another() -> None:
    event = Event("warning", 3, {"kind": "finished", "step": 9, "note": {1: float("inf")}}, 2.0)
    again = Event.from_line(event.to_line())
    assert (again.kind, again.step, again.time) == ("warning", 3, 2.0)
    assert again.body == {"note": {"1": None}}


def test_a_manifest_takes_any_configuration() -> None:
    manifest = Manifest(config={"path": object(), "lr": float("nan"), "text": "\ud800"}, seed=1)
    again = Manifest.from_json(manifest.to_json())
    assert again.seed == 1
    assert again.config["lr"] is None
    assert again.config["text"] == "?"


@given(st.text(alphabet=st.characters()))
def test_clean_text_is_unchanged(text: str) -> None:
    surrogate = any("\ud800" <= letter <= "\udfff" for letter in text)
    cleaned = clean_text(text)
    assert orjson.loads(orjson.dumps(cleaned)) == cleaned
    assert surrogate or cleaned == text


def test_a_metric_recorded_under_its_former_name_is_loaded_under_the_current_one() -> None:
    line = b'{"step": 3, "values": {"optimiser/grad_norm": {"mean": [2.0, 1]}}}'
    assert list(StepRecord.from_line(line).values) == ["optimizer/grad_norm"]
