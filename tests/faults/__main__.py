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
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.faults import shim
from tests.faults.harness import Harness, Result, Scenario, Tally

Work = Callable[[Harness], Iterable[Result]]


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
    broken = [line for tally in tallies.values() for line in tally.broken]
    if not broken:
        shutil.rmtree(home)
    sys.exit(1 if broken else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--area", action="append", help="only this area; repeatable")
    parser.add_argument("--kind", action="append", help="only this kind of call; repeatable")
    parser.add_argument("--scenario", action="append", help="only this scenario; repeatable")
    parser.add_argument("--sample", type=int, help="so many points of each scenario")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
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
    """Run the sweeps in several processes, each of which forks its scenarios itself."""
    harness = Harness(home)
    scenarios = _scenarios(harness, home, options)
    works = [work for scenario in scenarios for work in _works(scenario, options)]
    files = [home / f"results-{worker}" for worker in range(options.jobs)]
    pids = []
    for worker, file in enumerate(files):
        pids.append(os.fork())
        if pids[-1] == 0:
            _work(Harness(home / str(worker)), works[worker :: options.jobs], file, options)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(codes):
        sys.exit(f"a worker ended with {codes}")
    tallies = {scenario.area: Tally() for scenario in scenarios}
    for area, *ending in (row for file in files for row in json.loads(file.read_bytes())):
        tallies[area].add(*ending)
    return tallies


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
    """What can be done independently: a sweep, or the sample of a scenario."""
    if options.sample:
        yield lambda harness: harness.sample(scenario, options.sample)
        return
    for fault in scenario.faults:
        if not options.kind or fault.kind in options.kind:
            yield partial(Harness.sweep, scenario=scenario, fault=fault)


def _work(harness: Harness, works: Sequence[Work], file: Path, options: argparse.Namespace) -> None:
    """In a worker: do a share of the work, write the results, and exit."""
    code = 1
    try:
        rows = []
        for result in (result for work in works for result in work(harness)):
            area, point = result.point.scenario.area, str(result.point)
            rows.append((area, point, result.outcome, result.broken))
            if options.verbose or result.broken:
                text = f"{point}: {result.broken or result.outcome}\n"
                os.write(sys.stderr.fileno(), text.encode())
        file.write_text(json.dumps(rows))
        code = 0
    except BaseException:  # noqa: BLE001 - the parent sees the exit code
        traceback.print_exc()
    finally:
        os._exit(code)


def _as_json(tallies: dict[str, Tally]) -> dict[str, object]:
    return {
        area: {
            "points": tally.points,
            "outcomes": dict(tally.outcomes),
            "broken": tally.broken,
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
