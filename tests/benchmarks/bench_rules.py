"""How long the rules take: 10,000 steps of 60 metrics through all of them, on one core.

Also the memory that the chart and the engine hold after 5,000 and after 10,000 steps, which must
not differ, and the rules that take longest.
"""

from __future__ import annotations

import cProfile
import gc
import math
import pstats
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from grpodoctor.rules.base import Rule
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.records import StepRecord
from tests.benchmarks.peer import parse_seconds
from tests.rules.scenario import healthy, steps

STEPS, BAR_SECONDS, MOST_GROWTH = 10_000, 2.0, 100_000
DISTINCT = 2_000
"""Steps that are made; the run repeats them, so that making them does not fill the memory."""
SLOWEST = 8
PASSES = 3


def as_logged(records: Sequence[StepRecord]) -> list[StepRecord]:
    """The records as `check` reads them from a run's log."""
    return [StepRecord.from_line(record.to_line()) for record in records]


def observe(records: Sequence[StepRecord], rules: Sequence[Rule], count: int) -> Engine:
    """An engine that has observed `count` steps."""
    engine = Engine(rules)
    for step in range(count):
        engine.observe(StepRecord(step, records[step % len(records)].values))
    return engine


def seconds(records: Sequence[StepRecord], rules: Sequence[Rule]) -> tuple[float, float]:
    """Processor time of the fastest of three passes, and the sum of each step's fastest one.

    Other programs lengthen every pass on a busy machine, but hardly the same step in all of them.
    """
    passes, fastest = [], [math.inf] * STEPS
    for _ in range(PASSES):
        begun = time.process_time()
        taken = _times(records, rules)
        passes.append(time.process_time() - begun)
        fastest = list(map(min, fastest, taken))
    return min(passes), sum(fastest)


def _times(records: Sequence[StepRecord], rules: Sequence[Rule]) -> list[float]:
    """Seconds by the clock that each step takes."""
    engine, taken = Engine(rules), []
    for step in range(STEPS):
        record = StepRecord(step, records[step % len(records)].values)
        begun = time.perf_counter()
        engine.observe(record)
        taken.append(time.perf_counter() - begun)
    return taken


def growth(records: Sequence[StepRecord]) -> int:
    """Bytes held after 10,000 steps minus those held after 5,000."""
    engine = observe(records, all_rules(), 1_000)
    tracemalloc.start()
    try:
        held = []
        for first, last in ((1_000, STEPS // 2), (STEPS // 2, STEPS)):
            for step in range(first, last):
                engine.observe(StepRecord(step, records[step % len(records)].values))
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        return held[1] - held[0]
    finally:
        tracemalloc.stop()


def shares(records: Sequence[StepRecord]) -> list[tuple[float, str]]:
    """Share of each rule in the time of all rules, the slowest first."""
    profile = cProfile.Profile()
    profile.runcall(observe, records, all_rules(), DISTINCT)
    taken: dict[str, float] = {}
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # not in the stubs
    for (file, _, function), (_, _, _, cumulative, _) in stats.items():
        if function == "examine":
            taken[Path(file).stem] = cumulative
    total = sum(taken.values())
    return sorted(((each / total, name) for name, each in taken.items()), reverse=True)


def main() -> int:
    """Print the figures; 1 if time or memory exceed what is allowed."""
    records = as_logged(steps(DISTINCT, healthy(1)))
    metrics, rules = len(records[1].values), all_rules()
    (chart, _), (everything, undisturbed) = seconds(records, []), seconds(records, rules)
    grown = growth(records)
    print(f"{STEPS:,} steps of {metrics} metrics through {len(rules)} rules")
    print(f"chart alone      {chart:6.2f} s of one core")
    print(f"chart and rules  {everything:6.2f} s of one core; must stay below {BAR_SECONDS:.0f} s")
    print(f"undisturbed      {undisturbed:6.2f} s: the fastest of {PASSES} passes at each step")
    print(f"fixed work       {parse_seconds():6.4f} s: json.loads of 3,000 rows of a log")
    print(f"memory           {grown / 1000:+6.1f} kB from step {STEPS // 2:,} to step {STEPS:,}")
    slowest = shares(records)[:SLOWEST]
    print("slowest rules    " + ", ".join(f"{name} {share:.0%}" for share, name in slowest))
    return int(not (everything < BAR_SECONDS and grown < MOST_GROWTH))


if __name__ == "__main__":
    raise SystemExit(main())
