import json
import os
import stat
import threading
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.treatment import mailbox
from grpodoctor.treatment.mailbox import Inbox, Mailbox, Refused, Request
from grpodoctor.treatment.requests import MOST_BYTES, MOST_REFUSED

STEP = 10


def request(number: int = 1, **changes: float) -> Request:
    return Request(
        f"r{number}", "apply", f"t{number}", "clip-higher", changes or {"clip_high": 0.3}
    )


def box(run_dir: Path) -> Path:
    path = run_dir / "mailbox"
    path.mkdir(exist_ok=True)
    return path


def refused(taken: list[Request | Refused]) -> Refused:
    (only,) = taken
    assert isinstance(only, Refused)
    return only


def test_requests_arrive_whole_and_in_order(tmp_path: Path) -> None:
    sent = [request(number, clip_high=number / 100) for number in range(20)]
    outbox = Mailbox(tmp_path)
    for each in sent:
        outbox.send(each)
    inbox = Inbox(tmp_path)
    assert inbox.take(STEP) == sent
    assert inbox.take(STEP) == []
    assert list((tmp_path / "mailbox").iterdir()) == []


def test_order_survives_a_clock_that_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter([1000, 500, 500, 2000])
    monkeypatch.setattr(mailbox.time, "time_ns", lambda: next(ticks))
    outbox = Mailbox(tmp_path)
    for number in range(4):
        outbox.send(request(number))
    assert [each.id for each in Inbox(tmp_path).take(STEP) if isinstance(each, Request)] == [
        "r0",
        "r1",
        "r2",
        "r3",
    ]


def test_a_run_without_a_mailbox_has_no_requests(tmp_path: Path) -> None:
    assert Inbox(tmp_path / "gone").take(STEP) == []
    assert Inbox(tmp_path).take(STEP) == []


def test_a_half_written_request_is_not_seen(tmp_path: Path) -> None:
    (box(tmp_path) / ".00001.json.tmp").write_bytes(b'{"id": "r1", "ki')
    assert Inbox(tmp_path).take(STEP) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b'{"id": "r1", "kind": "ap', "not JSON"),
        (b"[1, 2]", "the request is not valid"),
        (b"null", "the request is not valid"),
        (b"[" * 5000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"id": "r", "kind": "format-disk", "changes": {"a": 1}}', "kind is not valid"),
        (b'{"id": "r", "kind": "apply", "changes": {"a": 1}, "sudo": true}', "extra forbidden"),
        (b'{"id": "r", "kind": "apply", "changes": {"a": [1]}}', "changes.a"),
        (b'{"id": "r", "kind": "apply", "changes": {}}', "must have changes and no event"),
        (b'{"id": 7, "kind": "apply", "changes": {"a": 1}}', "id is not valid"),
        (b'{"id": "r", "kind": "note", "event": {"kind": "finding-raised"}}', "no valid step"),
        (
            b'{"id": "r", "kind": "note", "event": {"kind": "treatment-applied", "step": 1}}',
            "only the run itself",
        ),
        (b'{"id": "r", "kind": "note", "event": {"kind": ["finding-raised"], "step": 1}}', "kind"),
        (
            b'{"id": "r", "kind": "note", "event": {"kind": "finding-raised", "step": 1, "x": '
            + b"[" * 300
            + b"]" * 300
            + b"}}",
            "nested too deeply",
        ),
    ],
)
def test_a_bad_request_is_refused_and_removed(tmp_path: Path, data: bytes, reason: str) -> None:
    file = box(tmp_path) / "1.json"
    file.write_bytes(data)
    answer = refused(Inbox(tmp_path).take(STEP))
    assert answer.name == "1.json"
    assert reason in answer.reason
    assert not file.exists()


