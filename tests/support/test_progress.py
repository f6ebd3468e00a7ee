"""The progress bar: on a terminal, for long work, on stderr; silent everywhere else."""

from __future__ import annotations

import threading

import pytest

from grpodoctor.support.progress import NoProgress, progress_bar
from tests.support.terminal import use_terminal


def test_a_pipe_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading", total=10, delay=0) as progress:
        progress.update(5)
    assert isinstance(progress, NoProgress)
    assert capfd.readouterr() == ("", "")


def test_short_work_shows_nothing_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with progress_bar("reading", total=10, delay=3600) as progress:
        progress.update(5)
        assert not isinstance(progress, NoProgress)
    assert terminal.getvalue() == ""


def test_without_a_thread_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with progress_bar("reading", total=10, delay=0) as progress:
        progress.update(5)
    assert terminal.getvalue() == ""


def test_long_work_shows_a_bar_before_its_first_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = use_terminal(monkeypatch)
    with progress_bar("reading", delay=0):
        assert terminal.written.wait(60)
    assert "reading" in terminal.getvalue()


def test_the_detail_of_a_progress_bar_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with progress_bar("reading {0} [red]", total=2, delay=0) as progress:
        progress.update(1, total=4, detail="\x1b]0;title\x07 [bold]file {task}")
        assert terminal.written.wait(60)
    assert "title" not in terminal.getvalue()
    assert "[bold]file {task}" in terminal.getvalue()
