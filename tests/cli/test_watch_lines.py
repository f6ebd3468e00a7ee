"""`watch` without a screen: the lines of events, and the note that says why there is no screen."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from grpodoctor.cli.commands import watch
from grpodoctor.monitor.session import Session
from grpodoctor.report.run.phrases import news_line
from tests.cli.in_process import run


class Stream(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run whose groups are all-incorrect from the first step on, so its gradient is zero."""
    path = tmp_path / "log.jsonl"
    rows = [
        {"step": step, "reward": 0.0, "all_incorrect_rate": 1.0, "zero_variance_rate": 1.0,
         "grad_norm": 0.0, "loss": 0.0, "entropy": 0.6, "lr": 1e-6}
        for step in range(1, 60)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_symptom_names_its_cause(log: Path) -> None:
    session = Session(log)
    news = []
    more = True
    while more:
        tick = session.tick(final=True)
        news += session.news(tick)
        more = tick.more
    by_code = {each["finding"]["code"]: each for each in news if each["kind"] == "finding-raised"}
    assert by_code["GRP002"]["cause"] is None
    assert by_code["OPT001"]["cause"] == "GRP002"
    cause, symptom = (news_line(by_code[code]) for code in ("GRP002", "OPT001"))
    assert cause.startswith(f"step {by_code['GRP002']['step']}: ")
    assert " raised: " in cause
    assert f"step {by_code['OPT001']['step']}: info OPT001" in symptom
    assert " raised, a symptom of GRP002: " in symptom
    ranks = [(each["step"], each.get("cause") is not None) for each in news]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("terminals", "term", "note"),
    [
        ({"stdin", "stdout"}, "xterm", "stderr is not a terminal"),
        ({"stdout", "stderr"}, "xterm", "stdin is not a terminal"),
        ({"stdin", "stdout", "stderr"}, "dumb", "the terminal has no cursor (TERM=dumb)"),
        ({"stdin", "stderr"}, "xterm", ""),
        ({"stdin", "stdout", "stderr"}, "xterm", ""),
    ],
)
def test_a_person_at_a_terminal_is_told_why_there_is_no_screen(
    monkeypatch: pytest.MonkeyPatch, terminals: set[str], term: str, note: str
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", Stream(is_terminal=name in terminals))
    monkeypatch.setenv("TERM", term)
    printed = watch.sys.stdout
    watch._note_missing_screen()
    text = printed.getvalue()  # type: ignore[attr-defined]  # a Stream
    assert text.count("\n") == (1 if note else 0)
    assert note in text


@pytest.mark.parametrize(
    ("options", "calls"), [([], 1), (["--plain"], 0), (["--json"], 0), (["--once"], 0)]
)
def test_only_an_unasked_change_of_the_output_is_noted(
    log: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], calls: int
) -> None:
    seen: list[None] = []
    monkeypatch.setattr(watch, "_note_missing_screen", lambda: seen.append(None))
    monkeypatch.setattr(watch, "follow", lambda *_, **__: None)
    run("watch", log, *options)
    assert len(seen) == calls
