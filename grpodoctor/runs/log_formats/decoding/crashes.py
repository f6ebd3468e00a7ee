"""Finding the error with which a printed log ends.

An error counts if nothing after it shows that the program went on: no row of a step, no progress of
a bar, and only few lines. Of several errors, the last one counts, but a known cause such as a full
memory precedes any other, and any other precedes a report that another process has failed.
"""

from __future__ import annotations

import re

from grpodoctor.runs.crash import Crash, CrashKind
from grpodoctor.runs.log_formats.decoding.console_lines import visible_segments
from grpodoctor.runs.log_formats.decoding.exceptions import (
    exception_in,
    shortened,
    without_rank,
)
from grpodoctor.support.safe_text import plain

_WORDS = (
    "Error", "Exception", "Traceback (", 'File "', "Watchdog caught", "Killed", "SIGKILL",
    "oom", "Segmentation fault", "KeyboardInterrupt", "exitcode: -9", "return code = -9",
    "what():", "killed due to memory", "Bus error", "raining comp", "raining finish",
)  # fmt: skip
"""One of these is in every line that matters; nearly all lines of a log have none."""

_LONGEST = 2000
"""Characters of a line that are examined."""
_MOST_LINES_AFTER = 200
_MOST_PLAIN_LINES_AFTER = 30
"""Lines after an error with which a program stops: what is left of the traceback, and what the
launcher and other processes print. A program that goes on prints more, or a row. Plain lines have
none of the beginnings of such output."""
_OF_SHUTDOWN = re.compile(
    r"\s{0,20}(?:\x1b|wandb:|[|+=\-─╭╰│┃\[(^~*#<]|Traceback|File \"|[EWIF]\d{4}\b|srun:|slurm|"
    r"\d{4}-\d\d-\d\d|raise |return |During |The above |[\w.]{1,200}(?:Error|Warning|Exception)\b)"
)
_MOST_LINES_OF_TRACE = 60
"""Lines from the last frame of a traceback to its exception. Responses may mention an exception,
too, but hardly ever so close to a traceback."""

_HEADING = re.compile(r"(?:^|\])[^\w\"'`]{0,100}Traceback \(most recent call last\)")
"""Behind a progress bar, the heading shares its line: `3.17s/it]Traceback …`."""
_FRAME = re.compile(r"^\s{0,8}File \"([^\"]{1,400})\", line \d")
_IN_MEMORY = ("<string>", "<stdin>", "<exec>", "<ipython")
"""Files of a last frame in code that a program runs from text, such as a model's response."""
_IGNORED = re.compile(
    r"\W{0,9}(?:Exception (?:ignored )?(?:in|on)\b|--- Logging error ---|Error in atexit|"
    r"Error in sys\.)"
)
"""Headings of tracebacks that do not stop a program: of finalizers, threads and loggers."""

_KINDS: tuple[tuple[CrashKind, re.Pattern[str]], ...] = (
    (
        "host-memory",
        re.compile(
            r"ray\.exceptions\.OutOfMemoryError|node running low on memory|oom[-_ ]kill|"
            r"killed due to memory|can't allocate memory|\bMemoryError\b|Cannot allocate memory"
        ),
    ),
    (
        "gpu-memory",
        re.compile(
            r"OutOfMemoryError|(?:CUDA|HIP)(?: error:)? out of memory|RESOURCE_EXHAUSTED|"
            r"CUBLAS_STATUS_ALLOC_FAILED"
        ),
    ),
    ("disk-full", re.compile(r"No space left on device|Disk quota exceeded")),
    ("collective-timeout", re.compile(r"Watchdog caught collective operation timeout")),
    (
        "gpu-fault",
        re.compile(r"illegal memory access|device-side assert|uncorrectable ECC|CUDA error:"),
    ),
    ("killed", re.compile(r"SIGKILL|\bKilled\b|exitcode: -9|return code = -9")),
)

_WRAPPER = re.compile(
    r"(?:\w+\.)*(?:RayTaskError|ActorDiedError|RayActorError|ActorUnavailableError|"
    r"WorkerCrashedError|EngineDeadError|ChildFailedError|SignalException|CalledProcessError|"
    r"ProcessRaisedException|ProcessExitedException|BrokenProcessPool|ConnectionResetError|"
    r"BrokenPipeError|EOFError|DistNetworkError|ConnectionRefusedError|RemoteDisconnected)\b"
)
"""Exceptions that report the failure of another process."""
_ABORTED = re.compile(
    r"NCCL communicator was aborted|remote process exited|Connection closed by (?:remote )?peer|"
    r"[Ss]ee (?:the )?(?:stack trace|root cause|error|logs?)\b.{0,40}\babove|Engine core "
    r"(?:initialization|proc)|CancelledError"
)
"""Messages of the processes that a failed one takes with it."""

_ASKED_TO_STOP = re.compile(r"SignalException: Process \d+ got signal: (?:1|2|15)$")
"""A user or a scheduler ended the job."""

