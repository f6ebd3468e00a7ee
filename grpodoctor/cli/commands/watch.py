"""`grpodoctor watch`: follow a live run."""

from __future__ import annotations

import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Self

import typer

from grpodoctor.cli.options import (
    ConfigOption,
    ExitZero,
    FailOn,
    FailOnOption,
    FormatOption,
    Ignore,
    IsolatedOption,
    MapOption,
    RunConfigOption,
    Select,
    fails,
    project_settings,
    read_options,
    split_codes,
)
from grpodoctor.cli.outgoing import (
    MetricsHostOption,
    MetricsPortOption,
    alerts_listener,
    metrics_listener,
)
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from grpodoctor.cli.outgoing import Listener
    from grpodoctor.monitor.session import Session, Tick

_HINT = "Ctrl-C stops watching; the run continues"

_INCOMPLETE_STEP_SECONDS = 0.1
"""Seconds between two polls while the latest step may be incomplete."""
_MAX_SLEEP = 0.5
"""Longest time in seconds until a signal is noticed."""


class Apply(StrEnum):
    """Remedies that may be applied to the live run."""

    none = "none"
    safe = "safe"
    unsafe = "unsafe"


Run = Annotated[
    str,
    typer.Argument(
        help="Run directory or log of any framework; without --once, it need not exist yet."
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Show the current state and exit.")]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object per event; with --once, the report."),
]
ApplyOption = Annotated[Apply, typer.Option(help="Remedies to apply to the running trainer.")]
Interval = Annotated[float, typer.Option(min=0.05, max=60, help="Polling interval, in seconds.")]
UntilFinished = Annotated[
    bool, typer.Option("--until-finished", help="Exit when the run has finished.")
]


def watch(
    run: Run,
    once: Once = False,
    json: AsJson = False,
    apply: ApplyOption = Apply.none,
    interval: Interval = 0.5,
    until_finished: UntilFinished = False,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
    config: ConfigOption = None,
    isolated: IsolatedOption = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
) -> None:
    """Follow a live run: show its vitals, findings and treatments.

    Exit codes: 0 no active finding at or above --fail-on, 1 at least one, 2 unusable input.
    """
    from grpodoctor.monitor.session import Session

    refuse_remote(run)
    _refuse_with_once(once, apply, metrics_port)
    project = project_settings(config, isolated=isolated)
    session = Session(
        Path(run),
        select=split_codes(select),
        ignore=split_codes(ignore),
        apply=apply.value,
        project=project,
        options=read_options(log_format, run_config, mapping, project=project),
    )
    if once:
        _show_once(session, as_json=json)
    else:
        with ExitStack() as stack:
            listeners = []
            if metrics_port is not None:
                listeners.append(metrics_listener(metrics_port, metrics_host, stack))
            if project.alerts.channels:
                listeners.append(alerts_listener(project.alerts, stack))
            _follow(session, listeners, json, until_finished=until_finished, interval=interval)
    if fails(session.examination.report().reaches, fail_on, exit_zero):
        raise typer.Exit(1)


def _follow(
    session: Session,
    listeners: Sequence[Listener],
    as_json: bool,
    *,
    until_finished: bool,
    interval: float,
) -> None:
    view = _JsonView() if as_json else LiveView.for_terminal(_HINT)
    with _interruptible() as interrupted:
        follow(
            session,
            view,
            ended=lambda: until_finished and session.examination.finished,
            interrupted=interrupted,
            interval=interval,
            listeners=listeners,
        )
    _print_summary(session)


def _refuse_with_once(once: bool, apply: Apply, metrics_port: int | None) -> None:
    from grpodoctor.errors import ConfigError

    if once and metrics_port is not None:
        raise ConfigError(
            "--metrics-port serves a run that is followed, but --once exits at once",
            where="--once with --metrics-port",
            remedy="remove one of the two options",
        )
    if once and apply is not Apply.none:
        raise ConfigError(
            "--apply changes the run and judges the effect over the next steps, but --once exits "
            "at once",
            where="--once with --apply",
            remedy="remove one of the two options",
        )


