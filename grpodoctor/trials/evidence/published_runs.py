"""The published runs: the results behind docs/evidence.md, as data that travels with the package.

`publishing` adds runs to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from grpodoctor.report.trial_table import TABLE
from grpodoctor.support.files.atomic_files import write_bytes
from grpodoctor.support.safe_text import json_bytes
from grpodoctor.trials.evidence.collected_evidence import Evidence, collected
from grpodoctor.trials.evidence.evidence_page import as_json
from grpodoctor.trials.healthy_runs import HEALTHY
from grpodoctor.trials.registry import all_trials
from grpodoctor.trials.results import RunResult
from grpodoctor.trials.trial import Experiment

RUNS = Path(__file__).with_name("published_runs.parquet")
_DIGITS = 4
"""Significant digits of a metric's level."""


def experiments() -> list[Experiment]:
    """All trials, and the healthy runs."""
    return [*all_trials().values(), HEALTHY]


def published_evidence(path: Path = RUNS) -> Evidence:
    """What the published runs show.

    Raises:
        OSError: if the file cannot be read.
    """
    return collected(experiments(), read_runs(path))


def read_runs(path: Path = RUNS) -> list[RunResult]:
    """The published runs of trials whose definition is still the same.

    Raises:
        OSError: if the file cannot be read.
    """
    current = {
        (each.name, arm): each.definition(arm) for each in experiments() for arm in each.arms
    }
    rows = pq.read_table(path).to_pylist()
    return [
        RunResult.of({**row, "levels": dict(row["levels"])})
        for row in rows
        if current.get((row["spec"]["trial"], row["spec"]["arm"])) == row.pop("definition")
    ]


def seconds_per_seed(path: Path = RUNS) -> dict[str, float]:
    """Seconds that one seed of each trial took in the published runs, all arms after each other.

    A warm start that was not in the cache counts in the first run that needed it.

    Raises:
        OSError: if the file cannot be read.
    """
    seconds: dict[str, dict[str, list[float]]] = {}
    for run in read_runs(path):
        if run.seconds:
            arms = seconds.setdefault(run.spec.trial, {})
            arms.setdefault(run.spec.arm, []).append(run.seconds)
    return {trial: sum(map(fmean, arms.values())) for trial, arms in seconds.items()}


def write_runs(results: Iterable[RunResult], path: Path = RUNS) -> None:
    """Write runs as Parquet.

    Raises:
        OSError: if the file cannot be written.
    """
    definitions = {each.name: each for each in experiments()}
    rows = [_row(each, definitions[each.spec.trial]) for each in results]
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), buffer, compression="zstd")
    write_bytes(path, buffer.getvalue().to_pybytes())


def write_table(evidence: Evidence, path: Path = TABLE) -> None:
    """Write the table that the pages of rules and remedies read.

    Raises:
        OSError: if the file cannot be written.
    """
    write_bytes(path, json_bytes(as_json(evidence), indent=True) + b"\n")


def _row(result: RunResult, experiment: Experiment) -> dict[str, Any]:
    levels = {name: float(f"{value:.{_DIGITS}g}") for name, value in (result.levels or {}).items()}
    return {
        **asdict(result),
        "levels": sorted(levels.items()),
        "definition": experiment.definition(result.spec.arm),
    }


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


_SCHEMA = pa.schema(
    {
        "spec": _struct(
            trial=pa.string(),
            arm=pa.string(),
            seed=pa.int32(),
            steps=pa.int32(),
            fingerprint=pa.string(),
        ),
        "status": pa.string(),
        "reason": pa.string(),
        "evaluations": pa.list_(_struct(step=pa.int32(), value=pa.float64(), passes=pa.int64())),
        "alarms": pa.list_(
            _struct(code=pa.string(), severity=pa.string(), step=pa.int32(), onset=pa.int32())
        ),
        "levels": pa.map_(pa.string(), pa.float64()),
        "seconds": pa.float64(),
        "warm_start": pa.string(),
        "definition": pa.string(),
    }
)
