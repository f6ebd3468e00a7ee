"""The controls of a probe: which engines they need, and what is made of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpodoctor.errors import EngineError, ModelError
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.controls.controls import (
    not_made,
    repeat_control,
    self_scoring_control,
    stale_control,
    weights_control,
)
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.engines.engine_runner import JobResult
from grpodoctor.probe.engines.jobs import computes_in
from grpodoctor.probe.engines.shards import read_shards
from grpodoctor.probe.inputs.checksums import (
    WeightsComparison,
    checkpoint_of,
    compare_checkpoints,
    read_config,
)
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Control

NOISE = 0.05
"""On every weight matrix, relative. Less is drowned by the rounding of a model in 16 bits, and more
is no likeness of a checkpoint that is some updates old."""
_OTHER_WEIGHTS = ("weights", "weights_only", "sync", "sync_reset_cache", "sync_stock")
_ROUTERS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class SampledRollouts:
    """What one sampler has drawn at one length."""

    sampling: Sampling
    path: Path
    part: Path
    """The first shards of it, which controls look at."""
    facts: EngineFacts
    """Of the sampler."""
    rescored: JobResult
    """The sampler's own scores of it."""

    def largest_id(self) -> int:
        """Of all tokens."""
        shards = read_shards(self.path)
        return max((int(each.response_ids_N.max(initial=0)) for each in shards), default=0)


def told_under(sampling: Sampling, facts: EngineFacts) -> Processing:
    """What was done to the logits that a sampler's log-probabilities are of."""
    return Processing.of(sampling) if facts.logprobs == "processed" else Processing()


def self_scoring_of(rollouts: SampledRollouts) -> Control:
    """The sampler against itself: prefill against decode."""
    if isinstance(rollouts.rescored, EngineError):
        return not_made("self_scoring", rollouts.rescored.what)
    return self_scoring_control(rollouts.path, rollouts.rescored, dtype=computes_in(rollouts.facts))


def repeat_of(scored: Path, backwards: JobResult | None, facts: EngineFacts) -> Control:
    """The learner, of whom are the facts, against itself: the same tokens, other neighbours."""
    if backwards is None:
        return not_made("repeat", "there was no time left")
    if isinstance(backwards, EngineError):
        return not_made("repeat", backwards.what)
    return repeat_control(scored, backwards, dtype=computes_in(facts))


def stale_spec(learner: EngineSpec, stale: Path | None) -> tuple[EngineSpec | None, str]:
    """The learner with weights that are wrong on purpose, and what they are.

    Args:
        learner: the engine.
        stale: an older checkpoint; without one, noise is added.
    """
    if "perturb" not in learner.kind.experiment_options:
        return None, f"a learner of the kind {learner.engine} cannot be given other weights"
    if stale is not None:
        plain = learner.with_options(**dict.fromkeys(_OTHER_WEIGHTS))
        if learner.kind.model == "option":
            return plain.with_options(model=str(stale)), f"the checkpoint {stale.name}"
        return replace(plain, model=str(stale)), f"the checkpoint {stale.name}"
    return learner.with_options(perturb=NOISE), f"its own weights with {NOISE:.0%} of noise"


def stale_of(part: Path, scored: Path, outcome: JobResult | None, what: str) -> Control:
    """The pair against a learner that is wrong on purpose, on the same responses.

    Args:
        part: the responses that the wrong learner was given.
        scored: the learner's scores of them: other responses may differ by more, or by less.
        outcome: the wrong learner's; None if there is no such learner, and `what` says why.
        what: its weights.
    """
    if outcome is None:
        return not_made("stale_weights", what)
    if isinstance(outcome, EngineError):
        return not_made("stale_weights", outcome.what)
    return stale_control(compare(part, scored), compare(part, outcome), what=what)


@dataclass(slots=True)
class Weights:
    """What is known of the engines' weights; each two are compared once."""

    _compared: dict[tuple[str, str], WeightsComparison | ModelError | None] = field(
        default_factory=dict
    )

    def has_routers(self, model: str) -> bool:
        """Whether a model on this machine is a mixture of experts; False where not known."""
        config = read_config(model)
        told = config.get("text_config")
        text = told if isinstance(told, Mapping) else config
        return any(isinstance(n := text.get(name), int) and n > 1 for name in _ROUTERS)

    def differing(self, sampler: EngineSpec, learner: EngineSpec) -> tuple[str, ...] | None:
        """Names of the tensors that differ; None where that is not known."""
        found = self._compare(sampler, learner)
        return found.differing if isinstance(found, WeightsComparison) else None

    def control(self, sampler: EngineSpec, learner: EngineSpec) -> Control:
        """Whether both were given the same weights."""
        found = self._compare(sampler, learner)
        if found is None:
            return weights_control(None, 0)
        if isinstance(found, ModelError):
            return not_made("same_weights", str(found))
        if found.differing is None:
            kinds = " against ".join(each or "plain weights" for each in found.quantised)
            why = f"one side is quantised ({kinds}); all {found.tensors} tensors that are stored "
            return not_made("same_weights", f"{why}alike on both sides are the same")
        control = weights_control(found.differing, found.tensors)
        settings = f" config.json differs: {'; '.join(found.settings)}." if found.settings else ""
        passed = control.passed and not settings
        return replace(control, told=control.told + settings, passed=passed)

    def _compare(
        self, sampler: EngineSpec, learner: EngineSpec
    ) -> WeightsComparison | ModelError | None:
        key = sampler.key, learner.key
        if key not in self._compared:
            try:
                one, other = checkpoint_of(sampler), checkpoint_of(learner)
                self._compared[key] = compare_checkpoints(one, other) if one and other else None
            except (ModelError, OSError) as error:
                self._compared[key] = ModelError(str(error))
        return self._compared[key]
