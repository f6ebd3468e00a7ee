"""Running out of memory in a step, told apart from other failures and in one line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from grpodoctor.errors import OutOfMemoryError
from grpodoctor.trainer.config.train_config import TrainConfig

_SIGNS = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")
"""In the message of the plain RuntimeError that torch raises on the CPU."""


@contextmanager
def explain_out_of_memory(config: TrainConfig, step: int) -> Iterator[None]:
    """Turn a failed allocation into an error that says what to lower.

    What torch raised holds all tensors of the frames that it passed through, also as the context of
    another error; the frames are cleared, so that there is memory again for what has to be saved.

    Raises:
        OutOfMemoryError: in the place of a failed allocation.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_shortage(error):
            raise
        traceback.clear_frames(error.__traceback__)
        where = "on the GPU" if isinstance(error, torch.OutOfMemoryError) else "for the process"
    else:
        return
    at_once = config.optimizer.micro_batch
    raise OutOfMemoryError(
        f"there is not enough memory {where}",
        where=f"step {step}",
        remedy=f"lower optimizer.micro_batch ({at_once or 'now a whole mini-batch'}), "
        f"rollout.max_length ({config.rollout.max_length}) or "
        f"rollout.group_size ({config.rollout.group_size}), or set "
        "model.gradient_checkpointing=true, and go on with --resume",
    )


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    message = str(error).lower()
    return any(sign in message for sign in _SIGNS)
