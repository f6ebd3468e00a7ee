"""The state of a training that a checkpoint must keep."""

from __future__ import annotations

import torch

from grpodoctor.trainer.loop import Trainer


def weights_and_moments(trainer: Trainer) -> list[torch.Tensor]:
    """The weights, and the moments of the optimizer."""
    moments = trainer.learner.optimizer.state_dict()["state"]
    return [
        *trainer.policy.model.state_dict().values(),
        *(moments[index][name] for index in sorted(moments) for name in sorted(moments[index])),
    ]
