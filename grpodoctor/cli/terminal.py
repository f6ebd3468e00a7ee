"""What the terminal at hand can do."""

from __future__ import annotations

import os
import shutil
import sys

PIPED_COLUMNS = 80


def colour_wanted() -> bool:
    """Whether stdout is a terminal that takes colours, and the user does not object."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Columns of the terminal, or a customary width where there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_COLUMNS
