"""The error for a path without a readable log, with the reason if the first bytes tell it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from grpodoctor.errors import NoLogError, RunError, name_some
from grpodoctor.frameworks.rollout_formats.registry import dump_format_of
from grpodoctor.runs.log_formats.csv import lists_runs
from grpodoctor.runs.reading.tracker_exports import tracker_error
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.support.files.packed_files import is_packed
from grpodoctor.support.files.regular_files import MOST_ENTRIES, files_below, kind_of, open_regular
from grpodoctor.support.json_text import loads
from grpodoctor.support.safe_text import plain

_HEAD = 4096
_MAX_REASONS = 3
_WANDB = b":W&B"
"""The beginning of a log of W&B."""

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TAIL = 512 * 1024
"""Bytes at the end of a log that are searched for an exception."""
_LONGEST_SUMMARY = 1024 * 1024
"""Bytes of a JSON document that is parsed to describe it."""
_TABLES = (".csv", ".tsv")
_NOTEBOOK = ".ipynb"
_TEXT_LOGS = (".log", ".txt", ".out", ".err")
"""Names under which the output of a program is saved."""
_MAX_SEARCHED = 64
"""Files of a directory in which an exception is searched."""
_SHOWN = 160
"""Characters of a key in the message."""
_REPORT_FORMATS = frozenset({"json"})
"""Formats of logs and of reports."""
_STATE = "trainer_state.json"
"""The log that trainers based on transformers write next to their results."""
_REMEDY = "pass a training log or its directory, or set the format of the log with --format"


def no_run_error(path: Path, damage: list[Damage], log_format: str | None = None) -> RunError:
    """Make the error that says why a path holds no run.

    Args:
        path: the path that the user gave.
        damage: the first damage found in it.
        log_format: the format that the user gave; that of a log may be meant for the report.
    """
    error = _reason(path, damage)
    if log_format in _REPORT_FORMATS:
        hint = f"for a report in this format, use --output-format {log_format}"
        return type(error)(error.what, where=error.where, remedy=f"{hint}; {error.remedy}")
    return error


def _reason(path: Path, damage: list[Damage]) -> RunError:
    if path.is_dir():
        return _reason_of_directory(path, damage)
    if not path.is_file():
        return _error(path, f"it is {kind_of(path.stat().st_mode)}, not a file")
    reason = _content(path)
    if reason == "empty":
        return _empty_error(path, "file")
    if reason:
        return _error(path, f"the file is {reason}")
    if damage:
        first = damage[0]
        return _error(path, f"line {first.line}: {first.why}" if first.line else first.why)
    return _text_error(path)


def _reason_of_directory(path: Path, damage: list[Damage]) -> RunError:
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return _empty_error(path, "directory")
    if error := tracker_error(path, names):
        return error
    if reasons := _file_reasons(path, names):
        return _error(path, reasons)
    if stops := _stops(path, names):
        return _no_step_error(path, stops)
    if skipped := _skipped_dumps_error(path):
        return skipped
    if not damage:
        return _error(path, f"the directory contains: {name_some(names)}")
    first = damage[0]
    line = f" line {first.line}" if first.line else ""
    return _error(path, f"{first.file}{line}: {first.why}")


def _skipped_dumps_error(directory: Path) -> NoLogError | None:
    """The error for a directory whose only readable files are responses that are skipped."""
    for path in islice(files_below(directory), _MAX_SEARCHED):
        form = dump_format_of(path)
        if form is not None and (reason := form.skip_reason(path)):
            return NoLogError(
                f"no readable log; the responses in {path.name} are not read because {reason}",
                where=str(directory),
                remedy=f"pass the file itself to read it: {path}",
            )
    return None


def _text_error(path: Path) -> RunError:
    """The error for a file of text that is no log."""
    error = _last_exception(path)
    if error:
        return _no_step_error(path, f"the program stopped with {error}")
    if path.suffix.lower() in _TABLES and lists_runs(_first_line(path)):
        return NoLogError(
            "no readable log; the table has one row for each run, not for each step",
            where=str(path),
            remedy="export the history of one run, or pass the run's directory",
        )
    if path.suffix.lower() == _NOTEBOOK:
        return NoLogError(
            "no readable log; no cell of the notebook shows a step with its values",
            where=str(path),
            remedy=f"print both in one line, such as step=3 reward=0.41, or {_log_next_to(path)}",
        )
    keys = _keys_of_summary(path)
    if keys:
        return NoLogError(
            f"no readable log; the JSON document has no series of steps; its keys: {keys}",
            where=str(path),
            remedy=_log_next_to(path),
        )
    return _error(path, "the file is in no known format and has no line with a step")


def _first_line(path: Path) -> str:
    with open_regular(path) as file:
        return file.read(_HEAD).partition(b"\n")[0].decode("utf-8-sig", "replace")


def _log_next_to(path: Path) -> str:
    """What to pass instead of a summary: the log in the same directory, if there is one."""
    if (path.parent / _STATE).is_file() and path.name != _STATE:
        return f"pass {path.parent / _STATE}, which has an entry for each step"
    return f"pass the log that has an entry for each step, such as {_STATE}"


def too_many_files_error(path: Path) -> RunError:
    """Make the error for a directory in which the search for logs was cut off."""
    return RunError(
        f"no readable log among the first {MOST_ENTRIES:,} files and folders",
        where=str(path),
        remedy="pass the directory of the run, or its log",
    )


def _stops(directory: Path, names: list[str]) -> str:
    """The exceptions with which the programs that wrote a directory's logs stopped.

    One process of a run fails, and the launcher ends the others, which then print the signal: an
    exception of a signal is named only if there is no other.
    """
    from grpodoctor.runs.log_formats.decoding.exceptions import is_of_signal

    files = [directory / name for name in names[:_MAX_SEARCHED] if Path(name).suffix in _TEXT_LOGS]
    errors = {path.name: error for path in files if (error := _last_exception(path))}
    causes = {name: error for name, error in errors.items() if not is_of_signal(error)}
    shown = [f"{name} stops with {error}" for name, error in (causes or errors).items()]
    return "; ".join(shown[:_MAX_REASONS])


def _no_step_error(path: Path, stop: str) -> RunError:
    return NoLogError(
        f"no training step in the log; {stop}",
        where=str(path),
        remedy="fix this error first; if the file is no training log, pass the one of the run",
    )


def _file_reasons(directory: Path, names: list[str]) -> str:
    reasons = [f"{name} is {content}" for name in names if (content := _content(directory / name))]
    return "; ".join(reasons[:_MAX_REASONS])


def _error(path: Path, what: str) -> RunError:
    return NoLogError(f"no readable log; {what}", where=str(path), remedy=_REMEDY)


def _empty_error(path: Path, kind: str) -> RunError:
    return NoLogError(
        f"no readable log; the {kind} is empty",
        where=str(path),
        remedy="if the run has just started, wait for its first step, or use grpodoctor watch; "
        "otherwise pass the log that the run writes",
    )


def _last_exception(path: Path) -> str:
    """The last exception that a program printed into a log; empty if there is none."""
    from grpodoctor.runs.log_formats.decoding.crashes import CrashTracker

    try:
        with open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            text = file.read(_TAIL)
    except (OSError, RunError):
        return ""
    tracker = CrashTracker()
    for line in text.decode(errors="replace").splitlines():
        tracker.add(line)
    return tracker.latest.message if tracker.latest else ""


def _keys_of_summary(path: Path) -> str:
    """The first keys of a JSON document without a history: a summary, results or settings."""
    try:
        with open_regular(path) as file:
            text = file.read(_LONGEST_SUMMARY + 1)
        data = loads(text) if len(text) <= _LONGEST_SUMMARY else None
    except (OSError, RunError, ValueError):
        return ""
    if not isinstance(data, dict):
        return ""
    return name_some([plain(key, limit=_SHOWN) for key in data])


def _content(path: Path) -> str:
    """What a file contains instead of a log; empty if its first bytes do not tell."""
    try:
        if path.is_dir():
            return ""
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except (OSError, RunError):
        return ""
    if not head:
        return "empty"
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            unread = "damaged, or contains no log" if is_packed(path) else "unpack it first"
            return f"{name}: {unread}"
    if head.startswith(_WANDB):
        return "a W&B log without a step"
    if not head.strip(b"\0"):
        return "nothing but zeros"
    if head.startswith(_UTF16) or head[1::2].count(0) > len(head) // 3:
        return "UTF-16: convert it to UTF-8"
    return "binary" if b"\0" in head else ""
