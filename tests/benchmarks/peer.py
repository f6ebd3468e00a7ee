"""A fixed amount of work, so that times from different processors, or at other loads, compare."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

LOG = Path(__file__).parents[1] / "data" / "logs" / "beibeizzz_own.jsonl.gz"
LINES, ROUNDS, REPEATS = 300, 10, 5


def parse_seconds() -> float:
    """Processor time of `json.loads` of 3,000 rows of a log: the lowest of five passes."""
    with gzip.open(LOG) as packed:
        lines = packed.readlines()[:LINES] * ROUNDS
    taken = []
    for _ in range(REPEATS):
        begun = time.process_time()
        for line in lines:
            json.loads(line)
        taken.append(time.process_time() - begun)
    return min(taken)
