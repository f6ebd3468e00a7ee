"""A twenty-second set: 24 mistakes of kinds that no earlier set has, and 8 sound sets that look odd.

The kinds come from issue threads and reviews of TRL, verl, open-r1, open-instruct, verifiers, ms-swift
and others: state and order of a batch (open-instruct pull request 1484), containment (verifiers 763),
signs (proeval 19), characters for tokens (open-r1 567), and what they bring to mind. They were chosen,
not drawn, so that the share of named faults is that of new kinds, not of users' reports. Of two
neighbors in the order of `plants`, a coin decides which belongs to half A. The author had not read
the checks. The accepted statements were written before the first run.
"""

from __future__ import annotations

import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.nineteenth_healthy import nineteenth_healthy
from tests.preflight.planted.nineteenth_plants import plants

__all__ = ["drawn_faults", "first_half", "nineteenth_faults", "nineteenth_healthy", "second_half"]


def halves() -> str:
    """The half of each mistake, in the order of `plants`."""
    rng = random.Random(2201)
    return "".join("AB" if rng.random() < 0.5 else "BA" for _ in range(12))


def first_half() -> tuple[Case, ...]:
    """Twelve mistakes: half A."""
    return tuple(case for case, half in zip(plants(), halves(), strict=True) if half == "A")


def second_half() -> tuple[Case, ...]:
    """Twelve mistakes: half B."""
    return tuple(case for case, half in zip(plants(), halves(), strict=True) if half == "B")


def drawn_faults() -> tuple[Case, ...]:
    """Twenty-four faults, the first half before the second."""
    return (*first_half(), *second_half())


def nineteenth_faults() -> tuple[Case, ...]:
    """The faults that a preflight names."""
    return tuple(case for case in drawn_faults() if case.named)
