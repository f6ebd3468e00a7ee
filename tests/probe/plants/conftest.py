"""Engines of the families that faults are planted in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.attribution.in_process import PROBES
from tests.probe.plants import computing
from tests.probe.plants.families import checkpoint


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture
def load(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads the engine of a family; faults in modules of transformers are undone afterwards."""
    monkeypatch.syspath_prepend(str(PROBES))

    def loaded(family: str) -> Any:
        import engine_transformers

        path = checkpoint(root / family, family)
        return engine_transformers.load(str(path), {"threads": 1, "attention": "eager"})

    yield loaded
    computing.restore()
