"""`grpodoctor watch`: follow a live run."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import FailOn, FailOnOption, Ignore, Select, split_codes
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from grpodoctor.report.session import Session, Tick

_HINT = "Ctrl-C ends the watch; the run goes on"


class Apply(StrEnum):
    """Which remedies may be applied to the live run."""

    none = "none"
    safe = "safe"
    unsafe = "unsafe"


def watch(
    run: Annotated[Path, typer.Argument(help="The run directory; it may not exist yet.")],
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
) -> None:
    """Follow a live run: its vitals, its findings, its treatment.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 the input could not be used.
    """
    from grpodoctor.report.session import Session

    session = Session(
        run, select=split_codes(select), ignore=split_codes(ignore), apply=apply.value
    )
    if once:
        _show_once(session, as_json=json)
    else:
        view = _stream if json else _screen if sys.stdout.isatty() else _lines
        with _gentle_end():
            view(session, interval, until_finished)
        _say_goodbye(session)
    if session.examination.report().reaches(fail_on.value):
        raise typer.Exit(1)


def _show_once(session: Session, *, as_json: bool) -> None:
    session.read_all()
    if as_json:
        print(json_text(session.examination.report().to_json()))
        return
    from rich.console import Console

    from grpodoctor.cli.screen import Screen
    from grpodoctor.cli.terminal import colour_wanted, columns

    console = Console(width=columns(), no_color=not colour_wanted(), highlight=False)
    console.print(Screen(session.snapshot(), whole=True))


@contextmanager
def _gentle_end() -> Iterator[None]:
    """Let Ctrl-C and a polite kill end the block without a trace."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, former)


def _follow(
    session: Session, interval: float, until_finished: bool, show: Callable[[Tick], None]
) -> None:
    while True:
        tick = session.tick()
        show(tick)
        if until_finished and session.examination.finished:
            return
        if not tick.steps:
            time.sleep(interval)


def _screen(session: Session, interval: float, until_finished: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from grpodoctor.cli.screen import Screen

    def frame() -> Screen:
        return Screen(session.snapshot(), _HINT)

    with Live(frame(), console=Console(), screen=True, auto_refresh=False) as live:
        _follow(session, interval, until_finished, lambda _: live.update(frame(), refresh=True))


def _stream(session: Session, interval: float, until_finished: bool) -> None:
    from grpodoctor.report.escape import json_bytes

    def show(tick: Tick) -> None:
        for line in session.news(tick):
            sys.stdout.write(json_bytes(line).decode() + "\n")
        sys.stdout.flush()

    _follow(session, interval, until_finished, show)


def _lines(session: Session, interval: float, until_finished: bool) -> None:
    from grpodoctor.report.words import news_line

    def show(tick: Tick) -> None:
        for news in session.news(tick):
            print(news_line(news), flush=True)

    _follow(session, interval, until_finished, show)


def _say_goodbye(session: Session) -> None:
    from grpodoctor.report.escape import plain
    from grpodoctor.report.words import facts_line, tally

    report = session.examination.report()
    print(f"{plain(facts_line(report.run))}: {tally(report)}", file=sys.stderr)