_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout:(?:.{0,200}?OpType=(\w{1,40}))?"
)
_SHELL = re.compile(
    r"(?:^|\])\s{0,3}(?:\S{1,200}: line \d{1,6}:\s{1,4}\d{1,9} )?"
    r"(Killed|Segmentation fault|Bus error)(?: {1,3}\(core dumped\))?(?:\s{2,}\S.{0,400})?\s{0,9}$"
)
"""What a shell prints of a process that a signal ended: `run.sh: line 3: 712 Killed  python …`."""
_COMPLETED = re.compile(r"\b[Tt]raining (?:completes?|completed|finished)\b")
"""What trainers print at their regular end, before launchers stop the other processes."""
_SIGNAL_NINE = re.compile(
    r"(Signal 9 \(SIGKILL\) received by PID \d+|failed \(exitcode: -9\)|"
    r"exits with return code = -9|Detected \d+ oom[-_]kill events?|"
    r"\d+ Workers \(tasks / actors\) killed due to memory pressure(?: \(OOM\))?)"
)
_NATIVE = re.compile(r"^\s{0,4}what\(\):\s{1,4}(\S.{0,1000})")
"""The message of an exception of C++ that ends a process."""


class CrashTracker:
    """Follows a log line by line, in constant memory."""

    def __init__(self) -> None:
        self._latest: Crash | None = None
        self._rank = 0
        self._lines_after = self._plain_lines_after = 0
        self._since_frame = _MOST_LINES_OF_TRACE + 1
        self._file = ""
        """The file of the last frame."""
        self._is_ignored = False
        """Whether the traceback that follows does not stop a program."""
        self._is_over = False
        """Whether the user has stopped the program, or the training has completed."""

    @property
    def latest(self) -> Crash | None:
        """The error after which the program printed no step."""
        return self._latest

    @property
    def at_end(self) -> Crash | None:
        """The error with which the log ends; None if the program went on, or was asked to stop."""
        if self._latest is None or self._lines_after > _MOST_LINES_AFTER:
            return None
        if self._plain_lines_after > _MOST_PLAIN_LINES_AFTER:
            return None
        return None if _ASKED_TO_STOP.search(self._latest.message) else self._latest

    def add(self, line: str, *, number: int = 0, went_on: bool = False) -> None:
        """Add the next line of the log.

        Args:
            line: the line.
            number: its number from 1; 0 if it is not known.
            went_on: whether it, or a row that it completes, shows that the program had gone on.
        """
        self._since_frame += 1
        if self._latest is not None:
            self._lines_after += 1
            self._plain_lines_after += not _OF_SHUTDOWN.match(line)
        if went_on:
            self.note_progress()
        if not any(map(line.__contains__, _WORDS)):
            return
        for segment in visible_segments(line[:_LONGEST]):
            self._examine(without_rank(segment), number)

    def note_progress(self) -> None:
        """Take note that the program has gone on, so that it survived what was printed before."""
        self._latest, self._is_over = None, False

    def _examine(self, text: str, number: int) -> None:
        if _IGNORED.match(text):
            self._is_ignored = True
            return
        if self._is_of_traceback(text):
            return
        if text.lstrip().startswith("KeyboardInterrupt"):
            if self._since_frame <= _MOST_LINES_OF_TRACE:
                self._end()
            return
        if _COMPLETED.search(text):
            self._end()
            return
        message = self._exception_in(text) or _native_error_in(text)
        if message:
            self._keep(message, number)

    def _is_of_traceback(self, text: str) -> bool:
        """Whether the line is the heading or a frame of a traceback."""
        frame = _FRAME.match(text)
        if frame is None and not _HEADING.search(text):
            return False
        self._file = frame[1] if frame else ""
        self._since_frame = 0
        return True

    def _exception_in(self, text: str) -> str:
        """The exception that the line is, if it ends a traceback that stops the program."""
        if self._since_frame > _MOST_LINES_OF_TRACE:
            return ""
        exception = exception_in(text)
        if not exception:
            return ""
        is_ignored, self._is_ignored = self._is_ignored, False
        return "" if is_ignored or self._file.startswith(_IN_MEMORY) else exception

    def _end(self) -> None:
        """Forget an error of a program that ends otherwise, unless its cause is known."""
        self._is_over = True
        if self._rank < 2:
            self._latest = None

    def _keep(self, message: str, number: int) -> None:
        """Keep an error unless one that says more about the cause was found before."""
        kind, rank = _kind_and_rank(message)
        if self._latest is not None and rank < self._rank:
            self._lines_after = self._plain_lines_after = 0
            return
        if self._is_over and rank < 2:
            return
        is_same = self._latest is not None and self._latest.message == message
        if not is_same:  # the first of the ranks that print the same
            self._latest = Crash(kind, message, number)
        self._rank, self._lines_after, self._plain_lines_after = rank, 0, 0


def _kind_and_rank(message: str) -> tuple[CrashKind, int]:
    """What stopped the program, and how much the message says about it: 0 to 2."""
    is_wrapper = _WRAPPER.match(message) is not None or _ABORTED.search(message) is not None
    kind = next((kind for kind, pattern in _KINDS if pattern.search(message)), None)
    if is_wrapper:
        return kind or "lost-process", 0
    if kind == "killed":
        return kind, 1
    return (kind, 2) if kind else ("exception", 1)


def _native_error_in(text: str) -> str:
    """What a program, a shell or a launcher prints of an end without a Python exception."""
    if match := _WATCHDOG.search(text):
        return f"NCCL: {shortened(plain(_collective(match[1])))}"
    for pattern in (_SHELL, _SIGNAL_NINE, _NATIVE):
        if match := pattern.search(text):
            return shortened(plain(match[1].strip()))
    return ""


def _collective(operation: str | None) -> str:
    of = f" ({operation})" if operation else ""
    return f"Watchdog caught collective operation timeout{of}"
