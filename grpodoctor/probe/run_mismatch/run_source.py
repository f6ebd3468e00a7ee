"""What the records of a run offer to score its responses again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.probe.inputs.recordings import recording_in
from grpodoctor.runs.records import Manifest

RecordedIds = Literal["none", "responses", "prompts"]
"""Token ids that a dump holds: none, those of responses, or those of prompts and responses."""
_CHECKPOINT = re.compile(r"step-(\d{1,12})")
_BUILTIN = "builtin"
"""The bundled trainer's own model, which is no directory and no name on the hub."""

_MODEL_KEYS = frozenset({
    "actor_rollout_ref.model.path",  # verl
    "model_name_or_path",  # TRL, open-instruct
    "policy.model_name",  # NeMo RL
    "hf_checkpoint",  # slime
    "model.name",  # prime-rl
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunSource:
    """A recorded run as an engine."""

    run: Path
    steps: tuple[int, ...]
    """Steps with log-probabilities of both sides, ascending."""
    ids: RecordedIds
    """Token ids that the last step's rollouts hold."""
    model: str
    """Model at the start of the run; empty if it is not known."""
    temperature: float
    checkpoints: tuple[tuple[int, Path], ...]
    """Complete models that the run saved, and the steps after which it saved them; ascending."""


@dataclass(frozen=True, slots=True)
class FreshWeights:
    """A model for a fresh engine, and the step whose responses it scores."""

    model: str
    """Directory or name; empty if none is known."""
    step: int
    note: str
    """How these weights differ from those that sampled the step, one sentence; or empty."""
    is_other: bool = False
    """Whether they are known to be those of another step."""


def source_of(run: Path, steps: tuple[int, ...], ids: RecordedIds) -> RunSource:
    """Read the model, the temperature and the checkpoints of a run.

    Args:
        run: the run's directory, or a dump.
        steps: its steps with log-probabilities of both sides, ascending.
        ids: token ids that the last step's rollouts hold.
    """
    manifest = manifest_of(recording_in(run))
    temperature = manifest.knobs.get("temperature", 1.0)
    is_number = isinstance(temperature, int | float) and temperature > 0
    return RunSource(
        run=run,
        steps=steps,
        ids=ids,
        model=_model_of(manifest),
        temperature=float(temperature) if is_number else 1.0,
        checkpoints=_checkpoints(run),
    )


def _model_of(manifest: Manifest) -> str:
    """The model's name or directory; empty if it is not known."""
    named = manifest.model or next(
        (value for name, value in flattened(manifest.config) if name in _MODEL_KEYS and value), ""
    )
    return "" if named == _BUILTIN else str(named)


def manifest_of(run: Path) -> Manifest:
    """The manifest of a run; the default if only its rollouts can be read."""
    from grpodoctor.runs.reading.opening import open_run

    try:
        return open_run(run).manifest
    except (GrpodoctorError, OSError, ValueError):
        return Manifest()


def _checkpoints(run: Path) -> tuple[tuple[int, Path], ...]:
    """The bundled trainer's checkpoints that hold a whole model, without those of adapters."""
    found = (
        (int(match[1]), folder)
        for folder in (run / "checkpoints").glob("step-*")
        if (match := _CHECKPOINT.fullmatch(folder.name))
        and (folder / "config.json").is_file()
        and (folder / "model.safetensors").is_file()
    )
    return tuple(sorted(found))


def fresh_weights(source: RunSource, since: int) -> FreshWeights:
    """The weights that are closest to those of a step.

    A checkpoint that was saved after a step has the weights that sampled the next one.

    Args:
        source: the run.
        since: first step that has the difference to explain.
    """
    saved = dict(source.checkpoints)
    steps = [step for step in source.steps if step >= since] or [source.steps[-1]]
    for step in reversed(steps):
        if step - 1 in saved:
            return FreshWeights(str(saved[step - 1]), step, "")
    last = steps[-1]
    later = [step for step in saved if step >= last]
    if later:
        return FreshWeights(str(saved[later[0]]), last, _newer(later[0] - last + 1), is_other=True)
    if not source.model:
        return FreshWeights(
            "", last, f"Replace MODEL by the weights from which step {last} was sampled."
        )
    if steps[0] <= 1:
        return FreshWeights(source.model, steps[0], "")
    note = (
        "The model is that of the run's start. Name the checkpoint from which step "
        f"{last} was sampled instead, if there is one."
    )
    return FreshWeights(source.model, last, note, is_other=True)


def first_weights(source: RunSource) -> FreshWeights:
    """The weights of the start of the run, for the last step; others if the model is not known."""
    if not source.model:
        return fresh_weights(source, source.steps[-1])
    note = "A sampler that agrees with the model of the run's start never received an update."
    return FreshWeights(source.model, source.steps[-1], note, is_other=True)


def _newer(updates: int) -> str:
    count = "one step" if updates == 1 else f"{updates} steps"
    return f"The checkpoint is {count} newer than the responses, which adds a gap."
