"""The weights of a training, to compare two trainings to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np


def weights(trainer: Any) -> np.ndarray:
    """All parameters of the trainer's model, one after the other."""
    return np.concatenate([each.detach().numpy().ravel() for each in trainer.model.parameters()])
