"""Every tensor names its device, which can be tested without a GPU.

Each tensor that the trainer's code makes must follow the model or the tensors that it is combined
with. The mode below sees every factory call, and fails on one without a device in our own files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch.overrides import TorchFunctionMode

import grpodoctor
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from tests.samples import sampled
from tests.trainer.families import save

OURS = str(Path(grpodoctor.__file__).parent / "trainer")
FACTORIES = {
    *(torch.tensor, torch.zeros, torch.ones, torch.empty, torch.full, torch.arange, torch.rand),
    *(torch.randn, torch.randint, torch.randperm, torch.eye, torch.linspace, torch.as_tensor),
}
ON_THE_CPU = {
    "batches.py:chunks": "row numbers, which index on any device",
    "batches.py:mini_batches": "the shuffle is the CPU generator's, so the same on every device",
    "clip_cov.py:select_tokens": "the shuffle is the CPU generator's, so the same on every device",
    "ranks.py:share": "row numbers and a mask that is moved where it is used",
    "prompt_history.py:add": "the history is kept on the CPU",
    "sampler.py:__init__": "seeds a generator",
    "sampler.py:draw": "the CPU generator's, so the same on every device; moved where it is used",
    "samples.py:rows": "row numbers, which index on any device",
}


class Watching(TorchFunctionMode):
    """Records which of our functions create tensors on the default device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in FACTORIES and (kwargs or {}).get("device") is None:
            frame: FrameType | None = sys._getframe(1)
            if frame and frame.f_code.co_filename.startswith(OURS):
                file = Path(frame.f_code.co_filename).name
                self.seen.add(f"{file}:{frame.f_code.co_name}")
        return func(*args, **(kwargs or {}))


SETTINGS = {
    "grpo": ("loss.kl_coefficient=0.1", "loss.entropy_coefficient=0.01"),
    "dapo": (
        *("rollout.dynamic_sampling=true", "overlong.kind=soft-punishment", "overlong.buffer=8"),
        *("loss.aggregation=token-mean", "rollout.resample_limit=2"),
    ),
    "stale": ("engine.precision=int8", "engine.sync_every=2", "correction.kind=tis_token"),
    "lora": ("model.lora_rank=2", "loss.kl_coefficient=0.1", "overlong.kind=mask"),
    "gspo": ("loss.kind=gspo", "loss.clip_low=0.0003", "loss.clip_high=0.0004"),
    "lite": ("advantage.kind=batch_std", "optimizer.micro_batch=3", "evaluation.every=1"),
    "dcpo": ("advantage.kind=dcpo_sas", "loss.kind=dcpo"),
    "choice": ("loss.kind=clip_cov", "rollout.drop_duplicates=true"),
}


@pytest.mark.parametrize("kind", sampled(SETTINGS, {"dapo", "lora"}))
def test_every_tensor_of_a_step_names_its_device(kind: str, tmp_path: Path) -> None:
    folder = save("qwen3", tmp_path / "model")
    small = (
        *("threads=1", "steps=2", "rollout.max_length=8", "rollout.prompts_per_batch=4"),
        *("rollout.group_size=4", "evaluation.prompts=4", f"model.name={folder}"),
    )
    trainer = Trainer(load_config(assignments=[*small, *SETTINGS[kind]]), tmp_path / "run")
    with Watching() as watching:
        trainer.run()
    assert watching.seen - ON_THE_CPU.keys() == set()
    assert "sampler.py:draw" in watching.seen  # the mode sees the calls


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", SETTINGS)
def test_a_gpu_trains_as_the_cpu_does(kind: str, tmp_path: Path) -> None:
    folder = save("qwen3", tmp_path / "model")
    rewards = {}
    for device in ("cpu", "cuda"):
        small = (
            *("steps=3", "rollout.max_length=8", "rollout.prompts_per_batch=4"),
            *("rollout.group_size=4", f"model.name={folder}", f"model.device={device}"),
        )
        config = load_config(assignments=[*small, *SETTINGS[kind]])
        trainer, reports = Trainer(config, tmp_path / device), []
        trainer.run(reports.append)
        assert trainer.policy.model.device.type == device
        rewards[device] = [report.reward for report in reports]
        assert Trainer(config, tmp_path / device, resume=True).done == 3
    assert rewards["cuda"] == pytest.approx(rewards["cpu"], abs=0.05)
