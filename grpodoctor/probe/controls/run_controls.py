"""Run the controls of a probe and evaluate their results."""

from __future__ import annotations

import hashlib
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
from grpodoctor.probe.engines.jobs import computes_in, requested_edits
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
"""Relative noise on each weight matrix. Less is hidden by the rounding of a 16-bit model; more does
not resemble a checkpoint that is a few updates old."""
_OTHER_WEIGHTS = ("weights", "weights_only", "sync", "sync_reset_cache", "sync_stock")
_ROUTERS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class SampledRollouts:
    """The responses of one sampler at one length."""

    sampling: Sampling
    path: Path
    part: Path
    """The first shards, which the controls use."""
    facts: EngineFacts
    """Facts of the sampler."""
    rescored: JobResult
    """The scores that the sampler gives to its responses."""

    def largest_id(self) -> int:
        """The largest token id."""
        shards = read_shards(self.path)
        return max((int(shard.response_ids_N.max(initial=0)) for shard in shards), default=0)


def reported_processing(sampling: Sampling, facts: EngineFacts) -> Processing:
    """The processing of the logits behind a sampler's reported log-probabilities."""
    return Processing.of(sampling) if facts.logprobs == "processed" else Processing()


def reported_edits(sampling: Sampling, facts: EngineFacts) -> tuple[tuple[str, str], ...]:
    """The penalties and biases behind a sampler's reported log-probabilities, as what-if edits."""
    return requested_edits(sampling, facts.processors) if facts.logprobs == "processed" else ()


def is_plain(sampling: Sampling) -> bool:
    """Whether tokens are drawn from the model's own distribution."""
    return Processing.of(sampling) == Processing() and not sampling.processors()


def self_scoring_of(rollouts: SampledRollouts) -> Control:
    """Compare the sampler with itself: prefill against decode."""
    if isinstance(rollouts.rescored, EngineError):
        return not_made("self_scoring", rollouts.rescored.what)
    return self_scoring_control(rollouts.path, rollouts.rescored, dtype=computes_in(rollouts.facts))


def repeat_of(scored: Path, backwards: JobResult | None, facts: EngineFacts) -> Control:
    """Compare the learner with itself: the same tokens in another batch order."""
    if backwards is None:
        return not_made("repeat", "the time budget ended")
    if isinstance(backwards, EngineError):
        return not_made("repeat", backwards.what)
    return repeat_control(scored, backwards, dtype=computes_in(facts))


def stale_spec(learner: EngineSpec, stale: Path | None) -> tuple[EngineSpec | None, str]:
    """The learner with wrong weights, and their description.

    Args:
        learner: the engine.
        stale: an older checkpoint; if None, noise is added.
    """
    if "perturb" not in learner.kind.experiment_options:
        return None, f"the engine {learner.engine} cannot load other weights"
    if stale is not None:
        plain = learner.with_options(**dict.fromkeys(_OTHER_WEIGHTS))
        if learner.kind.model == "option":
            return plain.with_options(model=str(stale)), f"the checkpoint {stale.name}"
        return replace(plain, model=str(stale)), f"the checkpoint {stale.name}"
    return learner.with_options(perturb=NOISE), f"its own weights plus {NOISE:.0%} noise"


def stale_of(part: Path, scored: Path, outcome: JobResult | None, what: str) -> Control:
    """Compare the pair with a learner that has wrong weights, on the same responses.

    Args:
        part: the responses that the wrong learner scored.
        scored: the learner's scores of these responses: other responses may differ more or less.
        outcome: the wrong learner's scores; None if there are none, and `what` gives the reason.
        what: description of the wrong weights.
    """
    if outcome is None:
        return not_made("stale_weights", what)
    if isinstance(outcome, EngineError):
        return not_made("stale_weights", outcome.what)
    return stale_control(compare(part, scored), compare(part, outcome), what=what)


@dataclass(slots=True)
class Weights:
    """Compares the engines' weights; each pair once."""

    _compared: dict[tuple[str, str], WeightsComparison | ModelError | None] = field(
        default_factory=dict
    )

    def has_routers(self, model: str) -> bool:
        """Whether a local model is a mixture of experts; False if unknown."""
        config = read_config(model)
        nested = config.get("text_config")
        text = nested if isinstance(nested, Mapping) else config
        return any(isinstance(n := text.get(name), int) and n > 1 for name in _ROUTERS)

    def differing(self, sampler: EngineSpec, learner: EngineSpec) -> tuple[str, ...] | None:
        """Names of the tensors that differ; None if unknown."""
        found = self._compare(sampler, learner)
        if not isinstance(found, WeightsComparison) or adapters_in_words(sampler, learner):
            return None
        return found.differing

    def control(self, sampler: EngineSpec, learner: EngineSpec) -> Control:
        """Whether both engines have the same weights."""
        found = self._compare(sampler, learner)
        if found is None:
            return weights_control(None, 0)
        if isinstance(found, ModelError):
            return not_made("same_weights", str(found))
        if found.differing is None:
            kinds = " against ".join(kind or "plain weights" for kind in found.quantization)
            why = (
                f"one side is quantized ({kinds}); all {found.tensors} tensors with the same type "
            )
            return not_made("same_weights", f"{why}on both sides are equal")
        adapters = adapters_in_words(sampler, learner)
        control = weights_control(found.differing, found.tensors)
        if adapters and not control.passed:
            return not_made("same_weights", f"the files differ, and so do the adapters: {adapters}")
        if adapters:
            summary = f"All {found.tensors} tensors of the base model are equal, but {adapters}."
            return replace(control, summary=summary, passed=False)
        settings = f" config.json differs: {'; '.join(found.settings)}." if found.settings else ""
        passed = control.passed and not settings
        return replace(control, summary=control.summary + settings, passed=passed)

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


def adapters_in_words(sampler: EngineSpec, learner: EngineSpec) -> str:
    """How the LoRA adapters of two engines differ; empty if they do not."""
    adapters = [str(spec.options.get("adapter") or "") for spec in (sampler, learner)]
    contents = [_adapter_content(each) for each in adapters]
    if contents[0] == contents[1]:
        return ""
    shown = [f"has the adapter {each}" if each else "has no adapter" for each in adapters]
    return f"the sampler {shown[0]} and the learner {shown[1]}"


def _adapter_content(adapter: str) -> tuple[bytes, ...] | str:
    """What identifies an adapter: the digests of its files, or its name if it is not here."""
    files = [Path(adapter) / name for name in ("adapter_config.json", "adapter_model.safetensors")]
    if not adapter or not all(file.is_file() for file in files):
        return adapter
    with files[1].open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").digest()
    return files[0].read_bytes(), digest
