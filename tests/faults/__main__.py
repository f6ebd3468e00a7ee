"""Lets every system call of recording and reading fail once, and prints how it ended.

make faults            all points; hours of one core
python -m tests.faults --area recorder --kind write
python -m tests.faults --results FILE    again with the same file: goes on behind the last point
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults import shim
from tests.faults.harness import Harness, Scenario
from tests.faults.results import Results, Row, Work, end_line, tables


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
    results = _results(home, options)
    broken = [f"{row.point}: {row.broken}" for row in results.rows.values() if row.broken]
    if options.json:
        areas = results.by_area().items()
        points = {area: len(rows) for area, rows in areas}
        print(json.dumps({"points": points, "broken": broken}))
    else:
        minutes = (time.monotonic() - began) / 60
        print(tables(results))
        print(f"\n{len(results.rows):,} points, {len(broken)} broken promises, "
              f"{minutes:.0f} minutes")  # fmt: skip
    if not broken:
        shutil.rmtree(home)
    sys.exit(1 if broken else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--area", action="append", help="only this area; repeatable")
    parser.add_argument("--kind", action="append", help="only this kind of call; repeatable")
    parser.add_argument("--scenario", action="append", help="only this scenario; repeatable")
    parser.add_argument("--number", action="append", type=int, help="only this call; repeatable")
    parser.add_argument("--sample", type=int, help="so many points of each scenario")
    parser.add_argument("--seed", type=int, default=0, help="chooses the allocations that fail")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--results", type=Path, help="file of results; goes on behind them")
    parser.add_argument("--json", action="store_true", help="print the tallies as JSON")
    parser.add_argument("--verbose", action="store_true", help="print each point")
    return parser.parse_args()


def _restart() -> None:
    """Start this program again with the library that makes calls fail."""
    variables = {**os.environ, "LD_PRELOAD": str(shim.compiled()), "PYTHONMALLOC": "malloc"}
    variables |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    variables["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others have threads, which forks lack
    os.execve(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]], variables)  # noqa: S606


def _results(home: Path, options: argparse.Namespace) -> Results:
    """Run the remaining points in several processes; each process forks its scenarios."""
    file = options.results or home / "results.jsonl"
    known, harness = Results.read(file), Harness(home)
    works = [
        work
        for scenario in _scenarios(harness, home, options)
        for work in _works(scenario, options)
        if not known.is_whole(work)
    ]
    rows = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    pids = []
    for worker in range(options.jobs):
        pids.append(os.fork())
        if pids[-1] == 0:
            share = [(work, known.done(work)) for work in works[worker :: options.jobs]]
            _run_share(Harness(home / str(worker)), share, rows, verbose=options.verbose)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(codes):
        sys.exit(f"a worker ended with {codes}")
    return Results.read(file)


def _scenarios(harness: Harness, home: Path, options: argparse.Namespace) -> list[Scenario]:
    from tests.faults import reading, training

    training.warm_up(home)
    training.Training.remember(harness)
    scenarios = [
        scenario
        for scenario in (*training.training_scenarios(), *reading.reading_scenarios())
        if (not options.area or scenario.area in options.area)
        and (not options.scenario or scenario.name in options.scenario)
    ]
    for scenario in scenarios:
        scenario.learn(harness)
    return scenarios


def _works(scenario: Scenario, options: argparse.Namespace) -> Iterator[Work]:
    if options.sample:
        yield Work(scenario, None, options.sample)
        return
    for fault in scenario.faults:
        if not options.kind or fault.kind in options.kind:
            numbers = tuple(options.number or ())
            yield Work(scenario, fault, numbers=numbers, seed=options.seed)


def _run_share(
    harness: Harness, share: Sequence[tuple[Work, set[int]]], rows: int, *, verbose: bool
) -> None:
    """In a worker: do a share of the work, write each result at once, and exit."""
    code = 1
    try:
        for work, done in share:
            for result in work.run(harness, done):
                os.write(rows, Row.of(work, result).line())
                if verbose or result.broken:
                    text = f"{result.point}: {result.broken or result.outcome}\n"
                    os.write(sys.stderr.fileno(), text.encode())
            os.write(rows, end_line(work))
        code = 0
    except BaseException:  # noqa: BLE001 - the parent sees the exit code
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
