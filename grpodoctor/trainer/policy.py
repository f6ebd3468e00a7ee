"""The model that is trained, with its codec: the built-in one or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpodoctor.trainer.codec import CharCodec, Codec
from grpodoctor.trainer.config import TrainConfig
from grpodoctor.trainer.tasks.base import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and how it reads and writes."""

    model: PreTrainedModel
    codec: Codec
    name: str


def load_policy(config: TrainConfig, task: Task) -> Policy:
    """Load the policy that `config.model` names; in evaluation mode, dropout off.

    Args:
        config: the run's configuration.
        task: what the built-in model is warm-started on.

    Raises:
        ModelError: if the model is missing, damaged, not safetensors, or misses its tokenizer.
    """
    raise NotImplementedError
