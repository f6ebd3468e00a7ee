"""Exports a trained policy as a model directory that any engine can load."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch

from grpodoctor.errors import RunError
from grpodoctor.support.files.atomic_files import atomic_folder
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.model.checkpoint import checkpoints, latest, load_weights, saved_config
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.tokenizer import HubTokenizer


def export(run_dir: Path, target: Path) -> Path:
    """Write the model of a run's newest checkpoint, adapters merged; returns the checkpoint.

    The directory contains safetensors, the configuration and, except for the built-in model, the
    tokenizer. It is written atomically.

    Raises:
        RunError: if there is no checkpoint, it is damaged, or the directory cannot be written.
        InputError: if the run's initial model cannot be loaded.
    """
    if not checkpoints(run_dir):
        raise RunError(
            "no checkpoint to export",
            where=str(run_dir),
            remedy="pass the directory of a run of grpodoctor train that has written a checkpoint",
        )
    source = latest(run_dir)
    if target.exists():
        raise RunError(
            "the directory already exists", where=str(target), remedy="choose a new directory"
        )
    config = saved_config(run_dir, ["model.device=cpu"])
    with closing(build_task(config.task)) as task:
        policy = load_policy(config, task)
    load_weights(policy.model, source)
    try:
        with atomic_folder(target) as folder:
            _write(policy, folder)
    except OSError as error:
        raise RunError(f"the model cannot be written: {error}", where=str(target)) from error
    return source


def _write(policy: Policy, folder: Path) -> None:
    from huggingface_hub import save_torch_state_dict

    # Cloned, because the experts of a layer are views of one tensor, which safetensors refuses.
    weights = {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in checkpoint_weights(policy.model)
    }
    save_torch_state_dict(weights, folder, safe_serialization=True)
    policy.model.config.save_pretrained(folder)
    if policy.model.generation_config is not None:
        policy.model.generation_config.save_pretrained(folder)
    if isinstance(policy.tokenizer, HubTokenizer):
        policy.tokenizer.pretrained.save_pretrained(folder)
