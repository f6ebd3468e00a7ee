"""What attribution is given: two engines that were measured, and all that is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.probe.engines.jobs import EngineFacts, Processing, Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Comparison, Control, NamedCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of a probe after its measurement."""

    sampler: EngineSpec
    learner: EngineSpec
    sampling: Sampling
    prompts: tuple[Mapping[str, Any], ...]
    """As the prompts file has them: each with `text`, `messages` or `ids`."""
    rollouts: Path
    """The sampler's shards; with `experts` wanted where the model has routers."""
    scored: Path
    """The learner's shards of the same responses."""
    processing: Processing
    """Under which the learner has scored them."""
    comparison: Comparison
    sampler_facts: EngineFacts
    learner_facts: EngineFacts
    own_prompts: bool = False
    """Whether `scored` was scored after the learner's own ids of the prompts."""
    differing: tuple[str, ...] | None = None
    """Names of tensors in which the two checkpoints differ by checksum, those that only one has
    among them; empty if they are identical, None where it is not known."""
    stale: Path | None = None
    """An older checkpoint of the model, if the user has given one."""
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What became of a case."""

    causes: tuple[NamedCause, ...]
    """The largest share of the gap first; empty if there is nothing to explain."""
    verdict: str
    """One sentence: do the engines agree, and if not, why."""
    gap: float
    """k3 of the tokens that attribution has looked at, in nats per token."""
    noise: float | None
    """k3 that rounding to the coarser of the two precisions amounts to in this model; None if it
    was not measured."""
    left: float | None
    """Share of the gap that no cause explains; None if there is nothing to explain."""
    notes: tuple[str, ...] = ()
    """Experiments that could not be made, and why."""