def refuse_remote(run: str, action: str = "watch") -> None:
    """Refuse an address of a remote store.

    Args:
        run: the path.
        action: what the command does with a run, as a verb.

    Raises:
        ConfigError: if the path is a remote address.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.remote_stores import is_remote

    if is_remote(run):
        raise ConfigError(
            f"cannot {action} a remote run",
            where=run[:200],
            remedy="use grpodoctor check, or mount or sync the run to a local directory",
        )


def _show_once(session: Session, *, as_json: bool) -> None:
    from grpodoctor.support.progress import progress_bar

    with progress_bar("reading") as progress:
        session.read_all(progress)
    if as_json:
        print(json_text(session.examination.report().to_json()))
        return
    from rich.console import Console

    from grpodoctor.cli.screen import Screen
    from grpodoctor.cli.terminal import columns, supports_color

    console = Console(width=columns(), no_color=not supports_color(), highlight=False)
    console.print(Screen(session.snapshot(), whole=True))


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM end the block without a traceback.

    Yields a function that tells whether a signal was received.
    """
    received: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:  # a second exception would interrupt the cleanup after the first
            raise KeyboardInterrupt

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Ignored signals stay ignored: a shell ignores Ctrl-C for background jobs.
    handled = [number for number, handler in previous.items() if handler is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, end)
    try:
        yield lambda: bool(received)
    except KeyboardInterrupt:
        pass
    finally:
        for number in handled:
            signal.signal(number, previous[number])


def follow(
    session: Session,
    view: LiveView,
    *,
    ended: Callable[[], bool],
    interrupted: Callable[[], bool] = lambda: False,
    interval: float = 0.5,
    listeners: Sequence[Listener] = (),
) -> None:
    """Poll a session and show each tick until the end; the caller handles Ctrl-C.

    Args:
        session: the run under observation.
        view: where it is shown.
        ended: called after each tick that read all available data; True stops.
        interrupted: whether a signal was received; its KeyboardInterrupt may have been lost.
        interval: seconds between two polls.
        listeners: called with each tick after it was shown.
    """
    with view:
        while True:
            tick = session.tick()
            view.show(session, tick)
            for listen in listeners:
                listen(session, tick)
            if tick.more:
                continue
            if ended():
                return
            _pause(min(interval, _INCOMPLETE_STEP_SECONDS) if tick.held else interval, interrupted)


def _pause(seconds: float, interrupted: Callable[[], bool]) -> None:
    """Sleep in short intervals: a signal just before a sleep does not interrupt that sleep.

    Raises:
        KeyboardInterrupt: if a signal was received.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if interrupted():
            raise KeyboardInterrupt
        time.sleep(min(left, _MAX_SLEEP))


class LiveView(ABC):
    """Shows a session. It is entered before the first tick and exited after the last."""

    @staticmethod
    def for_terminal(hint: str = "") -> LiveView:
        """The live screen, or one line per event if stdout is not a terminal.

        Args:
            hint: the last line of the screen.
        """
        return _ScreenView(hint) if sys.stdout.isatty() else _LinesView()

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def show(self, session: Session, tick: Tick) -> None:
        """Show the result of a tick."""

    def __exit__(self, *_: object) -> None:
        return None


class _ScreenView(LiveView):
    """The full screen, redrawn at every tick."""

    def __init__(self, hint: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._hint = hint
        self._live = Live(console=Console(), screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def show(self, session: Session, tick: Tick) -> None:  # noqa: ARG002 - shows the whole state
        from grpodoctor.cli.screen import Screen

        self._live.update(Screen(session.snapshot(), self._hint), refresh=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()


class _LinesView(LiveView):
    """One line of text per event."""

    def show(self, session: Session, tick: Tick) -> None:
        from grpodoctor.report.run.phrases import news_line

        for news in session.news(tick):
            print(news_line(news), flush=True)


class _JsonView(LiveView):
    """One line of JSON per event."""

    def show(self, session: Session, tick: Tick) -> None:
        from grpodoctor.support.safe_text import json_bytes

        for news in session.news(tick):
            print(json_bytes(news).decode(), flush=True)


def _print_summary(session: Session) -> None:
    from grpodoctor.report.run.phrases import diagnosis_line, facts_line
    from grpodoctor.support.safe_text import plain

    report = session.examination.report()
    print(plain(f"{diagnosis_line(report)} ({facts_line(report)})"), file=sys.stderr)
