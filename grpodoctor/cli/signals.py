"""End the programs that a command started when a signal ends the command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command and its programs in the way of Ctrl-C."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    # An ignored signal was ignored on purpose, for example by nohup.
    before = {number: one for number, one in handlers.items() if one is not signal.SIG_IGN}

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
