"""`grpodoctor watch`: follow a live run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Protocol

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
    WhereOption,
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
    from grpodoctor.monitor.alert_settings import AlertSettings
    from grpodoctor.monitor.report import Report
    from grpodoctor.monitor.session import Session, Tick

_INTERVAL = 0.5
"""Seconds between two polls."""
_INCOMPLETE_STEP_SECONDS = 0.1
"""The same while the latest step may be incomplete."""
_MAX_SLEEP = 0.5
"""Longest time in seconds until a signal is noticed."""
_AWAITED = "a training log: JSON lines, CSV, TensorBoard or W&B files, or console output"
"""What a watch of a path without a readable log expects."""


class Apply(StrEnum):
    """Remedies that may be applied to the live run."""

    none = "none"
    ask = "ask"
    safe = "safe"
    unsafe = "unsafe"


Run = Annotated[
    str | None,
    typer.Argument(
        help="Run directory or log of any framework; without --once, it need not exist yet. "
        "Without it, the runs below the current directory are offered.",
        show_default=False,
    ),
]
PidOption = Annotated[
    int | None, typer.Option("--pid", min=1, help="Watch the run that this process writes.")
]
Once = Annotated[bool, typer.Option("--once", help="Show the current state and exit.")]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object per event; with --once, the report."),
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Print one line per event instead of the screen.")
]
ApplyOption = Annotated[
    Apply,
    typer.Option(
        help="Remedies to apply to the running trainer; ask proposes them, and a key approves."
    ),
]
Interval = Annotated[float, typer.Option(min=0.05, max=60, help="Polling interval, in seconds.")]
UntilFinished = Annotated[
    bool, typer.Option("--until-finished", help="Exit when the run has finished.")
]


def watch(
    run: Run = None,
    pid: PidOption = None,
    once: Once = False,
    json: AsJson = False,
    plain: Plain = False,
    apply: ApplyOption = Apply.none,
    interval: Interval = _INTERVAL,
    until_finished: UntilFinished = False,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOnOption = FailOn.warning,
    exit_zero: ExitZero = False,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
    where: WhereOption = None,
    config: ConfigOption = None,
    isolated: IsolatedOption = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
) -> None:
    """Follow a live run: show its vitals, findings and treatments.

    Exit codes: 0 no active finding at or above --fail-on, 1 at least one, 2 unusable input.
    """
    from grpodoctor.monitor.session import Session

    _refuse_with_once(once, apply, metrics_port)
    has_screen = not (json or plain or once) and is_interactive()
    if apply is Apply.ask and not has_screen:
        _refuse_to_ask()
    if not (has_screen or json or plain or once):
        _note_missing_screen()
    path = _path_of(run, pid, has_screen=has_screen)
    if not (once or has_screen or path.exists()):
        _note_missing_run(path)
    project = project_settings(config, isolated=isolated)
    session = Session(
        path,
        select=split_codes(select),
        ignore=split_codes(ignore),
        apply=apply.value,
        project=project,
        options=read_options(log_format, run_config, mapping, project=project, where=where),
    )
    if once:
        _show_once(session, as_json=json)
        reaches = session.examination.report().reaches
    else:
        reaches = _follow(
            session,
            JsonView() if json else LinesView(),
            has_screen=has_screen,
            until_finished=until_finished,
            interval=interval,
            outgoing=_Outgoing(project.alerts, metrics_port, metrics_host),
        ).reaches
    if fails(reaches, fail_on, exit_zero):
        raise typer.Exit(1)


def _path_of(run: str | None, pid: int | None, *, has_screen: bool) -> Path:
    """The run to watch.

    Raises:
        ConfigError: if a run and a process are named, or the run is remote.
    """
    from grpodoctor.cli.unnamed_run import choose_run, run_in
    from grpodoctor.errors import ConfigError

    if run is None:
        return choose_run(pid, has_screen=has_screen)
    if pid is not None:
        raise ConfigError("--pid and RUN both name the run", remedy="remove one")
    refuse_remote(run)
    return run_in(Path(run), has_screen=has_screen)


@dataclass(frozen=True)
class _Outgoing:
    """What leaves the terminal."""

    alerts: AlertSettings
    metrics_port: int | None
    metrics_host: str

    def listeners(self, stack: ExitStack) -> list[Listener]:
        """Start what is asked for; the stack stops it."""
        listeners = []
        if self.metrics_port is not None:
            listeners.append(metrics_listener(self.metrics_port, self.metrics_host, stack))
        if self.alerts.channels:
            listeners.append(alerts_listener(self.alerts, stack))
        return listeners


def _follow(
    session: Session,
    view: EventView,
    *,
    has_screen: bool,
    until_finished: bool,
    interval: float,
    outgoing: _Outgoing,
) -> Report:
    """Follow a run to its end or until the user quits; returns the last report."""

    def ended() -> bool:
        return until_finished and session.examination.finished

    with ExitStack() as stack:
        listeners = outgoing.listeners(stack)
        if has_screen:
            from grpodoctor.cli.watch_screen.terminal_session import show_screen

            report = show_screen(session, ended=ended, interval=interval, listeners=listeners)
        else:
            with _interruptible() as interrupted:
                follow(
                    session,
                    view,
                    ended=ended,
                    interrupted=interrupted,
                    interval=interval,
                    listeners=[NoteWithoutLog(), *listeners],
                )
            report = session.examination.report()
    _print_summary(report)
    return report


def is_interactive() -> bool:
    """Whether a screen with keys can be shown: textual reads stdin and draws on stderr."""
    return not _why_no_screen()


def _why_no_screen() -> str:
    """Why no screen with keys can be shown; empty if one can."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or not stream.isatty():
            return f"{name} is not a terminal"
    return "the terminal has no cursor (TERM=dumb)" if os.environ.get("TERM") == "dumb" else ""


