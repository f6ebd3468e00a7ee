"""Why an engine failed: its own answer, otherwise the error lines of its log."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.errors import EngineError
from grpodoctor.probe.engines.processes import ProgramExit
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.support.safe_text import printable

_MAX_ANSWER_BYTES = 16 << 20
_TAIL_BYTES = 64 << 10
_TAIL_LINES = 400
_LINE_CHARACTERS = 240
_QUOTED_LINES = 3
_ERROR = re.compile(
    r"\b[\w.]*(?:Error|Exception)\b|\bKilled\b|[Oo]ut of memory|\bSignal \d+ \(SIG"
    r"|\bdied unexpectedly"
)
_UNINFORMATIVE = re.compile(r"^raise |\.ChildFailedError:$|\d%\|")
"""Code lines of a traceback, torchrun's word for any failure, and progress bars."""
_PREFIX = re.compile(
    r"^(?:\([^()]{1,60}\) )?(?:ERROR|WARNING|INFO) [\d:. -]{5,30}\[[^\]]{1,80}\] ?"
    r"|^\[rank\d+\]: ?"
)
"""What vLLM and torch print before a line: the worker, the time, and the place in their source."""
_COLOR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def read_answer(path: Path) -> Mapping[str, Any]:
    """A program's answer; empty if it is missing or unreadable."""
    try:
        if path.stat().st_size > _MAX_ANSWER_BYTES:
            return {}
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def failure(
    spec: EngineSpec, log: Path, program_exit: ProgramExit, answer: Mapping[str, Any]
) -> EngineError:
    """The error that says why an engine did not do its tasks."""
    refusal = _refusal_in(answer)
    if refusal is not None:
        what, remedy = refusal
        # The error that reaches the program is often not the cause: a worker's log has it.
        others = [line for line in _error_lines(last_lines(log)) if line[-80:] not in what]
        quoted = f"; its log says: {' | '.join(others)}" if others else ""
        return EngineError(f"{spec.label}: {what}{quoted}", where=f"log: {log}", remedy=remedy)
    what = f"{spec.label} {program_exit.clause(spec.timeout)}"
    if program_exit.reason == "ended" and program_exit.code == 0:
        what += " without an answer"
    lines = error_summary(log)
    remedy = "read its log"
    if program_exit.code == -signal.SIGKILL:
        remedy = "read its log; the system kills programs that exceed the memory"
    if program_exit.reason == "silent":
        remedy = "read its log; if it only needs longer, give the engine timeout=SECONDS"
    return EngineError(
        f"{what}; its last lines: {lines}" if lines else f"{what} and printed nothing",
        where=f"log: {log}",
        remedy=remedy,
    )


def _refusal_in(answer: Mapping[str, Any]) -> tuple[str, str] | None:
    """A program's reason for refusing, and its remedy."""
    error = answer.get("error")
    if not isinstance(error, Mapping):
        return None
    return printable(str(error.get("what", "")), 500), printable(str(error.get("remedy", "")), 500)


def error_summary(log: Path) -> str:
    """The last error lines of a log on one line, printable and bounded; else its last lines.

    The very last lines often do not name the error: vLLM's say that the root cause stands above.
    """
    lines = last_lines(log)
    return " | ".join(_error_lines(lines) or _distinct(lines)[-_QUOTED_LINES:])


def _error_lines(lines: Sequence[str]) -> list[str]:
    return [line for line in _distinct(lines) if _ERROR.search(line)][-_QUOTED_LINES:]


def _distinct(lines: Sequence[str]) -> list[str]:
    """Lines without prefixes and duplicates, since several workers print the same, repeatedly."""
    bare = (_PREFIX.sub("", line) for line in lines)
    return list(dict.fromkeys(line for line in bare if not _UNINFORMATIVE.search(line)))


def last_lines(log: Path) -> list[str]:
    """The last lines of a log that are not blank, printable and cut."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    recent = text.splitlines()[-_TAIL_LINES * 2 :]
    lines = [" ".join(_COLOR.sub("", line).split()) for line in recent]
    return [printable(line, _LINE_CHARACTERS) for line in lines if line][-_TAIL_LINES:]
