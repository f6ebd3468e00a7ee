"""Checkpoints for an exact resume, as plain files without pickle.

    RUN/checkpoints/step-000100/
        model.safetensors, config.json     the learner, as transformers reads it; or, with LoRA,
        adapter_model.safetensors, ..      only the adapters, as peft reads them
        optimizer.safetensors              AdamW's moments, by parameter index
        critic.safetensors                 the critic, if there is one, and
        critic-optimizer.safetensors       its moments
        engine.safetensors                 the sampler's weights, if it is a stale copy
        state.json                         step, current configuration, task, entropy and engine,
                                           latest held-out accuracy

The newest `checkpoint.keep` stay, and so does the one with the best held-out accuracy.

Random numbers need no state: each step derives its generators from the seed and the step number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.recording.directory import last_step, refuse_other_content
from grpodoctor.runs.records import MANIFEST, STEPS
from grpodoctor.support.files.atomic_files import atomic_folder, remove_folder, remove_leftovers
from grpodoctor.support.files.regular_files import read_regular
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.distributed.sharding import distribute_like, full_tensor
from grpodoctor.trainer.model.lora import ADAPTERS, adapter_layers, load_adapters, save_adapters

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from grpodoctor.trainer.algorithms.entropy_controller import EntropyController
    from grpodoctor.trainer.algorithms.prompt_history import PromptHistory
    from grpodoctor.trainer.model.critic import Critic
    from grpodoctor.trainer.task import Task

_FOLDER = "checkpoints"
_MODEL = "model.safetensors"
_MOMENTS = "optimizer.safetensors"
_CRITIC = "critic.safetensors"
_CRITIC_MOMENTS = "critic-optimizer.safetensors"
_OLD_NAMES = {
    _MOMENTS: "optimiser.safetensors",
    _CRITIC_MOMENTS: "critic-optimiser.safetensors",
    "optimizer": "optimiser",
}
"""Files and configuration sections under the names that older checkpoints use."""
_NAME = re.compile(r"step-(\d+)")
_STATE = {
    "step": int,
    "config": dict,
    "engine": dict,
    "task": dict,
    "entropy": dict,
    "prompts": dict,
}
"""Keys of `state.json` and the types of their values."""


class EngineState(Protocol):
    """The part of a rollout engine that a checkpoint saves and restores."""

    def state_dict(self) -> dict[str, Any]:
        """`synced_step`, `due`, and `weights` (None if the engine samples with the learner's)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""


@dataclass(frozen=True, slots=True)
class TrainerState:
    """Everything that a checkpoint saves and restores."""

    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    engine: EngineState
    task: Task
    entropy: EntropyController
    history: PromptHistory
    critic: Critic | None = None
    heldout: float | None = None
    """The latest held-out accuracy, or reward; saved to compare checkpoints, and not restored."""


def checkpoints(run_dir: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    folder = run_dir / _FOLDER
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if _NAME.fullmatch(path.name)), key=_step_of)


def _step_of(path: Path) -> int:
    """The step in a checkpoint's name; text order is wrong from step 1,000,000 on."""
    return int(path.name.rpartition("-")[2])


def refuse_existing_run(run_dir: Path) -> None:
    """Refuse a directory in which no new run can start, before anything expensive is done.

    Raises:
        RunError: if the directory contains a run, with or without records, or other files.
    """
    try:
        refuse_other_content(run_dir)
        steps = run_dir / STEPS
        used = bool(checkpoints(run_dir)) or (steps.exists() and steps.stat().st_size > 0)
    except OSError as error:
        raise RunError(
            f"the directory cannot be read: {error.strerror}",
            where=str(run_dir)[:200],
            remedy="choose a writable directory",
        ) from error
    if used:
        raise RunError(
            "the directory already contains a run",
            where=str(run_dir),
            remedy="choose another directory, or continue that run with --resume",
        )


def save(
    run_dir: Path,
    step: int,
    config: TrainConfig,
    state: TrainerState,
    ranks: Ranks = SINGLE_PROCESS,
) -> Path:
    """Write the state after `step` atomically; returns the checkpoint's directory.

    Every rank must call it. The first rank writes the files, in the same form as a single process.

    Raises:
        RunError: if it cannot be written.
    """
    moments = _moments(state.optimizer)
    return ranks.run_first(lambda: _save(run_dir, step, config, state, moments))


