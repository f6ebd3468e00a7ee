"""How early each rule fires on sick runs; `--write` updates the table that rule pages print.

Examines the recorded runs of the tests, and those below `--runs`: the runs of
`calibrate_rules.py --out DIR`, or any logs. A run counts if it has a finding of at least a warning.

For each first alarm of a rule in a run:

- *early*: the outcome (held-out accuracy, accuracy or reward) fell later. The reference is the step
  at which half of the fall, from the best level to the last one, had occurred;
- *at onset*: otherwise, within ten logged steps of the onset of what the rule saw;
- *audit*: otherwise.

    python tests/benchmarks/bench_lead_time.py --runs RUNS --write

`--rules CODE ...` writes the entries of these rules alone: the others stay as they were measured on
more runs. `--simulated` marks them, for the kept logs of `tests.benchmarks.planted_runs`.
"""

from __future__ import annotations

import argparse
import gzip
import math
import shutil
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import RunError
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.diagnosis import Change
from grpodoctor.rules.engine import Engine
from grpodoctor.rules.lead_times import TABLE, TIMINGS, Timing
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.run_discovery import runs_in
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.values import scalar

TESTS = Path(__file__).parents[1]
OUTCOMES = ("accuracy/heldout", "accuracy/train", "reward/heldout", "reward/mean")
FEWEST = 20
"""Readings of an outcome from which a loss can be dated."""
LEAST_LOSS = 0.2
"""Share of the range, from start or worst to best, that counts as a loss."""
LEVEL = 10
"""Readings of a level."""
OPENING = 3
"""Readings of the first level: a run may fail within its first ten steps."""
AT_ONSET = 10
"""Logged steps from an onset that count as immediately: rules judge levels of ten readings."""

Records = list[StepRecord]


def recorded_runs(extra: list[Path]) -> Iterator[tuple[str, Manifest, Records]]:
    """Every run at hand: name, manifest, steps."""
    for path in sorted((TESTS / "rules" / "data").glob("*.jsonl")):
        lines = path.read_bytes().splitlines()
        yield path.stem, Manifest(), list(map(StepRecord.from_line, lines))
    with tempfile.TemporaryDirectory() as folder:
        yield from opened(unpacked(Path(folder)))
    for root in extra:
        yield from opened(runs_in(root, ReadOptions()) if root.is_dir() else [root])


def unpacked(folder: Path) -> Iterator[Path]:
    """The public logs of the tests, unpacked into a folder."""
    for path in sorted((TESTS / "data" / "logs").glob("*.gz")):
        # One directory for each log: a config next to a log counts as its own.
        log = folder / path.stem / path.stem
        log.parent.mkdir()
        with gzip.open(path) as packed, log.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield log


def opened(paths: Iterable[Path]) -> Iterator[tuple[str, Manifest, Records]]:
    for path in paths:
        try:
            run = open_run(path)
            yield str(path), run.manifest, list(run.steps)
        except RunError as error:
            print(f"left out: {error}")


def alarms(manifest: Manifest, records: Records) -> dict[str, Change]:
    """The first alarm of each rule."""
    engine = Engine(all_rules(), manifest)
    first: dict[str, Change] = {}
    for record in records:
        for change in engine.observe(record):
            if change.kind != "resolved" and change.finding.severity != "info":
                first.setdefault(change.finding.code, change)
    return first


def harm_step(records: Records) -> int | None:
    """The step at which half of what the run lost was lost; None if it lost nothing."""
    for name in OUTCOMES:
        points = [
            (record.step, value)
            for record in records
            if name in record.values and (value := scalar(record.values[name])) is not None
        ]
        if len(points) >= FEWEST:
            return _half_lost(points)
    return None


