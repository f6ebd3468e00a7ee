"""How an unexpected exception, which is a defect of this program, is reported."""

from __future__ import annotations

import traceback
from pathlib import Path

_LONGEST = 200


def defect_of(error: Exception) -> tuple[str, str]:
    """A defect in words, and the file and line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {str(error)[:_LONGEST]}".removesuffix(": ")
    return f"a defect in grpodoctor, {text}", f"{Path(last.filename).name}:{last.lineno}"