def _save(
    run_dir: Path,
    step: int,
    config: TrainConfig,
    state: TrainerState,
    moments: Mapping[str, Tensor],
) -> Path:
    from safetensors import SafetensorError

    final = run_dir / _FOLDER / f"step-{step:06d}"
    try:
        remove_leftovers(final.parent)
        with atomic_folder(final) as folder:
            _write(folder, step, config, state, moments)
        best = best_checkpoint(run_dir)
        for old in checkpoints(run_dir)[: -config.checkpoint.keep]:
            if best is None or old != best[0]:
                remove_folder(old)
    except (OSError, SafetensorError) as error:
        raise RunError(f"the checkpoint cannot be written: {error}", where=str(final)) from error
    return final


def _write(
    folder: Path,
    step: int,
    config: TrainConfig,
    state: TrainerState,
    moments: Mapping[str, Tensor],
) -> None:
    from safetensors.torch import save_file, save_model

    if adapter_layers(state.model):
        save_adapters(state.model, folder)
    else:
        save_model(state.model, str(folder / _MODEL))
        state.model.config.save_pretrained(folder)
    save_file(dict(moments), folder / _MOMENTS)
    if state.critic is not None:
        save_model(state.critic.model, str(folder / _CRITIC))
        save_file(_moments(state.critic.optimizer), folder / _CRITIC_MOMENTS)
    engine = state.engine.state_dict()
    weights = engine.pop("weights")
    if weights is not None:
        # Tied weights share memory, which safetensors refuses.
        copies = {name: tensor.detach().clone() for name, tensor in weights.items()}
        save_file(copies, folder / "engine.safetensors")
    content = {
        "step": step,
        "config": config.model_dump(mode="json"),
        "engine": engine,
        "task": state.task.state(),
        "prompts": state.history.state(),
        "entropy": state.entropy.state(),
        "heldout": state.heldout,
    }
    (folder / "state.json").write_bytes(orjson.dumps(content))


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's whole state; every rank must call it if the state is sharded."""
    return {
        f"{index}.{name}": full_tensor(tensor).contiguous()
        for index, entry in optimizer.state_dict()["state"].items()
        for name, tensor in entry.items()
    }


def latest(run_dir: Path) -> Path:
    """The checkpoint to resume from: the newest whose steps are all in the record.

    A run whose record is behind a checkpoint would miss steps forever: its trainer was killed
    before the record was written, or trained on after its writer was killed. If no checkpoint is
    as old as the record, the newest is taken.

    Raises:
        RunError: if it has none.
    """
    paths = checkpoints(run_dir)
    if not paths:
        raise RunError(
            "no checkpoint to resume from",
            where=str(run_dir),
            remedy="start the run without --resume, in a new directory",
        )
    recorded = last_step(run_dir / STEPS)
    if recorded < 0:  # nothing was recorded, or recording is off
        return paths[-1]
    return next((path for path in reversed(paths) if _step_of(path) <= recorded), paths[-1])


def best_checkpoint(run_dir: Path) -> tuple[Path, float] | None:
    """The checkpoint with the best held-out accuracy, the oldest of equal ones, and its accuracy.

    None if no checkpoint has one.
    """
    known = [
        (value, path) for path in checkpoints(run_dir) if (value := _heldout(path)) is not None
    ]
    if not known:
        return None
    value, path = max(known, key=lambda each: each[0])
    return path, value


def _heldout(path: Path) -> float | None:
    """The held-out accuracy at a checkpoint; None if it is unknown or the file is damaged."""
    try:
        value = orjson.loads(read_regular(path / "state.json")).get("heldout")
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, float) else None


def unrecorded_note(run_dir: Path) -> str:
    """What a resumed run repeats or misses because its record is behind; empty if it is not.

    Raises:
        RunError: if there is no checkpoint.
    """
    recorded, resumed = last_step(run_dir / STEPS), _step_of(latest(run_dir))
    newest = _step_of(checkpoints(run_dir)[-1])
    is_recorded = (run_dir / MANIFEST).exists()
    if not is_recorded or recorded >= newest:
        return ""
    if resumed < newest:
        return (
            f"the record ends at step {recorded}, before the checkpoint of step {newest}; the run "
            f"resumes at step {resumed} and repeats the steps after it"
        )
    return f"steps {max(recorded, 0) + 1} to {newest} are missing from the record"


