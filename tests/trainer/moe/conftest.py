import pytest

from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.model.policy import Policy, load_policy
from tests.trainer.moe.mixtures import MIXTURE


@pytest.fixture(scope="session")
def mixture() -> Policy:
    """The built-in mixture after a short warm start; treat it as read-only."""
    config = load_config(assignments=MIXTURE)
    return load_policy(config, build_task(config.task))
