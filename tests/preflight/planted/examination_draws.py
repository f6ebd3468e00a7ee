"""What the later examinations draw by chance: kinds of mistakes, tasks and halves."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tests.preflight.planted.fifteenth_examination import TASKS
from tests.preflight.planted.fourteenth_examination import KINDS


def drawn_kinds(seed: int, shares: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Kind, task and half of each mistake.

    Of two neighbors in the order of kinds, a coin decides which belongs to half A.

    Args:
        seed: of the draw.
        shares: the number of mistakes by the first letter of their kinds.
    """
    rng, kinds = random.Random(seed), []
    for share, count in shares.items():
        names = [kind for kind in KINDS if kind.startswith(share)]
        drawn = rng.choices(names, [KINDS[name] for name in names], k=count)
        kinds += sorted(drawn, key=lambda kind: int(kind.split()[0][1:]))
    tasks = [rng.choice(TASKS) for _ in kinds]
    halves = "".join(rng.choice(("AB", "BA")) for _ in range(len(kinds) // 2))
    return list(zip(kinds, tasks, halves, strict=True))


def drawn_tasks(seed: int, count: int) -> list[str]:
    """Tasks of sound sets."""
    rng = random.Random(seed)
    return [rng.choice(TASKS) for _ in range(count)]
