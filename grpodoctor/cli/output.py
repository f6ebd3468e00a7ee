"""Writing a report to a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def write_report(output: Path, rendered: str) -> None:
    """Write a report and say so on stderr.

    Raises:
        InputError: if it cannot be written there.
    """
    from grpodoctor.errors import InputError
    from grpodoctor.support.safe_text import plain

    try:
        _put(output.resolve(), rendered)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"the report cannot be written: {reason}",
            where=str(output),
            remedy="name a file in a directory that you can write to",
        ) from error
    print(f"report written to {plain(str(output))}", file=sys.stderr)


def _put(target: Path, text: str) -> None:
    """Write aside, then rename: nobody sees half a report. Devices and pipes stay what they are."""
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    aside = target.with_name(f".grpodoctor-{os.getpid()}.tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(target)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