def test_reasons_quote_nothing_hostile(tmp_path: Path) -> None:
    name = "\x1b[31m[bold]<script>\n.json"
    (box(tmp_path) / name).write_text('{"\\u001b[31m<script>": 1, "id": "\\u202e"}')
    answer = refused(Inbox(tmp_path).take(STEP))
    assert (answer.name + answer.reason).isprintable()
    assert "\x1b" not in json.dumps(answer.body())


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(request().to_bytes())
    for target in ("/etc/passwd", str(secret), "nowhere"):
        link = box(tmp_path) / "1.json"
        link.symlink_to(target)
        assert refused(Inbox(tmp_path).take(STEP)).reason == "a symbolic link"
        assert not link.is_symlink()
    assert secret.exists()
    assert Path("/etc/passwd").exists()


def test_a_mailbox_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "1.json").write_bytes(request().to_bytes())
    run = tmp_path / "run"
    run.mkdir()
    (run / "mailbox").symlink_to(other)
    assert Inbox(run).take(STEP) == []
    assert (other / "1.json").exists()
    with pytest.raises(RunError, match="symbolic link"):
        Mailbox(run).send(request())


@pytest.mark.timeout(20)
def test_what_is_not_a_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(box(tmp_path) / "1.json")
    (box(tmp_path) / "2.json").mkdir()
    first, second = Inbox(tmp_path).take(STEP)
    for each in (first, second):
        assert isinstance(each, Refused)
        assert each.reason == "not a regular file"
    assert list(box(tmp_path).iterdir()) == []


def test_a_directory_that_cannot_be_removed_is_refused_once(tmp_path: Path) -> None:
    full = box(tmp_path) / "1.json"
    full.mkdir()
    (full / "child").touch()
    Mailbox(tmp_path).send(request())
    inbox = Inbox(tmp_path)
    sent, stuck = inbox.take(STEP)
    assert sent == request()
    assert isinstance(stuck, Refused)
    assert "cannot be removed" in stuck.reason
    assert inbox.take(STEP) == []


