"""Commands that have started programs end them, however they are ended themselves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, with all that it has started."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    # What is ignored was ignored on purpose, as nohup does.
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
