"""What the tests of all sets of plants need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.benchmarks import bench_unseen_causes as bench
from tests.probe.plants import sampling_faults  # noqa: F401 - its imports register all faults
from tests.probe.plants.catalogue import Plant
from tests.probe.plants.computing import FAULTS


def hidden(engine: Any) -> Tensor:
    """The hidden states of two sequences of 24 tokens, which contain token 7."""
    ids = torch.randint(3, 64, (2, 24), generator=torch.Generator().manual_seed(1))
    ids[:, 4] = 7
    out: Tensor = engine._split.hidden(ids)
    return out


def group_sizes(plants: Sequence[Plant]) -> Counter[str]:
    """The number of plants in each group."""
    return Counter(each.group for each in plants)


def kinds_of(plants: Sequence[Plant]) -> set[str]:
    """The names of the faults of the plants that have a cause, without their values."""
    faults = (fault for each in plants if each.causes for fault in each.faults.split("+"))
    return {fault.partition(":")[0] for fault in faults} - {""}


def mostly_slow(cases: Sequence[tuple[Any, ...]], every: int) -> list[Any]:
    """The cases as parameters of a test; one of each `every` is not slow."""
    return [
        pytest.param(*case, marks=pytest.mark.slow if number % every else ())
        for number, case in enumerate(cases)
    ]


def probability_gap(plant: Plant, root: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """The mean |Δp| of a pair, without attribution."""
    monkeypatch.setattr(bench, "investigate", lambda _runner, _case: None)
    case, _ = bench._investigated(plant, root)
    return case.comparison.value("mismatch/prob_diff_mean")


def check_fault_changes_its_engine_alone(load: Any, family: str, fault: str, value: str) -> None:
    """A fault moves the hidden states of its engine, and of no other one."""
    healthy, engine = load(family), load(family)
    plain = hidden(healthy)
    FAULTS[fault](engine, value)
    changed = hidden(engine)
    assert changed.isfinite().all()
    assert (changed - plain).abs().max() > 0.05
    assert torch.equal(hidden(healthy), plain)
    assert torch.equal(hidden(load(family)), plain)


def check_gap_matters_unless_healthy(
    root: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    """A fault is a gap that matters, and a healthy pair has none, without attribution."""
    mean = probability_gap(plant, root, monkeypatch)
    assert mean > 0.01 if plant.causes else mean < 0.006


def doubles(plants: Sequence[Plant]) -> list[Plant]:
    """The plants with two faults."""
    return [each for each in plants if "double" in each.group]


def alone(plant: Plant) -> list[Plant]:
    """The pair with either of its two faults; of one with a single name, the options are one."""
    faults = plant.faults.split("+")
    if len(faults) == 1:
        return [replace(plant, options={}), replace(plant, faults="")]
    return [replace(plant, faults=fault) for fault in faults]


def check_each_of_two_matters_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch, alone: Sequence[Plant]
) -> None:
    """Each fault of a double is a gap that matters without the other one."""
    assert len(alone) == 2
    for each in alone:
        check_gap_matters_unless_healthy(root, monkeypatch, each)