def test_a_request_that_cannot_be_removed_is_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mailbox(tmp_path).send(request())

    def read_only(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(mailbox.os, "unlink", read_only)
    monkeypatch.setattr(mailbox.os, "rmdir", read_only)
    inbox = Inbox(tmp_path)
    assert "cannot be removed" in refused(inbox.take(STEP)).reason
    assert inbox.take(STEP) == []


def test_large_files_are_refused_unread(tmp_path: Path) -> None:
    with (box(tmp_path) / "1.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it whole would end the process
    assert f"larger than {MOST_BYTES} bytes" in refused(Inbox(tmp_path).take(STEP)).reason


def test_a_flood_is_taken_in_bounded_parts(tmp_path: Path) -> None:
    for number in range(3000):
        (box(tmp_path) / f"{number:05d}.json").write_bytes(b"junk")
    inbox = Inbox(tmp_path)
    assert [each.name for each in inbox.take(STEP) if isinstance(each, Refused)] == [
        *(f"{number:05d}.json" for number in range(MOST_REFUSED)),
        f"{mailbox.MOST_PER_CALL - MOST_REFUSED} more requests",
    ]
    assert sum(1 for _ in box(tmp_path).iterdir()) == 3000 - mailbox.MOST_PER_CALL


def test_a_listing_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MOST_LISTED", 5)
    for number in range(20):
        (box(tmp_path) / f"{number}.json").touch()
    Inbox(tmp_path).take(STEP)
    assert len(list(box(tmp_path).iterdir())) == 15


def test_a_mailbox_full_of_what_cannot_be_removed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MOST_STUCK", 3)
    for number in range(3):
        (box(tmp_path) / f"{number}.json" / "child").mkdir(parents=True)
    inbox = Inbox(tmp_path)
    assert len(inbox.take(STEP)) == 3
    (box(tmp_path) / "9.json").write_bytes(request().to_bytes())
    assert inbox.take(STEP) == []


def test_a_sender_stops_when_nobody_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MOST_PENDING", 5)
    outbox = Mailbox(tmp_path)
    for number in range(5):
        outbox.send(request(number))
    with pytest.raises(RunError, match="no run reads them"):
        outbox.send(request())
    Inbox(tmp_path).take(STEP)
    outbox.send(request())


def test_a_sender_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write to the mailbox: No such file"):
        Mailbox(tmp_path / "gone").send(request())
    (tmp_path / "mailbox").write_text("a file")
    with pytest.raises(RunError, match="cannot write to the mailbox"):
        Mailbox(tmp_path).send(request())
    note = Request("n", "note", event={"kind": "finding-raised", "step": 1, "x": "y" * MOST_BYTES})
    with pytest.raises(RunError, match="too large"):
        Mailbox(tmp_path).send(note)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory(tmp_path: Path) -> None:
    box(tmp_path).chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(RunError, match="Permission denied"):
        Mailbox(tmp_path).send(request())


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mailbox.os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        Mailbox(tmp_path).send(request())
    assert list(box(tmp_path).iterdir()) == []


def test_a_mailbox_that_cannot_be_closed_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def broken(fd: int) -> None:
        close(fd)
        raise OSError(5, "Input/output error")

    inbox = Inbox(tmp_path)
    Mailbox(tmp_path).send(request())
    monkeypatch.setattr(mailbox.os, "close", broken)
    assert len(inbox.take(STEP)) == 1
    assert inbox.take(STEP) == []


def test_a_request_that_is_not_read_for_lack_of_memory_is_taken_at_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [request(number) for number in range(3)]
    for each in sent:
        Mailbox(tmp_path).send(each)
    inbox, parse, calls = Inbox(tmp_path), Request.from_bytes, []

    def parse_two(data: bytes) -> Request:
        calls.append(data)
        if len(calls) == 2:
            raise MemoryError
        return parse(data)

    monkeypatch.setattr(Request, "from_bytes", parse_two)
    assert inbox.take(STEP) == sent[:1]
    assert inbox.take(STEP) == sent[1:]


def test_senders_and_taker_at_once_lose_nothing(tmp_path: Path) -> None:
    box(tmp_path)

    def send(sender: int) -> None:
        outbox = Mailbox(tmp_path)
        for number in range(50):
            outbox.send(request(100 * sender + number))

    senders = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in senders:
        thread.start()
    inbox, taken = Inbox(tmp_path), list[Request | Refused]()
    while any(thread.is_alive() for thread in senders):
        taken += inbox.take(STEP)
    for thread in senders:
        thread.join(timeout=30)
    while more := inbox.take(STEP):
        taken += more
    assert {each.id for each in taken if isinstance(each, Request)} == {
        f"r{100 * sender + number}" for sender in range(3) for number in range(50)
    }
    assert len(taken) == 150


def note(step: int, text: str = "x") -> Request:
    event = {"kind": "finding-raised", "step": step, "summary": text}
    return Request(f"n{step}", "note", event=event)


def test_a_mailbox_that_all_users_may_write_to_is_refused_once(tmp_path: Path) -> None:
    Mailbox(tmp_path).send(request())
    box(tmp_path).chmod(0o777)
    inbox = Inbox(tmp_path)
    assert "every user may write to it" in refused(inbox.take(STEP)).reason
    assert inbox.take(STEP) == []
    box(tmp_path).chmod(0o755)
    assert inbox.take(STEP) == [request()]


@pytest.mark.parametrize("owned", ["mailbox", "file"])
def test_orders_of_another_user_are_refused(
    owned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mailbox(tmp_path).send(request())
    (file,) = box(tmp_path).iterdir()
    stranger = 54321
    if os.geteuid() == 0:
        os.chown(file if owned == "file" else box(tmp_path), stranger, -1)
    else:
        pytest.skip("only root can give a file away")
    assert "another user" in refused(Inbox(tmp_path).take(STEP)).reason


def test_a_flood_of_bad_files_is_counted_and_costs_no_request(tmp_path: Path) -> None:
    for number in range(20):
        (box(tmp_path) / f"{number:020d}-bad.json").write_text("{")
    Mailbox(tmp_path).send(request())
    taken = Inbox(tmp_path).take(STEP)
    assert request() in taken
    refusals = [each for each in taken if isinstance(each, Refused)]
    assert len(refusals) == MOST_REFUSED + 1
    assert refusals[-1].name == "17 more requests"


def test_a_note_about_the_future_is_forged(tmp_path: Path) -> None:
    Mailbox(tmp_path).send(note(STEP))
    Mailbox(tmp_path).send(note(STEP + 1))
    now, later = Inbox(tmp_path).take(STEP)
    assert now == note(STEP)
    assert isinstance(later, Refused)
    assert "a note about a step after the present step 10" in later.reason


def test_the_texts_of_a_forged_note_are_cut(tmp_path: Path) -> None:
    Mailbox(tmp_path).send(note(STEP, "x" * 10_000))
    (taken,) = Inbox(tmp_path).take(STEP)
    assert isinstance(taken, Request)
    assert len(taken.as_event().body["summary"]) == 500


def later(number: int, from_step: int, kind: str = "apply", treatment: str = "t") -> Request:
    return Request(
        f"{treatment}/{number}",
        kind,  # type: ignore[arg-type]
        treatment,
        "clip-higher",
        {"clip_high": 0.3},
        from_step=from_step,
    )


def test_a_request_for_a_later_step_waits_in_the_mailbox(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path), Mailbox(tmp_path)
    assert inbox.take(1) == []
    for number, from_step in ((1, 12), (2, 11), (3, 5)):
        outbox.send(later(number, from_step))
    assert inbox.take(STEP) == [later(3, 5)]
    assert len(list(box(tmp_path).iterdir())) == 2
    assert inbox.take(11) == [later(2, 11)]
    assert inbox.take(12) == [later(1, 12)]
    assert inbox.take(13) == []
    assert list(box(tmp_path).iterdir()) == []


def test_a_run_that_needs_steps_to_apply_a_request_gets_it_earlier(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    assert inbox.take(1) == []
    Mailbox(tmp_path).send(later(1, 12))
    assert inbox.take(9, ahead=2) == []
    assert inbox.take(10, ahead=2) == [later(1, 12)]


def test_undoing_a_treatment_drops_its_waiting_requests_alone(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path), Mailbox(tmp_path)
    assert inbox.take(1) == []
    outbox.send(later(1, 20))
    outbox.send(later(2, 20, treatment="other"))
    undo = Request("t/undo", "undo", "t", "clip-higher", {"clip_high": 0.2})
    outbox.send(undo)
    assert inbox.take(STEP) == [undo]
    assert inbox.take(20) == [later(2, 20, treatment="other")]


def test_what_was_scheduled_for_an_earlier_process_is_refused(tmp_path: Path) -> None:
    """A run that is resumed must not be switched by a treatment of its former life."""
    Mailbox(tmp_path).send(later(1, 20))
    only = refused(Inbox(tmp_path).take(STEP))
    assert only.reason == "it was scheduled before this run began"
    assert list(box(tmp_path).iterdir()) == []


def test_the_same_request_of_two_observers_waits_once(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path), Mailbox(tmp_path)
    assert inbox.take(1) == []
    for _ in range(2):
        outbox.send(later(1, 20))
    assert inbox.take(STEP) == []
    assert inbox.take(20) == [later(1, 20)]


def test_a_flood_of_waiting_requests_is_refused(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path), Mailbox(tmp_path)
    assert inbox.take(1) == []
    for number in range(mailbox.MOST_WAITING + 5):
        outbox.send(later(number, 20))
    taken = [each for _ in range(4) for each in inbox.take(STEP)]
    assert all(isinstance(each, Refused) for each in taken)
    assert "64 other requests are waiting" in str(taken)
    assert len(list(box(tmp_path).iterdir())) == mailbox.MOST_WAITING


def test_a_note_cannot_wait(tmp_path: Path) -> None:
    note = Request("n", "note", event={"kind": "treatment-kept", "step": 1}, from_step=20)
    Mailbox(tmp_path).send(note)
    assert refused(Inbox(tmp_path).take(STEP)).reason == "a note must not have a step to wait for"
