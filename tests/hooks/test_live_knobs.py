"""Knobs of a live training, and requests that change them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.knob_requests import KnobRequests
from grpodoctor.hooks.live_knobs import LiveKnobs, word_for
from grpodoctor.hooks.ranks.exchange import RankExchange
from grpodoctor.runs.records import Event
from grpodoctor.treatment.mailbox import Inbox, Mailbox
from grpodoctor.treatment.requests import Request, note_request


class Loop:
    """A training with two settings."""

    def __init__(self) -> None:
        self.rate: object = np.float64(0.001)
        self.clip = 0.2
        self.knobs = LiveKnobs()
        self.knobs.add("learning_rate", get=lambda: self.rate, set=self.set_rate, high=0.01)
        self.knobs.add("clip_high", get=lambda: self.clip, set=self.set_clip)
        self.knobs.read_only("group_size", 8)

    def set_rate(self, value: float) -> None:
        self.rate = value

    def set_clip(self, value: float) -> None:
        if value > 5:
            self.clip = -1.0
            raise RuntimeError("too wide")
        self.clip = value


def test_settings_and_changes() -> None:
    loop = Loop()
    assert loop.knobs.settings() == {"learning_rate": 0.001, "clip_high": 0.2, "group_size": 8}
    assert loop.knobs.changeable().keys() == {"learning_rate", "clip_high"}
    assert loop.knobs.all_settings() == loop.knobs.settings()
    assert loop.knobs.changes() == {}
    loop.rate = 0.002
    assert loop.knobs.changes() == {"learning_rate": 0.002}
    loop.rate = None
    assert "learning_rate" not in loop.knobs.settings()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.5}, "at most 0.01"),
        ({"learning_rate": -1}, "number from 0 to 1"),
        ({"group_size": 4}, "cannot change"),
        ({"temperature": 0.5}, "cannot change"),
        ({"learning_rate": 0.002, "clip_high": 6}, "RuntimeError: too wide"),
    ],
)
def test_a_change_is_applied_as_a_whole_or_not_at_all(
    changes: dict[str, float], message: str
) -> None:
    loop = Loop()
    with pytest.raises(ConfigError, match=message):
        loop.knobs.apply(changes)
    assert loop.knobs.settings() == {"learning_rate": 0.001, "clip_high": 0.2, "group_size": 8}


@pytest.mark.parametrize(
    ("name", "message"), [("clip_hi", "clip_high"), ("group_size", "during training")]
)
def test_a_knob_that_cannot_change_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LiveKnobs().add(name, get=lambda: 1, set=print)


def requests_of(loop: Loop, run_dir: Path) -> tuple[KnobRequests, list[Event]]:
    events: list[Event] = []
    return KnobRequests(loop.knobs, Inbox(run_dir), None, events.append), events


def test_a_request_is_applied_at_the_next_step_and_answered(tmp_path: Path) -> None:
    loop = Loop()
    requests, events = requests_of(loop, tmp_path)
    mailbox = Mailbox(tmp_path)
    mailbox.send(Request("1", "apply", "t", "lower-learning-rate", {"learning_rate": 0.0005}))
    mailbox.send(Request("2", "apply", "t", "clip-higher", {"clip_high": 6.0}))
    mailbox.send(note_request(Event("finding-raised", 3, {"code": "ENT001"}), "n"))
    requests.begin_step(7)
    assert loop.rate == 0.0005
    assert loop.clip == 0.2
    assert [(event.kind, event.step) for event in events] == [
        ("finding-raised", 3),
        ("treatment-applied", 7),
        ("treatment-refused", 7),
    ]
    assert events[1].body["before"] == {"learning_rate": 0.001}
    assert events[1].body["after"] == {"learning_rate": 0.0005}
    assert "too wide" in events[2].body["reason"]


@pytest.mark.parametrize(
    "forged",
    [
        b"{",
        b"\x80\x04K\x01.",
        b'{"id": "1", "kind": "apply", "changes": {"learning_rate": "1e9"}}',
        b'{"id": "1", "kind": "apply", "changes": {"learning_rate": 0.9}}',
        b'{"id": "1", "kind": "apply", "changes": {"__class__": 1}}',
        b'{"id": "1", "kind": "note", "event": {"kind": "finished", "step": 1}}',
    ],
)
def test_a_forged_request_changes_nothing(tmp_path: Path, forged: bytes) -> None:
    loop = Loop()
    requests, events = requests_of(loop, tmp_path)
    (tmp_path / "mailbox").mkdir()
    (tmp_path / "mailbox" / "1.json").write_bytes(forged)
    requests.begin_step(1)
    assert loop.rate == 0.001
    assert [event.kind for event in events] == ["treatment-refused"]
    assert not any((tmp_path / "mailbox").iterdir())


def test_ranks_change_a_knob_at_the_same_step(
    tmp_path: Path, exchanges: Callable[[int], list[RankExchange]]
) -> None:
    loops, events = [Loop(), Loop()], []
    inboxes = [Inbox(tmp_path), None]
    ranks = [
        KnobRequests(loop.knobs, inbox, exchange, events.append)
        for loop, inbox, exchange in zip(loops, inboxes, exchanges(2), strict=True)
    ]
    seen = []
    for step in range(5):
        if step == 1:
            change = {"learning_rate": 0.0005}
            Mailbox(tmp_path).send(Request("1", "apply", "t", "lower", change))
        for rank in reversed(ranks):  # the rank that does not read the mailbox goes first
            rank.begin_step(step)
        seen.append([loop.rate for loop in loops])
    assert seen[:3] == [[0.001, 0.001]] * 3
    assert seen[3:] == [[0.0005, 0.0005]] * 2
    assert [(event.kind, event.step) for event in events] == [("treatment-applied", 3)] * 2


def test_a_setting_without_a_word_names_the_others() -> None:
    knobs = LiveKnobs()
    words = {"mask": True, "none": False}
    knobs.add("overlong", get=lambda: "none", set=lambda each: word_for(each, words, "filter"))
    with pytest.raises(ConfigError, match="use one of mask, none, or restart with another filter"):
        knobs.apply({"overlong": "soft-punishment"})
