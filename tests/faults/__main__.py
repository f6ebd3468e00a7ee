"""Lets every system call of recording and reading fail once, and prints how it ended.

make faults            all points; about an hour of one core
python -m tests.faults --area recorder --kind write
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import shim
from tests.faults.harness import Harness, Result, Tally


def main() -> None:
    """Run the points that the command line asks for; exit with 1 if a promise is broken."""
    options = _options()
    if not os.environ.get("LD_PRELOAD", "").endswith("inject.so"):
        _restart()
    began = time.monotonic()
    memory = Path("/dev/shm")  # noqa: S108 - a busy disk takes seconds for each fsync
    home = Path(
        tempfile.mkdtemp(prefix="grpodoctor-faults-", dir=memory if memory.is_dir() else None)
    )
    tallies = _tallies(home, options)
    if options.json:
        print(json.dumps(_as_json(tallies)))
    else:
        _print(tallies, time.monotonic() - began)
    broken = [result for tally in tallies.values() for result in tally.broken]
    if not broken:
        shutil.rmtree(home)
    sys.exit(1 if broken else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--area", action="append", help="only this area; repeatable")
    parser.add_argument("--kind", action="append", help="only this kind of call; repeatable")
    parser.add_argument("--helper", action="store_true", help="only in the writer process")
    parser.add_argument("--scenario", action="append", help="only this scenario; repeatable")
    parser.add_argument("--sample", type=int, help="so many points of each scenario")
    parser.add_argument("--json", action="store_true", help="print the tallies as JSON")
    parser.add_argument("--verbose", action="store_true", help="print each point")
    return parser.parse_args()


def _restart() -> None:
    """Start this program again with the library that makes calls fail."""
    variables = {**os.environ, "LD_PRELOAD": str(shim.compiled()), "PYTHONMALLOC": "malloc"}
    variables |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    variables["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others have threads, which forks lack
    os.execve(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]], variables)  # noqa: S606


def _tallies(home: Path, options: argparse.Namespace) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for result in _results(Harness(home), home, options):
        tallies.setdefault(result.point.scenario.area, Tally()).add(result)
        if options.verbose or result.broken:
            print(f"{result.point}: {result.broken or result.outcome}", file=sys.stderr, flush=True)
    return tallies


def _results(harness: Harness, home: Path, options: argparse.Namespace) -> Iterator[Result]:
    from tests.faults import reading, training

    training.warm_up(home)
    training.Training.remember(harness)
    scenarios = [*training.training_scenarios(), *reading.reading_scenarios()]
    for scenario in scenarios:
        if options.area and scenario.area not in options.area:
            continue
        if options.scenario and scenario.name not in options.scenario:
            continue
        scenario.learn(harness)
        if options.sample:
            yield from harness.sample(scenario, options.sample)
            continue
        for fault in scenario.faults:
            if (not options.kind or fault.kind in options.kind) and (
                not options.helper or fault.role == shim.HELPER
            ):
                yield from harness.sweep(scenario, fault)


def _as_json(tallies: dict[str, Tally]) -> dict[str, object]:
    return {
        area: {
            "points": tally.points,
            "outcomes": dict(tally.outcomes),
            "broken": [f"{result.point}: {result.broken}" for result in tally.broken],
        }
        for area, tally in tallies.items()
    }


def _print(tallies: dict[str, Tally], seconds: float) -> None:
    for area, tally in tallies.items():
        print(f"{area}: {tally.points} points")
        for outcome, count in tally.outcomes.most_common():
            print(f"  {count:5d}  {outcome}")
        if tally.broken:
            print(f"  {len(tally.broken):5d}  BROKEN PROMISES")
    points = sum(tally.points for tally in tallies.values())
    print(f"{points} points in {seconds / 60:.0f} minutes")


if __name__ == "__main__":
    main()
