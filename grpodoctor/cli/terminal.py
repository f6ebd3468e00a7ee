"""The capabilities of the terminal."""

from __future__ import annotations

import os
import shutil
import sys

PIPE_COLUMNS = 80
"""Width of the output if stdout is not a terminal and `COLUMNS` is not set."""


def supports_color() -> bool:
    """Whether stdout is a color terminal, and the user did not set NO_COLOR."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Width of the terminal in columns; a pipe has `COLUMNS` if that is set."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return shutil.get_terminal_size().columns if known else PIPE_COLUMNS
