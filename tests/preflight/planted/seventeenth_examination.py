"""A twentieth set: 36 mistakes and 12 sound sets, drawn in the proportion of users' reports.

The kinds and their frequencies are those of the fourteenth examination. `draw` chose kind, task and
half of each mistake, and `draw_sound` the tasks of the sound sets, before any was written. Of two
neighbors in the order of kinds, a coin decides which belongs to half A. The author had not read the
checks. The accepted answers were written before the first run.
"""

from __future__ import annotations

from tests.preflight.planted.cases import Case
from tests.preflight.planted.examination_draws import drawn_kinds, drawn_tasks
from tests.preflight.planted.seventeenth_first import first_half
from tests.preflight.planted.seventeenth_healthy import seventeenth_healthy
from tests.preflight.planted.seventeenth_second import second_half

__all__ = ["draw", "draw_sound", "drawn_faults", "seventeenth_faults", "seventeenth_healthy"]

_SHARES = {"R": 16, "D": 11, "T": 4, "C": 5}


def draw() -> list[tuple[str, str, str]]:
    """Kind, task and half of each of the 36 mistakes."""
    return drawn_kinds(2001, _SHARES)


def draw_sound() -> list[str]:
    """Tasks of the sound sets; those at even places are of the first half."""
    return drawn_tasks(2002, 12)


def drawn_faults() -> tuple[Case, ...]:
    """Thirty-six faults, the first half before the second."""
    return (*first_half(), *second_half())


def seventeenth_faults() -> tuple[Case, ...]:
    """The faults that a preflight names."""
    return tuple(case for case in drawn_faults() if case.named)
