"""An eighteenth set: 48 mistakes and 16 sound sets, drawn in the proportion of users' reports.

The kinds and their frequencies are those of the fourteenth examination: 44 % of the reports concern
rewards, 31 % data, 11 % templates and tokenizers, 14 % configs. `draw` chose kind, task and half of
each mistake, and `draw_sound` the tasks of the sound sets, before any was written. The author had
not read the checks. The accepted answers were written before the first run.
"""

from __future__ import annotations

import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fifteenth_first import first_half
from tests.preflight.planted.fifteenth_healthy import fifteenth_healthy
from tests.preflight.planted.fifteenth_second import second_half
from tests.preflight.planted.fourteenth_examination import KINDS

__all__ = ["draw", "draw_sound", "drawn_faults", "fifteenth_faults", "fifteenth_healthy"]

_SHARES = {"R": 21, "D": 15, "T": 5, "C": 7}
TASKS = ["GSM8K", "MATH", "code asserts", "code stdin", "tool calls", "JSON extraction", "classification", "multiple choice", "translation", "SQL", "summaries", "countdown game", "chess moves", "VQA", "multi-turn", "retrieval QA", "judge", "instructions", "non-English maths", "science numbers"]  # fmt: skip


def draw() -> list[tuple[str, str, str]]:
    """Kind, task and half of each of the 48 mistakes."""
    rng, kinds = random.Random(1801), []
    for share, count in _SHARES.items():
        names = [kind for kind in KINDS if kind.startswith(share)]
        drawn = rng.choices(names, [KINDS[name] for name in names], k=count)
        kinds += sorted(drawn, key=lambda kind: int(kind.split()[0][1:]))
    pairs = [(kind, rng.choice(TASKS)) for kind in kinds]
    order = list(range(48))
    rng.shuffle(order)
    first = set(order[:24])
    return [(kind, task, "A" if at in first else "B") for at, (kind, task) in enumerate(pairs)]


def draw_sound() -> list[str]:
    """Tasks of the sound sets; those at even places are of the first half."""
    rng = random.Random(1802)
    return [rng.choice(TASKS) for _ in range(16)]


def drawn_faults() -> tuple[Case, ...]:
    """Forty-eight faults, the first half before the second."""
    return (*first_half(), *second_half())


def fifteenth_faults() -> tuple[Case, ...]:
    """The faults that a preflight names."""
    return tuple(case for case in drawn_faults() if case.named)
