import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when the hub's client is imported


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def warm_policy():
    """The default built-in model, warm-started on arithmetic; treat it as read-only.

    It comes from the user's cache, so that the workers of a parallel test run do not each train it.
    """
    from grpodoctor.trainer.config.train_config import TrainConfig
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import load_policy

    config = TrainConfig()
    return load_policy(config, build_task(config.task))
