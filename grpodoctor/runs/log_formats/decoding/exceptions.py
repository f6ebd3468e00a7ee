"""The exceptions that programs print when they stop."""

from __future__ import annotations

import re

from grpodoctor.runs.log_formats.decoding.console_lines import visible_segments
from grpodoctor.support.safe_text import plain

_EXCEPTION = re.compile(
    r"(?:\w{1,80}\.){0,8}(?:\w{1,80}Error|\w{0,80}Exception)(?:\(\w{1,80}\))?(?::\s?.{0,1000})?"
)
_RANK = re.compile(r"\s{0,3}\[(?:rank|default|worker|trainer)[-_ ]?\d{1,5}\]:?\s?", re.IGNORECASE)
"""The prefix that torchrun puts before the lines of a rank."""
_LOGGED_ERROR = re.compile(
    r"\s{0,3}(?:ERROR|CRITICAL)\s{1,3}\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?\s"
    r"\[[\w./]{1,80}:\d{1,6}\]\s?"
)
"""The prefix of vLLM's logger: `ERROR 09-26 10:17:02 [core.py:700]`."""
_WHEN = re.compile(r"\s{0,3}\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z\s")
"""The time that the log of a container has before each line."""
_LONGEST_LINE = 1000
_SHOWN = 100
"""Characters of an exception in a message: its name, and what the first line on a screen holds."""

_SIGNAL = re.compile(
    r"(?:\w+\.)*(?:SignalException|ChildFailedError|CalledProcessError)\b|KeyboardInterrupt\b"
)


def exception_in(line: str) -> str:
    """The exception that a line of a log is, shortened; empty if it is none."""
    if "Error" not in line and "Exception" not in line:
        return ""
    found = ""
    for segment in visible_segments(line):
        text = without_rank(segment).strip()[:_LONGEST_LINE]
        if _EXCEPTION.fullmatch(text):
            found = text
    return shortened(plain(found, limit=_LONGEST_LINE)).removesuffix(":")


def without_rank(text: str) -> str:
    """A line without the prefix of its rank, of the logger of its engine or of a container."""
    if "T" in text[:16]:
        text = _WHEN.sub("", text, count=1)
    if "[" not in text[:80]:
        return text
    return _LOGGED_ERROR.sub("", _RANK.sub("", text, count=1), count=1)


def shortened(exception: str) -> str:
    """The whole sentences that fit into a message; the beginning if not even the first does."""
    if len(exception) <= _SHOWN:
        return exception
    sentences = exception[:_SHOWN].rpartition(". ")[0]
    return f"{sentences}." if sentences else plain(exception, limit=_SHOWN)


def is_of_signal(exception: str) -> bool:
    """Whether an exception only says that another process ended this one."""
    return _SIGNAL.match(exception) is not None
