import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.runs.records import Event
from grpodoctor.treatment.requests import (
    MOST_BYTES,
    Refused,
    Request,
    note_request,
    validate,
)
from grpodoctor.vocabulary.knobs import Setting

LIVE: dict[str, Setting] = {"clip_high": 0.2, "dynamic_sampling": False, "max_length": 64}


def ask(changes: dict[str, Setting], kind: str = "apply") -> Request:
    return Request("r", kind, "t", "x", changes)  # type: ignore[arg-type]


def test_a_change_within_bounds_is_granted_in_the_knobs_own_type() -> None:
    granted = validate(ask({"clip_high": 1, "dynamic_sampling": True}), LIVE)
    assert granted == {"clip_high": 1.0, "dynamic_sampling": True}
    assert isinstance(granted, dict)
    assert isinstance(granted["clip_high"], float)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clip_high": 99.0}, "from 0 to 10"),
        ({"clip_high": True}, "from 0 to 10"),
        ({"clip_high": "0.3"}, "from 0 to 10"),
        ({"dynamic_sampling": 1}, "true or false"),
        ({"max_length": 128}, "cannot change during training"),
        ({"learning_rate": 1e-5}, "cannot change the knob learning_rate"),
        ({"\x1b[31m": 1.0}, "cannot change the knob"),
        ({"clip_high": 0.3, "dynamic_sampling": "yes"}, "true or false"),
        ({"clip_high": 0.2}, "already in force"),
    ],
)
def test_what_is_not_allowed_is_refused_whole(changes: dict[str, Setting], reason: str) -> None:
    answer = validate(ask(changes), LIVE)
    assert isinstance(answer, Refused)
    assert reason in answer.reason
    assert answer.reason.isprintable()
    assert answer.body()["changes"] == changes


def test_undoing_what_is_not_in_force_is_no_error() -> None:
    assert validate(ask({"clip_high": 0.2}, "undo"), LIVE) == {"clip_high": 0.2}


_json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(
    st.builds(
        Request,
        id=st.text(max_size=30),
        kind=st.sampled_from(["apply", "undo"]),
        treatment_id=st.text(max_size=30),
        remedy=st.text(max_size=30),
        changes=st.dictionaries(
            st.text(max_size=10),
            st.booleans()
            | st.integers(-(2**53), 2**53)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=20),
            min_size=1,
            max_size=5,
        ),
    )
)
def test_requests_survive_the_mail(request: Request) -> None:
    read = Request.from_bytes(request.to_bytes())
    assert read == request
    assert {name: type(value) for name, value in read.changes.items()} == {
        name: type(value) for name, value in request.changes.items()
    }


@given(st.binary(max_size=200) | _json.map(str).map(str.encode))
def test_any_bytes_give_a_request_or_a_reason(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(Request.from_bytes(data), Request)


@given(st.dictionaries(st.text(max_size=10), _json, max_size=5))
def test_any_event_becomes_a_note_that_can_be_taken(body: dict[str, object]) -> None:
    event = Event("finding-raised", 3, {**body, "summary": "<b>" * 50_000})
    data = note_request(event, "n").to_bytes()
    assert len(data) <= MOST_BYTES
    note = Request.from_bytes(data).as_event()
    assert (note.kind, note.step) == ("finding-raised", 3)
    assert Event.from_line(note.to_line()).kind == "finding-raised"


def test_only_notes_have_events() -> None:
    with pytest.raises(ValueError, match="not a note"):
        ask({"clip_high": 0.3}).as_event()
