import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when the hub's client is imported

PROBES = Path(__file__).parents[2] / "probes"


def engine(model: Path, **options: Any) -> Any:
    """The engine of transformers, in this process."""
    from engine_transformers import load

    return load(str(model), options)


@pytest.fixture(autouse=True, scope="session")
def _programs_importable() -> Iterator[None]:
    """Programs can import their neighbours, as when they run by path."""
    sys.path.insert(0, str(PROBES))
    yield
    sys.path.remove(str(PROBES))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained dense model's directory; treat it as read-only."""
    from tests.probes.models import dense

    return dense(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="session")
def moe_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained mixture's directory; treat it as read-only."""
    from tests.probes.models import moe

    return moe(tmp_path_factory.mktemp("moe"))


@pytest.fixture
def without_planted_faults() -> Iterator[None]:
    """Undo the faults that a test has planted in this process."""
    from tests.probe.plants import computing

    yield
    computing.restore()
