"""A sample of `tests/benchmarks/bench_unseen_causes.py`: planted faults of several families."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.bench_unseen_causes import outcome
from tests.probe.plants.catalogue import Plant, plants

SAMPLE = (
    "mistral: healthy",
    "llama: window:12",
    "gpt_neox: shift:1",
    "phi: log2 (learner)",
)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plants")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_fault_is_named(root: Path, name: str) -> None:
    plant = next(each for each in plants() if each.name == name)
    found = outcome(plant, root)
    assert found.named, (found.causes, found.verdict)
    assert not found.wrongly_proven
    assert not found.missed_silently


def test_an_unknown_fault_is_called_unknown(root: Path) -> None:
    plant = Plant("llama", "noise:0.1", (frozenset({"unknown"}),))
    found = outcome(plant, root)
    assert [sure for _, sure in found.causes] == ["possible"]
    assert found.severity in ("warning", "critical")
