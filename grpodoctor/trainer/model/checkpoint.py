"""Checkpoints for an exact resume: plain files, no pickle.

    RUN/checkpoints/step-000100/
        model.safetensors, config.json     the learner, as transformers reads it; or, with adapters,
        adapter_model.safetensors, ..      the adapters alone, as peft reads them
        optimizer.safetensors              AdamW's moments, by parameter index
        critic.safetensors                 the critic, where there is one, and in
        critic-optimizer.safetensors       its own moments
        engine.safetensors                 the sampler's weights, where it is a stale copy
        state.json                         step, configuration in force, task, entropy and engine

Randomness needs no state: each step derives its generators from the seed and its own number.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.recording.directory import refuse_other_content
from grpodoctor.runs.records import STEPS
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.distributed.sharding import distribute_like, full_tensor
from grpodoctor.trainer.model.lora import ADAPTERS, adapter_layers, load_adapters, save_adapters

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from grpodoctor.trainer.algorithms.entropy_controller import EntropyController
    from grpodoctor.trainer.algorithms.prompt_history import PromptHistory
    from grpodoctor.trainer.data.tasks.base import Task
    from grpodoctor.trainer.model.critic import Critic

_FOLDER = "checkpoints"
_MODEL = "model.safetensors"
_CRITIC = "critic.safetensors"
_CRITIC_MOMENTS = "critic-optimizer.safetensors"
_NAME = re.compile(r"step-(\d+)")
_STATE = {
    "step": int,
    "config": dict,
    "engine": dict,
    "task": dict,
    "entropy": dict,
    "prompts": dict,
}
"""What `state.json` holds."""


class EngineState(Protocol):
    """The part of a rollout engine that a checkpoint saves and restores."""

    def state_dict(self) -> dict[str, Any]:
        """`synced_step`, `due`, and `weights` (None if the engine samples with the learner's)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""


@dataclass(frozen=True, slots=True)
class TrainerState:
    """All that changes from step to step, apart from the weights inside."""

    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    engine: EngineState
    task: Task
    entropy: EntropyController
    history: PromptHistory
    critic: Critic | None = None


def checkpoints(run_dir: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    folder = run_dir / _FOLDER
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if _NAME.fullmatch(path.name))


def refuse_existing_run(run_dir: Path) -> None:
    """Refuse a directory in which no new run can begin, before anything expensive is done.

    Raises:
        RunError: if it holds a run, with or without records, or something else.
    """
    try:
        refuse_other_content(run_dir)
        steps = run_dir / STEPS
        used = bool(checkpoints(run_dir)) or (steps.exists() and steps.stat().st_size > 0)
    except OSError as error:
        raise RunError(
            f"cannot look into the directory: {error.strerror}",
            where=str(run_dir)[:200],
            remedy="choose a directory that can be written",
        ) from error
    if used:
        raise RunError(
            "the directory already holds a run",
            where=str(run_dir),
            remedy="choose another directory, or go on with that run by --resume",
        )


def save(
    run_dir: Path,
    step: int,
    config: TrainConfig,
    parts: TrainerState,
    ranks: Ranks = SINGLE_PROCESS,
) -> Path:
    """Write the state after `step`; the directory appears whole or not at all.

    Each rank must call it; the first one writes the files that one process alone would write.

    Raises:
        RunError: if it cannot be written.
    """
    moments = _moments(parts.optimizer)
    return ranks.run_first(lambda: _save(run_dir, step, config, parts, moments))


def _save(
    run_dir: Path,
    step: int,
    config: TrainConfig,
    parts: TrainerState,
    moments: Mapping[str, Tensor],
) -> Path:
    """Write the state.

    Raises:
        RunError: if it cannot be written.
    """
    from safetensors import SafetensorError

    final = run_dir / _FOLDER / f"step-{step:06d}"
    aside = final.with_name(f".{final.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _write(aside, step, config, parts, moments)
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        for old in checkpoints(run_dir)[: -config.checkpoint.keep]:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)  # a full disk is needed for what is still recorded
        raise RunError(f"the checkpoint cannot be written: {error}", where=str(final)) from error
    return final


def _write(
    folder: Path,
    step: int,
    config: TrainConfig,
    parts: TrainerState,
    moments: Mapping[str, Tensor],
) -> None:
    from safetensors.torch import save_file, save_model

    if adapter_layers(parts.model):
        save_adapters(parts.model, folder)
    else:
        save_model(parts.model, str(folder / _MODEL))
        parts.model.config.save_pretrained(folder)
    save_file(dict(moments), folder / "optimizer.safetensors")
    if parts.critic is not None:
        save_model(parts.critic.model, str(folder / _CRITIC))
        save_file(_moments(parts.critic.optimizer), folder / _CRITIC_MOMENTS)
    engine = parts.engine.state_dict()
    weights = engine.pop("weights")
    if weights is not None:
        # Tied weights share memory, which the format refuses.
        copies = {name: tensor.detach().clone() for name, tensor in weights.items()}
        save_file(copies, folder / "engine.safetensors")
    state = {
        "step": step,
        "config": config.model_dump(mode="json"),
        "engine": engine,
        "task": parts.task.state(),
        "prompts": parts.history.state(),
        "entropy": parts.entropy.state(),
    }
    (folder / "state.json").write_bytes(orjson.dumps(state))


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's state, whole; of a divided one each rank must ask for it."""
    return {
        f"{index}.{name}": full_tensor(tensor).contiguous()
        for index, entry in optimizer.state_dict()["state"].items()
        for name, tensor in entry.items()
    }


def latest(run_dir: Path) -> Path:
    """The newest checkpoint of a run.

    Raises:
        RunError: if it has none.
    """
    found = checkpoints(run_dir)
    if not found:
        raise RunError(
            "there is no checkpoint to resume from",
            where=str(run_dir),
            remedy="start the run without --resume, in a new directory",
        )
    return found[-1]


def saved_config(run_dir: Path, assignments: Iterable[str] = ()) -> TrainConfig:
    """The configuration in force at the newest checkpoint, changes in flight included.

    Args:
        run_dir: the run to resume.
        assignments: `section.key=value` texts that win over it.

    Raises:
        RunError: if there is no checkpoint, or it is damaged.
        ConfigError: if an assignment does not fit.
    """
    path = latest(run_dir)
    saved = _read_state(path)["config"]
    try:
        load_config(saved)
    except ConfigError as error:
        raise RunError(
            f"the checkpoint's configuration is not understood: {error.what}",
            where=str(path),
            remedy="resume with the version of grpodoctor that wrote it",
        ) from error
    return load_config(saved, assignments=assignments)


def steps_done(run_dir: Path) -> int:
    """How many steps the newest checkpoint has behind it.

    Raises:
        RunError: if there is no checkpoint, or it is damaged.
    """
    return int(_read_state(latest(run_dir))["step"])


def restore(run_dir: Path, parts: TrainerState, ranks: Ranks = SINGLE_PROCESS) -> int:
    """Load the newest checkpoint into `parts`; returns the number of steps done.

    Each rank must call it, and reads the files for itself.

    Raises:
        RunError: if there is no checkpoint, it is damaged, or it does not fit the model.
    """
    path = ranks.run_all(lambda: latest(run_dir))
    step, engine = ranks.run_all(lambda: _read(path, parts))
    with _fitting(path):
        parts.engine.load_state_dict(engine)
    return step


def _read(path: Path, parts: TrainerState) -> tuple[int, dict[str, Any]]:
    """Load all but the engine; returns the step and the engine's state.

    Raises:
        RunError: as `restore`.
    """
    from safetensors.torch import load_file

    state = _read_state(path)
    with _fitting(path):
        _load_weights(parts.model, path)
        _load_moments(parts.optimizer, load_file(path / "optimizer.safetensors"))
        _load_critic(parts.critic, path)
        stale = path / "engine.safetensors"
        weights = load_file(stale) if stale.exists() else None
        parts.task.restore(state["task"])
        parts.history.restore(state["prompts"])
        parts.entropy.restore(state["entropy"])
    return int(state["step"]), {**state["engine"], "weights": weights}


@contextmanager
def _fitting(path: Path) -> Iterator[None]:
    """Say in one line why a checkpoint cannot be loaded.

    Raises:
        RunError: if the body finds it damaged or made for something else.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise _damaged(path) from error
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise RunError(
            f"the checkpoint does not fit this run: {str(error)[:200]}",
            where=str(path),
            remedy="resume with the model and task that wrote it",
        ) from error


def load_weights(model: PreTrainedModel, path: Path) -> None:
    """Load a checkpoint's weights, or its adapters, into a model.

    Raises:
        RunError: if they are damaged or do not fit.
    """
    with _fitting(path):
        _load_weights(model, path)


def _load_weights(model: PreTrainedModel, path: Path) -> None:
    from safetensors.torch import load_model

    has_adapters = bool(adapter_layers(model))
    if (path / (_MODEL if has_adapters else ADAPTERS)).exists():
        raise ValueError("one of them trains low-rank adapters and the other does not")
    if has_adapters:
        load_adapters(model, path)
    else:
        load_model(model, path / _MODEL, device=str(model.device))


def _load_critic(critic: Critic | None, path: Path) -> None:
    from safetensors.torch import load_file, load_model

    if (critic is not None) != (path / _CRITIC).exists():
        raise ValueError("one of them has a critic and the other does not")
    if critic is not None:
        load_model(critic.model, path / _CRITIC, device=str(critic.model.head.weight.device))
        _load_moments(critic.optimizer, load_file(path / _CRITIC_MOMENTS))


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = orjson.loads((path / "state.json").read_bytes())
        whole = all(isinstance(state[key], kind) for key, kind in _STATE.items())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    if not whole:
        raise _damaged(path)
    return {key: state[key] for key in _STATE}


def _damaged(path: Path) -> RunError:
    return RunError(
        "the checkpoint is damaged",
        where=str(path),
        remedy="remove it and resume from the one before",
    )


def _load_moments(optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]) -> None:
    numbered = [each for group in optimizer.param_groups for each in group["params"]]
    parameters = dict(enumerate(numbered))
    entries: dict[int, dict[str, Tensor]] = {}
    for key, tensor in moments.items():
        index, _, name = key.partition(".")
        entries.setdefault(int(index), {})[name] = distribute_like(tensor, parameters[int(index)])
    state = optimizer.state_dict()
    optimizer.load_state_dict({**state, "state": entries})
