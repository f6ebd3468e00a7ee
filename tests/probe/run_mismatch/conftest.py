"""Recorded runs of the bundled trainer."""

from pathlib import Path

import pytest
import torch

from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.engines.rollout_engine import BuiltinEngine
from grpodoctor.trainer.loop import Trainer

JUMP_STEP = 8
_SETTINGS = (
    *("threads=1", "evaluation.every=0", "model.warm_start_steps=20", "record.depth=full"),
    *("rollout.prompts_per_batch=8", "rollout.group_size=8", "rollout.max_length=16"),
    "engine.precision=bf16",
)


def train(folder: Path, *assignments: str) -> Path:
    """Train with an engine in bfloat16."""
    Trainer(load_config(assignments=[*_SETTINGS, *assignments]), folder).run()
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run with a learner in float32 and an engine in bfloat16."""
    return train(tmp_path_factory.mktemp("trained") / "run", "steps=3")


@pytest.fixture(scope="session")
def jumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps whose engine has damaged weights from a sync on."""
    sync = BuiltinEngine.sync

    def damaged(engine: BuiltinEngine, step: int) -> None:
        sync(engine, step)
        if step >= JUMP_STEP:
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for matrix in engine.model.parameters():
                    noise = torch.randn(matrix.shape, generator=generator)
                    matrix.mul_(1 + 0.25 * noise if matrix.dim() > 1 else 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BuiltinEngine, "sync", damaged)
        folder = tmp_path_factory.mktemp("jumped") / "run"
        return train(folder, "steps=12", "checkpoint.every=11")
