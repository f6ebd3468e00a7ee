"""The file of results, from which an interrupted sweep resumes, and its tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.harness import Harness, Result, Scenario
from tests.faults.shim import HELPER, Fault


@dataclass(frozen=True, slots=True)
class Work:
    """What one process does without the others: a sweep, or a sample of a scenario."""

    scenario: Scenario
    fault: Fault | None
    sample: int = 0
    """Points of a sample."""
    numbers: tuple[int, ...] = ()
    """Only these calls; all if empty."""
    seed: int = 0
    """Chooses the allocations that fail."""

    @property
    def name(self) -> str:
        """Names the work in the file of results."""
        points = self.numbers or f"seed {self.seed}"
        return f"{self.scenario.area}, {self.scenario.name}, {self.fault or 'sample'}, {points}"

    def run(self, harness: Harness, done: set[int]) -> Iterator[Result]:
        """Run all points but those that are done."""
        if self.fault is None:
            return harness.sample(self.scenario, self.sample)
        return harness.sweep(self.scenario, self.fault, self.numbers, seed=self.seed, done=done)


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a point, as a line of the file."""

    work: str
    area: str
    kind: str
    number: int
    calls: int
    """Allocations of the undisturbed run; 0 where every call fails once."""
    point: str
    outcome: str
    broken: str

    @classmethod
    def of(cls, work: Work, result: Result) -> Row:
        """The row of a result."""
        point, fault = result.point, result.point.fault
        where = " in the writer process" if fault.role == HELPER else ""
        return cls(
            work.name, point.scenario.area, fault.kind + where, point.number, result.calls,
            str(point), result.outcome, result.broken,
        )  # fmt: skip

    def line(self) -> bytes:
        """The line of the file."""
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(slots=True)
class Results:
    """What a file holds.

    A point with two rows has the result of the second: a broken one is run again.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """Names of the works whose last point has been run."""

    @classmethod
    def read(cls, file: Path) -> Results:
        """The results of a file; none if it is absent."""
        results = cls()
        for line in file.read_bytes().splitlines() if file.exists() else ():
            fields = json.loads(line)
            if "ended" in fields:
                results.ended.add(fields["ended"])
            else:
                results.rows[fields["point"]] = Row(**fields)
        return results

    def done(self, work: Work) -> set[int]:
        """Numbers of the points that need not be run again."""
        return {
            row.number for row in self.rows.values() if row.work == work.name and not row.broken
        }

    def is_whole(self, work: Work) -> bool:
        """Whether nothing is left to do."""
        broken = {row.work for row in self.rows.values() if row.broken}
        return work.name in self.ended and work.name not in broken

    def by_area(self) -> dict[str, list[Row]]:
        """The rows of each area."""
        areas: dict[str, list[Row]] = {}
        for row in self.rows.values():
            areas.setdefault(row.area, []).append(row)
        return areas


def end_line(work: Work) -> bytes:
    """The line behind the last point of a work."""
    return json.dumps({"ended": work.name}).encode() + b"\n"


def tables(results: Results) -> str:
    """Two tables: the outcomes of each area, and the points of each kind of call."""
    lines = ["| area | points | outcome |", "|---|---:|---|"]
    for area, rows in results.by_area().items():
        outcomes = Counter("**a broken promise**" if row.broken else row.outcome for row in rows)
        lines += [
            f"| {area} | {count:,} | {outcome} |" for outcome, count in outcomes.most_common()
        ]
    areas = list(results.by_area())
    lines += ["", f"| call that fails | {' | '.join(areas)} |", f"|---|{'---:|' * len(areas)}"]
    kinds = dict.fromkeys(row.kind for row in results.rows.values())
    for kind in kinds:
        counts = [_points(results.by_area()[area], kind) for area in areas]
        lines.append(f"| {kind} | {' | '.join(counts)} |")
    return "\n".join(lines)


def _points(rows: Iterable[Row], kind: str) -> str:
    """The points of a kind, and of how many calls they are a sample."""
    chosen = [row for row in rows if row.kind == kind]
    calls = {row.point.partition(":")[0]: row.calls for row in chosen}  # by area and scenario
    of = f" of {sum(calls.values()):,}" if any(calls.values()) else ""
    return f"{len(chosen):,}{of}" if chosen else ""


__all__ = ["Results", "Row", "Work", "end_line", "tables"]
