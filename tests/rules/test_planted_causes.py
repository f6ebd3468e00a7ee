"""Causes that were planted in real TRL runs, and the finding that each report begins with.

`tests/data/planted` holds the `trainer_state.json` of runs that `tests/benchmarks/planted_trl.py`
trained: 60 to 480 steps of a tiny model, seed 1, nothing left out.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.rules.base import Finding

RUNS = Path(__file__).parents[1] / "data" / "planted"

CAUSES = {
    "lr-1000x-too-low": {"OPT005"},
    "bf16-weights": {"OPT005"},
    "grad-clip-too-low": {"OPT005"},
    "lr-10x-too-high": {"OPT006"},
    "16-updates-per-batch": {"CLP001"},
    "shifted-old-logprobs": {"CLP001"},
    "kl-sign-inverted": {"KLD004"},
    "reward-constant": {"GRP004", "REW004"},
    "reward-zero": {"GRP002", "REW004"},
    "reward-negated": {"REW012"},
    "reward-is-length": {"REW013"},
    "components-cancel": {"GRP003"},
    "reward-dies": {"REW002"},
    "reward-infinite": {"OPT003"},
    "all-hard": {"GRP002"},
}

HEALTHY = sorted(path.name.removesuffix(".json.gz") for path in RUNS.glob("healthy*"))


def alarms(name: str, folder: Path) -> list[Finding]:
    log = folder / "trainer_state.json"
    log.write_bytes(gzip.decompress((RUNS / f"{name}.json.gz").read_bytes()))
    findings = replay(log).report.diagnosis.findings
    return [finding for finding in findings if finding.severity != "info"]


@pytest.mark.parametrize("name", CAUSES)
def test_the_report_begins_with_the_cause(name: str, tmp_path: Path) -> None:
    assert alarms(name, tmp_path)[0].code in CAUSES[name]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_has_no_alarm(name: str, tmp_path: Path) -> None:
    assert alarms(name, tmp_path) == []


def test_every_recorded_run_is_examined() -> None:
    names = {path.name.removesuffix(".json.gz") for path in RUNS.glob("*.gz")}
    assert names == {*CAUSES, *HEALTHY}
    assert len(HEALTHY) >= 5
