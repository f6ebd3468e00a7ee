"""The input and the result of attribution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.probe.attribution.rounding import RoundingFlips
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Comparison, Control, NamedCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of a probe after its measurement."""

    sampler: EngineSpec
    learner: EngineSpec
    sampling: Sampling
    prompts: tuple[Mapping[str, Any], ...]
    """As in the prompts file: each has `text`, `messages` or `ids`."""
    rollouts: Path
    """The sampler's shards, with the column `experts` if the model has routers."""
    scored: Path
    """The learner's shards of the same responses."""
    processing: Processing
    """Processing under which the learner scored them."""
    comparison: Comparison
    sampler_facts: EngineFacts
    learner_facts: EngineFacts
    own_prompts: bool = False
    """Whether the learner tokenized the prompts itself when it wrote `scored`."""
    differing: tuple[str, ...] | None = None
    """Names of tensors whose checksums differ between the two checkpoints, including tensors that
    only one of them has; empty if all are identical, None if unknown."""
    stale: Path | None = None
    """An older checkpoint of the model, if the user named one."""
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The result of attribution for one case."""

    causes: tuple[NamedCause, ...]
    """Sorted by share of the gap, largest first; empty if there is nothing to explain."""
    verdict: str
    """One sentence: do the engines agree, and if not, why."""
    gap: float
    """k3 of the tokens that attribution used, in nats per token."""
    noise: float | None
    """k3 that rounding to the coarser of the two precisions causes in this model; None if not
    measured."""
    noise_is_usual: bool = False
    """Whether it is the usual value of the precision, because the learner cannot measure it."""
    left: float | None
    """Share of the gap that no cause explains; None if there is nothing to explain."""
    notes: tuple[str, ...] = ()
    """Experiments that could not be run, and the reasons."""
    flips: RoundingFlips | None = None
    """The flips by rounding that were left out; `gap` and `noise` are then those of the tokens
    before the first flip of a response."""
    subset: str = ""
    """The responses that differ, such as `sample 3 of every prompt`; empty if all do."""
