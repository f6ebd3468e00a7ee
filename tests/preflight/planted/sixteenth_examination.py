"""A nineteenth set: 24 mistakes and 8 sound sets, drawn in the proportion of users' reports.

The kinds and their frequencies are those of the fourteenth examination. `draw` chose kind, task and
half of each mistake, and `draw_sound` the tasks of the sound sets, before any was written. Of two
neighbors in the order of kinds, a coin decides which belongs to half A. The author had not read the
checks. The accepted answers were written before the first run.
"""

from __future__ import annotations

from tests.preflight.planted.cases import Case
from tests.preflight.planted.examination_draws import drawn_kinds, drawn_tasks
from tests.preflight.planted.sixteenth_first import first_half
from tests.preflight.planted.sixteenth_healthy import sixteenth_healthy
from tests.preflight.planted.sixteenth_second import second_half

__all__ = ["draw", "draw_sound", "drawn_faults", "sixteenth_faults", "sixteenth_healthy"]

_SHARES = {"R": 10, "D": 8, "T": 3, "C": 3}


def draw() -> list[tuple[str, str, str]]:
    """Kind, task and half of each of the 24 mistakes."""
    return drawn_kinds(1901, _SHARES)


def draw_sound() -> list[str]:
    """Tasks of the sound sets; those at even places are of the first half."""
    return drawn_tasks(1902, 8)


def drawn_faults() -> tuple[Case, ...]:
    """Twenty-four faults, the first half before the second."""
    return (*first_half(), *second_half())


def sixteenth_faults() -> tuple[Case, ...]:
    """The faults that a preflight names."""
    return tuple(case for case in drawn_faults() if case.named)