def _half_lost(points: list[tuple[int, float]]) -> int | None:
    steps, values = zip(*points, strict=True)
    levels = [
        statistics.median(values[max(0, at + 1 - LEVEL) : at + 1]) for at in range(len(values))
    ][OPENING - 1 :]
    steps = steps[OPENING - 1 :]
    best, last = max(levels), levels[-1]
    top = levels.index(best)
    span, loss = best - min(levels), best - last
    # The standard error of a median of ten is 1.25 / sqrt(10) of the noise of one reading.
    error = 1.25 * step_noise(list(values)) / math.sqrt(LEVEL)
    if span <= 0 or loss < LEAST_LOSS * max(span, abs(best)) or loss < 4 * error:
        return None
    halfway = best - loss / 2
    below = (at for at in range(top, len(levels)) if all(each < halfway for each in levels[at:]))
    return int(steps[next(below)])


def timing_of(change: Change, harm: int | None, stride: float) -> Timing:
    if harm is not None and change.step < harm:
        return "early"
    delay = change.step - change.finding.onset_step
    return "at onset" if delay <= AT_ONSET * stride else "audit"


def measure(extra: list[Path]) -> dict[str, Any]:
    """The table of lead times."""
    timings: dict[str, Counter[Timing]] = defaultdict(Counter)
    leads: dict[str, list[int]] = defaultdict(list)
    sick = total = 0
    for name, manifest, records in recorded_runs(extra):
        total += 1
        first = alarms(manifest, records)
        if not first:
            continue
        sick += 1
        harm = harm_step(records)
        stride = (records[-1].step - records[0].step) / max(1, len(records) - 1)
        print(
            f"{name}: half lost at {harm}; " + ", ".join(f"{c} @{k.step}" for c, k in first.items())
        )
        for code, change in first.items():
            timing = timing_of(change, harm, max(1.0, stride))
            timings[code][timing] += 1
            if timing == "early" and harm is not None:
                leads[code].append(harm - change.step)
    rules = {
        code: {
            "runs": {timing: counts[timing] for timing in TIMINGS if counts[timing]},
            **({"median_lead": round(statistics.median(leads[code]))} if leads[code] else {}),
        }
        for code, counts in sorted(timings.items())
    }
    return {"runs": total, "sick_runs": sick, "rules": rules}


def markdown(table: dict[str, Any]) -> Iterator[str]:
    """A row per rule; `docs/calibration.md` has those of the rules that fire early."""
    yield "| rule | early | at onset | audit | median lead of the early ones, steps |"
    yield "|---|---:|---:|---:|---:|"
    for code, entry in table["rules"].items():
        counts = " | ".join(str(entry["runs"].get(timing, 0)) for timing in TIMINGS)
        yield f"| {code} | {counts} | {entry.get('median_lead', '')} |"


def main() -> None:
    """Print the lead times, and write the table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="further runs")
    parser.add_argument("--write", action="store_true", help=f"update {TABLE.name}")
    parser.add_argument("--simulated", action="store_true", help="say so on the pages of the rules")
    parser.add_argument("--rules", nargs="*", default=[], help="rules to write; all by default")
    arguments = parser.parse_args()
    table = measure(arguments.runs)
    print(f"\n{table['sick_runs']} of {table['runs']} runs had an alarm\n")
    print("\n".join(markdown(table)))
    if arguments.write:
        if arguments.simulated:
            table["rules"] = {
                code: {**entry, "simulated": True} for code, entry in table["rules"].items()
            }
        written = with_entries(table, arguments.rules) if arguments.rules else table
        TABLE.write_bytes(orjson.dumps(written, option=orjson.OPT_INDENT_2) + b"\n")


def with_entries(table: dict[str, Any], codes: list[str]) -> dict[str, Any]:
    """The published table with the measured entries of some rules."""
    published = orjson.loads(TABLE.read_bytes())
    entries = {code: table["rules"][code] for code in codes if code in table["rules"]}
    return published | {"rules": dict(sorted((published["rules"] | entries).items()))}


if __name__ == "__main__":
    main()
