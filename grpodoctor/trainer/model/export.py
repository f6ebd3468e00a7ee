"""Writing a trained policy as a model directory that any engine loads."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from grpodoctor.errors import RunError
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.model.checkpoint import latest, load_weights, saved_config
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.saved_weights import checkpoint_weights
from grpodoctor.trainer.model.tokenizer import HubTokenizer


def export(run_dir: Path, target: Path) -> Path:
    """Write the model of a run's newest checkpoint, adapters merged; returns the checkpoint.

    The directory holds safetensors, the configuration, and the tokenizer where the model has one of
    its own. It appears whole or not at all.

    Args:
        run_dir: the run.
        target: a directory that does not exist yet.

    Raises:
        RunError: if there is no checkpoint, it is damaged, or the directory cannot be written.
        InputError: if the model that the run began with cannot be loaded.
    """
    source = latest(run_dir)
    if target.exists():
        raise RunError("it exists already", where=str(target), remedy="name a new directory")
    config = saved_config(run_dir, ["model.device=cpu"])
    policy = load_policy(config, build_task(config.task))
    load_weights(policy.model, source)
    aside = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _write(policy, aside)
        aside.rename(target)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise RunError(f"the model cannot be written: {error}", where=str(target)) from error
    return source


def _write(policy: Policy, folder: Path) -> None:
    from huggingface_hub import save_torch_state_dict

    # Cloned, for the experts of a layer are views of one tensor, which files do not share.
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