def saved_config(run_dir: Path, assignments: Iterable[str] = ()) -> TrainConfig:
    """The configuration at the newest checkpoint, including changes during the run.

    Raises:
        RunError: if there is no checkpoint, or it is damaged.
        ConfigError: if an assignment is not valid.
    """
    path = latest(run_dir)
    saved = _read_state(path)["config"]
    try:
        load_config(saved)
    except ConfigError as error:
        raise RunError(
            f"the checkpoint's configuration is not valid: {error.what}",
            where=str(path),
            remedy="resume with the version of grpodoctor that wrote it",
        ) from error
    return load_config(saved, assignments=assignments)


def steps_done(run_dir: Path) -> int:
    """The number of completed steps in the newest checkpoint.

    Raises:
        RunError: if there is no checkpoint, or it is damaged.
    """
    return int(_read_state(latest(run_dir))["step"])


def restore(run_dir: Path, state: TrainerState, ranks: Ranks = SINGLE_PROCESS) -> int:
    """Load the newest checkpoint into `state`; returns the number of completed steps.

    Every rank must call it and reads the files itself.

    Raises:
        RunError: if there is no checkpoint, it is damaged, or it does not fit the model.
    """
    path = ranks.run_all(lambda: latest(run_dir))
    step, engine = ranks.run_all(lambda: _read(path, state))
    with _explain_mismatch(path):
        state.engine.load_state_dict(engine)
    return step


def _read(path: Path, state: TrainerState) -> tuple[int, dict[str, Any]]:
    """Load everything except the engine; returns the step and the engine's state.

    Raises:
        RunError: as `restore`.
    """
    from safetensors.torch import load_file

    content = _read_state(path)
    with _explain_mismatch(path):
        _load_weights(state.model, path)
        _load_moments(state.optimizer, load_file(_existing(path, _MOMENTS)))
        _load_critic(state.critic, path)
        stale = path / "engine.safetensors"
        weights = load_file(stale) if stale.exists() else None
        state.task.restore(content["task"])
        state.history.restore(content["prompts"])
        state.entropy.restore(content["entropy"])
    return int(content["step"]), {**content["engine"], "weights": weights}


def _existing(folder: Path, name: str) -> Path:
    """A file of a checkpoint, under its old name if only that exists."""
    old = folder / _OLD_NAMES[name]
    return old if old.exists() and not (folder / name).exists() else folder / name


@contextmanager
def _explain_mismatch(path: Path) -> Iterator[None]:
    """Report in one line why a checkpoint cannot be loaded.

    Raises:
        RunError: if the checkpoint is damaged, or of a different model or task.
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
        RunError: if the file is damaged or does not fit the model.
    """
    with _explain_mismatch(path):
        _load_weights(model, path)


def _load_weights(model: PreTrainedModel, path: Path) -> None:
    from safetensors.torch import load_model

    has_adapters = bool(adapter_layers(model))
    if (path / (_MODEL if has_adapters else ADAPTERS)).exists():
        raise ValueError("only one of the two trains low-rank adapters")
    if has_adapters:
        load_adapters(model, path)
    else:
        load_model(model, path / _MODEL, device=str(model.device))


def _load_critic(critic: Critic | None, path: Path) -> None:
    from safetensors.torch import load_file, load_model

    if (critic is not None) != (path / _CRITIC).exists():
        raise ValueError("only one of the two has a critic")
    if critic is not None:
        load_model(critic.model, path / _CRITIC, device=str(critic.model.head.weight.device))
        _load_moments(critic.optimizer, load_file(_existing(path, _CRITIC_MOMENTS)))


def _read_state(path: Path) -> dict[str, Any]:
    try:
        content = orjson.loads(read_regular(path / "state.json"))
        complete = all(isinstance(content[key], kind) for key, kind in _STATE.items())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    if not complete:
        raise _damaged(path)
    config = content["config"]
    if _OLD_NAMES["optimizer"] in config:
        config.setdefault("optimizer", config.pop(_OLD_NAMES["optimizer"]))
    return {key: content[key] for key in _STATE}


def _damaged(path: Path) -> RunError:
    return RunError(
        "the checkpoint is damaged",
        where=str(path),
        remedy="remove it and resume from the previous one",
    )


def _load_moments(optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]) -> None:
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    entries: dict[int, dict[str, Tensor]] = {}
    for key, tensor in moments.items():
        index, _, name = key.partition(".")
        entries.setdefault(int(index), {})[name] = distribute_like(tensor, parameters[int(index)])
    state = optimizer.state_dict()
    optimizer.load_state_dict({**state, "state": entries})
