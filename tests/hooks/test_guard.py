"""The boundary between a training and the instruments in it."""

import logging
import multiprocessing
import os

import pytest

from grpodoctor.errors import DataError
from grpodoctor.hooks.guard import Guard


def broken(*_: object) -> None:
    raise DataError("rewards of shape (3,)", where="step 4", remedy="give one per response")


def test_a_part_that_fails_is_off_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, str]] = []
    guard = Guard(lambda part, reason: told.append((part, reason)))
    calls: list[int] = []
    for _ in range(3):
        assert guard.run("rewards", broken) is None
        assert guard.run("lengths", lambda: calls.append(1) or 7) == 7
    assert len(calls) == 3
    reason = "rewards of shape (3,) (step 4); give one per response"
    assert told == [("rewards", reason)]
    assert guard.failed == {"rewards": reason}
    assert [record.getMessage() for record in caplog.records] == [
        f"rewards failed and is off from now on: {reason}; the training continues"
    ]


def test_a_failing_report_of_a_failure_does_not_reach_the_training() -> None:
    guard = Guard(broken)
    assert guard.run("rewards", broken) is None


def test_an_observed_function_returns_its_own_result_and_raises_its_own_error() -> None:
    guard = Guard()
    seen: list[object] = []

    def divide(a: int, b: int) -> float:
        return a / b

    observed = guard.after(divide, "tap", lambda result, *args: seen.append((result, args)))
    assert observed(6, 3) == 2
    assert seen == [(2, (6, 3))]
    with pytest.raises(ZeroDivisionError):
        observed(1, 0)
    assert guard.after(divide, "other", broken)(6, 3) == 2
    assert guard.failed.keys() == {"other"}


def test_interrupts_pass() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard().run("part", interrupt)


def test_model_text_in_a_reason_is_made_printable(caplog: pytest.LogCaptureFixture) -> None:
    def hostile() -> None:
        raise ValueError("\x1b[31mred\n" + "x" * 5000)

    guard = Guard()
    guard.run("part", hostile)
    assert "\x1b" not in caplog.text
    assert len(guard.failed["part"]) < 400


def test_nothing_runs_in_a_fork(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    context = multiprocessing.get_context("fork")
    sent = context.SimpleQueue()
    child = context.Process(target=lambda: sent.put(guard.run("part", os.getpid)))
    child.start()
    child.join(30)
    assert sent.get() is None
    assert guard.run("part", os.getpid) == os.getpid()


def test_the_time_of_nested_parts_counts_once() -> None:
    guard = Guard()
    assert guard.take_seconds() is None
    guard.run("outer", lambda: guard.run("inner", lambda: None))
    outer = guard.take_seconds()
    assert outer is not None
    assert 0 <= outer < 1
    assert guard.take_seconds() is None


def test_logging_stays_quiet_without_failures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert Guard().run("part", lambda: 1) == 1
    assert not caplog.records
