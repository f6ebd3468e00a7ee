"""A twenty-first set: 24 mistakes and 8 sound sets, drawn in the proportion of users' reports.

The kinds and their counts come from a new search of public threads about GRPO runs with TRL, verl,
OpenRLHF, ms-swift, open-r1 and their forks: one thread counts once. `draw` chose kind, task and half
of each mistake, and `draw_sound` the tasks of the sound sets, before any was written. Of two
neighbors in the order of kinds, a coin decides which belongs to half A. The author had not read the
checks. The accepted answers were written before the first run.
"""

from __future__ import annotations

import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.eighteenth_first import first_half
from tests.preflight.planted.eighteenth_healthy import eighteenth_healthy
from tests.preflight.planted.eighteenth_second import second_half

__all__ = ["KINDS", "draw", "draw_sound", "drawn_faults", "eighteenth_faults", "eighteenth_healthy"]

KINDS = {
    "R1 a format that no response can have": 8,
    "R2 extraction takes the wrong part": 10,
    "R3 a response without an answer earns full marks": 7,
    "R4 the sign is wrong": 2,
    "R5 the comparison is too lax": 4,
    "R6 the reference has another form": 6,
    "R7 parts of unequal scale": 4,
    "R8 a judge's reply is parsed wrongly": 3,
    "R9 a bonus without a correct answer": 2,
    "R10 weak tests": 2,
    "R11 columns, types or signature": 4,
    "D1 wrong labels": 5,
    "D2 duplicates or overlap": 2,
    "D3 the answer's position, or a leak": 3,
    "D4 names of sources": 4,
    "D5 the prompt asks for another format": 2,
    "T1 start token or template": 2,
    "T2 prompts longer than the limit": 4,
    "T3 responses longer than the limit": 5,
    "C1 batch and group size": 5,
    "C2 learning rate": 3,
}
"""Number of threads by kind."""

TASKS = (
    "latex math", "code with unit tests", "multiple choice", "tool use", "JSON extraction", "SQL",
    "translation", "multi-turn", "LLM judge", "rubric", "visual questions as text",
    "medical questions", "number puzzles", "search questions",
)  # fmt: skip


def draw() -> list[tuple[str, str, str]]:
    """Kind, task and half of each of the 24 mistakes."""
    rng, names = random.Random(2101), list(KINDS)
    drawn = [(rng.choices(names, list(KINDS.values()))[0], rng.choice(TASKS)) for _ in range(24)]
    drawn.sort(key=lambda pair: names.index(pair[0]))
    halves = "".join("AB" if rng.random() < 0.5 else "BA" for _ in range(12))
    return [(*pair, half) for pair, half in zip(drawn, halves, strict=True)]


def draw_sound() -> list[str]:
    """Tasks of the sound sets; those at even places are of the first half."""
    return random.Random(2102).sample(TASKS, 8)


def drawn_faults() -> tuple[Case, ...]:
    """Twenty-four faults, the first half before the second."""
    return (*first_half(), *second_half())


def eighteenth_faults() -> tuple[Case, ...]:
    """The faults that a preflight names."""
    return tuple(case for case in drawn_faults() if case.named)
