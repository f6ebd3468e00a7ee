"""The exceptions that programs print when they stop."""

from __future__ import annotations

import re

from grpodoctor.runs.log_formats.decoding.console_lines import visible_segments
from grpodoctor.support.safe_text import plain

_EXCEPTION = re.compile(r"(?:\w{1,80}\.){0,8}\w{0,80}(?:Error|Exception)(?::\s.{0,1000})?")
_LONGEST_LINE = 1000
_TRACES = ("Traceback (most recent call last)", '  File "')
_SHOWN = 100
"""Characters of an exception in a message: its name, and what the first line on a screen holds."""

_SIGNAL = re.compile(
    r"(?:\w+\.)*(?:SignalException|ChildFailedError|CalledProcessError)\b|KeyboardInterrupt\b"
)
_MOST_LINES_AFTER = 200
"""Lines after an exception with which a program stops: what is left of the traceback, and what the
launcher and other processes print. A program that goes on prints more, or a row."""


def exception_in(line: str) -> str:
    """The exception that a line of a log is, shortened; empty if it is none."""
    if "Error" not in line and "Exception" not in line:
        return ""
    found = ""
    for segment in visible_segments(line):
        if _EXCEPTION.fullmatch(segment.strip()[:_LONGEST_LINE]):
            found = segment.strip()
    return _shortened(plain(found, limit=_LONGEST_LINE))


def _shortened(exception: str) -> str:
    """The whole sentences that fit into a message; the beginning if not even the first does."""
    if len(exception) <= _SHOWN:
        return exception
    sentences = exception[:_SHOWN].rpartition(". ")[0]
    return f"{sentences}." if sentences else plain(exception, limit=_SHOWN)


def is_of_traceback(text: str) -> bool:
    """Whether a text contains a line of a traceback, whose heading Hydra leaves out."""
    return any(mark in text for mark in _TRACES)


def is_of_signal(exception: str) -> bool:
    """Whether an exception only says that another process ended this one."""
    return _SIGNAL.match(exception) is not None


class LastException:
    """The exception at the end of a log, if the program stopped with it."""

    def __init__(self) -> None:
        self._exception = ""
        self._lines_after = 0
        self._lines_of_trace = _MOST_LINES_AFTER + 1
        """Lines since one of a traceback: responses may mention an exception, too."""

    def add(self, line: str, *, is_row: bool) -> None:
        """Add the next line of the log.

        Args:
            line: the line.
            is_row: whether it completes a row of a step, so that the program had gone on.
        """
        self._lines_after += 1
        self._lines_of_trace = 0 if is_of_traceback(line) else self._lines_of_trace + 1
        if is_row:
            self._exception = ""
        elif self._lines_of_trace <= _MOST_LINES_AFTER and (exception := exception_in(line)):
            if not self._exception or not is_of_signal(exception):
                self._exception = exception
            self._lines_after = 0

    @property
    def at_end(self) -> str:
        """The exception; empty if the program went on."""
        return self._exception if self._lines_after <= _MOST_LINES_AFTER else ""