def _note_missing_screen() -> None:
    """Say to a person at a terminal why lines are printed; a pipe or a file gets no note."""
    if sys.stdout is not None and sys.stdout.isatty() and (reason := _why_no_screen()):
        print(f"note: {reason}, so each event is one line instead of a screen", flush=True)


def _note_missing_run(path: Path) -> None:
    """Say that the command waits: a misspelt path would otherwise look like a run without steps."""
    if sys.stderr is not None:
        print(f"note: {path} does not exist yet; waiting for it", file=sys.stderr, flush=True)


class NoteWithoutLog:
    """Says once, after the first poll, that a path without a readable log is waited for, and why.

    A run of the own recorder gets no note: it has begun, and its first step follows.
    """

    def __init__(self) -> None:
        self._is_done = False

    def __call__(self, session: Session, tick: Tick) -> None:
        """Look at the first poll that read all available data."""
        from grpodoctor.errors import RunError
        from grpodoctor.runs.reading.no_run_error import no_run_error
        from grpodoctor.runs.reading.opening import is_native
        from grpodoctor.support.safe_text import plain

        if self._is_done or tick.more:
            return
        self._is_done = True
        path = session.run_dir
        try:
            if not session.waiting or not path.exists() or is_native(path):
                return
            reason = no_run_error(path, []).what
        except (OSError, RunError):
            return  # it is being removed
        if sys.stderr is not None:
            line = plain(f"note: {path}: {reason}; waiting for {_AWAITED}")
            print(line, file=sys.stderr, flush=True)


def _refuse_to_ask() -> None:
    from grpodoctor.errors import ConfigError

    raise ConfigError(
        "--apply ask needs the screen, on which a key approves a remedy",
        where="--apply ask",
        remedy="run it in a terminal without --json, --plain and --once, or use --apply safe",
    )


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
    from grpodoctor.support.files.remote_stores import is_remote

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

    from grpodoctor.cli.terminal import columns, supports_color
    from grpodoctor.cli.watch_screen.text_screen import TextScreen

    console = Console(width=columns(), no_color=not supports_color(), highlight=False)
    console.print(TextScreen(session.snapshot()))


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
    view: EventView,
    *,
    ended: Callable[[], bool],
    interrupted: Callable[[], bool] = lambda: False,
    interval: float = _INTERVAL,
    listeners: Sequence[Listener] = (),
) -> None:
    """Poll a session and print each tick until the end; the caller handles Ctrl-C.

    Args:
        session: the run under observation.
        view: where it is shown.
        ended: called after each tick that read all available data; True stops.
        interrupted: whether a signal was received; its KeyboardInterrupt may have been lost.
        interval: seconds between two polls.
        listeners: called with each tick after it was shown.
    """
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


def follow_in_terminal(session: Session, *, ended: Callable[[], bool]) -> None:
    """Follow a run on the screen, or with one line per event if there is no terminal.

    Args:
        session: the run.
        ended: called after each poll that read all available data; True stops.

    Raises:
        KeyboardInterrupt: if the user leaves the screen before.
    """
    if is_interactive():
        from grpodoctor.cli.watch_screen.terminal_session import show_screen

        is_over = False

        def is_over_now() -> bool:
            nonlocal is_over
            is_over = ended()
            return is_over

        show_screen(session, ended=is_over_now, interval=_INTERVAL)
        if not is_over:
            raise KeyboardInterrupt
    else:
        follow(session, LinesView(), ended=ended)


class EventView(Protocol):
    """Prints the events of a session."""

    def show(self, session: Session, tick: Tick) -> None:
        """Print the events of a tick."""


class LinesView:
    """One line of text per event."""

    def show(self, session: Session, tick: Tick) -> None:
        """Print the events of a tick."""
        from grpodoctor.report.run.phrases import news_line

        for news in session.news(tick):
            print(news_line(news), flush=True)


class JsonView:
    """One line of JSON per event."""

    def show(self, session: Session, tick: Tick) -> None:
        """Print the events of a tick."""
        from grpodoctor.support.safe_text import json_bytes

        for news in session.news(tick):
            print(json_bytes(news).decode(), flush=True)


def _print_summary(report: Report) -> None:
    import textwrap

    from grpodoctor.cli.terminal import columns
    from grpodoctor.report.run.finding_view import first_steps
    from grpodoctor.report.run.phrases import diagnosis_line, facts_line
    from grpodoctor.support.safe_text import plain

    line = plain(f"{diagnosis_line(report)} ({facts_line(report)})")
    if sys.stderr.isatty():  # a terminal would break words
        line = textwrap.fill(line, columns(), break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)
    for setting in first_steps(report):
        print(f"  {plain(setting.commented)}", file=sys.stderr)
