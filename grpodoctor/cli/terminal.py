"""The capabilities of the terminal."""

from __future__ import annotations

import os
import shutil
import sys

PIPE_COLUMNS = 80
"""Width of the output if stdout is not a terminal."""


def supports_color() -> bool:
    """Whether stdout is a color terminal, and the user did not set NO_COLOR."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Width of the terminal in columns."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS
