"""How early each rule fires, measured on sick runs by `tests/benchmarks/bench_lead_time.py`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

TABLE = Path(__file__).with_name("lead_times.json")
COMMAND = "python -m tests.benchmarks lead_time"

Timing = Literal["early", "at onset", "audit"]
TIMINGS: tuple[Timing, ...] = ("early", "at onset", "audit")
"""`early`: before half of the fall of the reward; `at onset`: within ten logged steps of the
onset; `audit`: later, or when the harm was done."""
_WORDS: dict[Timing, str] = {"early": "early", "at onset": "at the onset", "audit": "late"}


NOTES_ONLY = frozenset({"CLP002", "GRP009", "INS002", "INS003", "REW007", "REW020", "SYN005"})
"""Rules that never raise an alarm: a lead time is that of the first alarm."""


@dataclass(frozen=True, slots=True)
class LeadTime:
    """How early a rule fired in the runs that were available."""

    runs: dict[Timing, int]
    """Number of sick runs by timing."""
    median_lead: int | None = None
    """Median over the early runs of the steps from the finding to the loss of half of the outcome;
    None without an early run."""
    simulated: bool = False
    """Whether the runs were simulated, since no recorded run raised the rule."""

    @property
    def timing(self) -> Timing:
        """The most frequent timing; of two equally frequent ones the later."""
        return max(reversed(TIMINGS), key=lambda timing: self.runs.get(timing, 0))

    @property
    def sentence(self) -> str:
        """The measurement in one or two sentences."""
        counts = [
            f"{_WORDS[name]} {_times(count)}" for name in TIMINGS if (count := self.runs.get(name))
        ]
        total = sum(self.runs.values())
        kind = "simulated run" if self.simulated else "sick run"
        runs = f"1 {kind}" if total == 1 else f"{total} {kind}s"
        *first, last = counts
        listed = f"{', '.join(first)} and {last}" if first else last
        return f"In {runs}, this rule fired {listed}.{self._lead()}"

    def _lead(self) -> str:
        """How early the early findings were."""
        if self.median_lead is None:
            return ""
        is_one = self.runs.get("early") == 1
        findings = "The early finding came" if is_one else "The early findings came a median of"
        return f" {findings} {self.median_lead} steps before half of the fall of the reward."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def lead_time_of(code: str) -> LeadTime | None:
    """The measured lead time of a rule; None if no recorded sick run raised it."""
    entry = _table().get(code)
    if entry is None:
        return None
    return LeadTime(
        runs=dict(entry["runs"]),
        median_lead=entry.get("median_lead"),
        simulated=entry.get("simulated", False),
    )


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    rules: dict[str, dict[str, Any]] = orjson.loads(TABLE.read_bytes())["rules"]
    return rules
