import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when the hub's client is imported


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole test session, so that a warm start is trained at most once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _use_warm_cache(warm_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def warm_policy(warm_cache: Path):
    """The default built-in model, warm-started on arithmetic; treat it as read-only."""
    from grpodoctor.trainer.config import TrainConfig
    from grpodoctor.trainer.data import build_task
    from grpodoctor.trainer.policy import load_policy

    config = TrainConfig()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(warm_cache))
        return load_policy(config, build_task(config.task))
