"""`grpodoctor watch`: follow a live run."""

from __future__ import annotations

import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer

from grpodoctor.cli.options import (
    ExitZero,
    FailOn,
    FailOnOption,
    FormatOption,
    Ignore,
    MapOption,
    RunConfigOption,
    Select,
    fails,
    read_options,
    split_codes,
)
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from grpodoctor.monitor.session import Session, Tick

_HINT = "Ctrl-C ends the watch; the run goes on"

_HELD_SECONDS = 0.1
"""Between two looks while a step is not known to be whole: it is shown as soon as it is."""
_LONGEST_SLEEP = 0.5
"""Seconds until a signal is noticed at the latest."""


class Apply(StrEnum):
    """Which remedies may be applied to the live run."""

    none = "none"
    safe = "safe"
    unsafe = "unsafe"


def watch(
    run: Annotated[
        str,
        typer.Argument(help="A run directory, or a log of any framework; it may not exist yet."),
    ],
    once: Annotated[bool, typer.Option("--once", help="Show what there is, and end.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per event; with --once, the report.")
    ] = False,
    apply: Annotated[
        Apply, typer.Option(help="Which remedies to apply to the run; none only advises.")
    ] = Apply.none,
    interval: Annotated[
        float, typer.Option(min=0.05, max=60, help="Seconds between two looks.")
    ] = 0.5,
    until_finished: Annotated[
        bool, typer.Option("--until-finished", help="End when the run says that it is finished.")
    ] = False,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
) -> None:
    """Follow a live run: vitals, findings, treatments.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 the input could not be used.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.monitor.session import Session

    _refuse_remote(run)
    if once and apply is not Apply.none:
        raise ConfigError(
            "a treatment needs somebody who stays and judges it",
            where="--once with --apply",
            remedy="leave out one of the two",
        )
    session = Session(
        Path(run),
        select=split_codes(select),
        ignore=split_codes(ignore),
        apply=apply.value,
        options=read_options(log_format, run_config, mapping),
    )
    if once:
        _show_once(session, as_json=json)
    else:
        view = _StreamView() if json else View.of_terminal(_HINT)
        with _gentle_end() as interrupted:
            until = _end_of(session, until_finished)
            follow(session, view, ended=until, interrupted=interrupted, interval=interval)
        _say_goodbye(session)
    if fails(session.examination.report().reaches, fail_on, exit_zero):
        raise typer.Exit(1)


def _refuse_remote(run: str) -> None:
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.remote_stores import is_remote

    if is_remote(run):
        raise ConfigError(
            "only what lies on a disk of this machine can be followed",
            where=run[:200],
            remedy="use check, or mount the store or sync it to a directory",
        )


def _end_of(session: Session, until_finished: bool) -> Callable[[], bool]:
    return lambda: until_finished and session.examination.finished


def _show_once(session: Session, *, as_json: bool) -> None:
    session.read_all()
    if as_json:
        print(json_text(session.examination.report().to_json()))
        return
    from rich.console import Console

    from grpodoctor.cli.screen import Screen
    from grpodoctor.cli.terminal import columns, supports_color

    console = Console(width=columns(), no_color=not supports_color(), highlight=False)
    console.print(Screen(session.snapshot(), whole=True))


@contextmanager
def _gentle_end() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and a polite kill end the block without a trace; tells whether one has come."""
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:  # a second one would leave a trace in the tidying up after the first
            raise KeyboardInterrupt

    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A Ctrl-C that is ignored was ignored on purpose, as a shell does for what runs behind it.
    mine = [number for number, one in former.items() if one is not signal.SIG_IGN]
    for number in mine:
        signal.signal(number, end)
    try:
        yield lambda: bool(came)
    except KeyboardInterrupt:
        pass
    finally:
        for number in mine:
            signal.signal(number, former[number])


def follow(
    session: Session,
    view: View,
    *,
    ended: Callable[[], bool],
    interrupted: Callable[[], bool] = lambda: False,
    interval: float = 0.5,
) -> None:
    """Show a session tick by tick until it has ended; Ctrl-C is left to the caller.

    Args:
        session: the run under observation.
        view: where it is shown.
        ended: asked after each tick that read all there was.
        interrupted: whether a signal has come, should its KeyboardInterrupt have been lost.
        interval: seconds between two looks.
    """
    with view:
        while True:
            tick = session.tick()
            view.show(session, tick)
            if tick.more:
                continue
            if ended():
                return
            _pause(min(interval, _HELD_SECONDS) if tick.held else interval, interrupted)


def _pause(seconds: float, interrupted: Callable[[], bool]) -> None:
    """Sleep in short pieces: a signal that comes just before a sleep does not cut it short.

    Raises:
        KeyboardInterrupt: if one has come.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if interrupted():
            raise KeyboardInterrupt
        time.sleep(min(left, _LONGEST_SLEEP))


class View(ABC):
    """Where a session is shown. It is entered before the first tick and left after the last."""

    @staticmethod
    def of_terminal(hint: str = "") -> View:
        """The live screen, or lines where stdout is no terminal.

        Args:
            hint: the last line of the screen.
        """
        return _ScreenView(hint) if sys.stdout.isatty() else _LinesView()

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def show(self, session: Session, tick: Tick) -> None:
        """Show what a tick brought."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class _ScreenView(View):
    """The whole screen, drawn anew at every tick."""

    def __init__(self, hint: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._hint = hint
        self._live = Live(console=Console(), screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def show(self, session: Session, tick: Tick) -> None:  # noqa: ARG002 - the screen shows all
        from grpodoctor.cli.screen import Screen

        self._live.update(Screen(session.snapshot(), self._hint), refresh=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()


class _LinesView(View):
    """A line for people for each piece of news."""

    def show(self, session: Session, tick: Tick) -> None:
        from grpodoctor.report.run.phrases import news_line

        for news in session.news(tick):
            print(news_line(news), flush=True)


class _StreamView(View):
    """A line of JSON for each piece of news."""

    def show(self, session: Session, tick: Tick) -> None:
        from grpodoctor.support.safe_text import json_bytes

        for news in session.news(tick):
            print(json_bytes(news).decode(), flush=True)


def _say_goodbye(session: Session) -> None:
    from grpodoctor.report.run.phrases import diagnosis_line, facts_line
    from grpodoctor.support.safe_text import plain

    report = session.examination.report()
    print(f"{plain(facts_line(report.run))}: {diagnosis_line(report)}", file=sys.stderr)
