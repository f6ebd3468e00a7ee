"""A seventeenth set: 72 mistakes and 20 sound sets, drawn from what users report.

The proportions are those of issue threads of TRL, verl, open-r1, ms-swift, Unsloth, OpenRLHF,
NeMo RL, prime-rl, verifiers, SkyRL and others. `draw` chose kind and task of each mistake, and its
half, before any was written. The author had not read the checks. The accepted answers were written
before the first run.
"""

from __future__ import annotations

import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_first import first_half
from tests.preflight.planted.fourteenth_healthy import fourteenth_healthy
from tests.preflight.planted.fourteenth_second import second_half

__all__ = ["draw", "drawn_faults", "fourteenth_faults", "fourteenth_healthy"]

KINDS = {
    "R1 format that is too strict": 6, "R2 extraction of the wrong part": 4,
    "R3 comparison that is too strict": 4, "R4 answers that cannot be parsed are paid": 3,
    "R5 missing columns": 3, "R6 text and messages": 3, "R7 number of rewards, None, nan": 2,
    "R8 data sources": 2, "R9 several or partial answers": 4, "R10 form alone": 3,
    "R11 exploits of programs": 2, "R12 the prompt is scored": 1, "R13 sign and scale": 2,
    "R14 constant": 1, "R15 judges": 2, "R16 tests that the solution fails": 1,
    "R17 memory, time, chance": 1,
    "D1 wrong answers": 3, "D2 another column than the answer": 4, "D3 empty answers": 2,
    "D4 duplicates": 2, "D5 held-out prompts": 2, "D6 answers in prompts": 2,
    "D7 missing parts of prompts": 4, "D8 escapes and encodings": 2, "D9 cut or long prompts": 3,
    "D10 roles and schemas": 3, "D11 guessing and shortcuts": 2, "D12 languages": 1,
    "D13 too few rows": 1,
    "T1 no template": 2, "T2 two templates": 2, "T3 EOS and padding": 3,
    "T4 thoughts and generation prompts": 2, "T5 dropped or refused messages": 2,
    "C1 batches and groups": 3, "C2 response and prompt limits": 3, "C3 sampling settings": 3,
    "C4 rates and schedules": 2, "C5 context lengths": 2, "C6 groups of one": 1,
}  # fmt: skip
"""Per cent of reports: distinct threads, with the first natural sample's counts."""
_TASKS = ["word problems", "competition", "code asserts", "code stdin", "multiple choice", "tool use", "multi-turn", "JSON output", "translation", "game", "long-context QA", "classification", "judge", "non-English", "SQL", "instructions"]  # fmt: skip


def draw() -> list[tuple[str, str, str]]:
    """Kind, task and half of each of the 72 mistakes."""
    rng = random.Random(1601)
    names = [kind.split()[0] for kind in KINDS]
    kinds = sorted(
        rng.choices(names, list(KINDS.values()), k=72),
        key=lambda kind: ("RDTC".index(kind[0]), int(kind[1:])),
    )
    pairs = [(kind, rng.choice(_TASKS)) for kind in kinds]
    order = list(range(72))
    rng.shuffle(order)
    first = set(order[:36])
    return [(kind, task, "A" if at in first else "B") for at, (kind, task) in enumerate(pairs)]


def drawn_faults() -> tuple[Case, ...]:
    """Seventy-two faults, the first half before the second."""
    return (*first_half(), *second_half())


def fourteenth_faults() -> tuple[Case, ...]:
    """The faults that a preflight names after the corrections."""
    return tuple(case for case in drawn_faults() if case.named)
