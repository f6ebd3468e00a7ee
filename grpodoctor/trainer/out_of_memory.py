"""Reports a step that ran out of memory in one line with the settings to lower."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from grpodoctor.errors import OutOfMemoryError
from grpodoctor.trainer.config.train_config import TrainConfig

_PHRASES = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")
"""Parts of the message of the plain RuntimeError that torch raises on the CPU."""


@contextmanager
def explain_out_of_memory(config: TrainConfig, step: int) -> Iterator[None]:
    """Turn a failed allocation into an error that names the settings to lower.

    torch's exception keeps alive all tensors of the frames it passed through, even as the context
    of another exception. The frames are cleared to free memory for the checkpoint.

    Raises:
        OutOfMemoryError: instead of the failed allocation.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)
        place = "on the GPU" if isinstance(error, torch.OutOfMemoryError) else "for the process"
    else:
        return
    micro_batch = config.optimizer.micro_batch
    raise OutOfMemoryError(
        f"not enough memory {place}",
        where=f"step {step}",
        remedy=f"lower optimizer.micro_batch ({micro_batch or 'now a whole mini-batch'}), "
        f"rollout.max_length ({config.rollout.max_length}) or "
        f"rollout.group_size ({config.rollout.group_size}), or set "
        "model.gradient_checkpointing=true; then continue with --resume",
    )


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    message = str(error).lower()
    return any(phrase in message for phrase in _PHRASES)
