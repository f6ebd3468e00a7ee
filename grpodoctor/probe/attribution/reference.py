"""A reference engine for learners that cannot compute differently, such as a user's program.

Transformers loads the learner's model directory. The side with which it agrees computes what the
files say, so the other side deviates, and what-if edits of the reference can explain it.
"""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.rounding import COARSE
from grpodoctor.probe.attribution.tensors import tensor_names
from grpodoctor.probe.attribution.tokens import difference_gap
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_AGREES = 0.05
"""Share of the gap between the two sides up to which the reference agrees with one of them."""


def with_reference(experiments: Experiments, variant: Variant) -> Variant:
    """The variant with the reference in place of the learner, or of the sampler.

    Unchanged if the learner can compute differently, if there is no local model, or if the
    reference agrees with neither side.

    Raises:
        EngineError: if the reference cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    spec = _reference(experiments)
    if spec is None or variant.setup.own_prompts:
        return variant
    tokens = experiments.columns(spec, variant.setup.processing)
    at = variant.tokens.finite_N
    to_sampler = difference_gap(tokens.learner_N[at], variant.tokens.sampler_N[at])
    to_learner = difference_gap(tokens.learner_N[at], variant.tokens.learner_N[at])
    most = max(_AGREES * variant.gap, experiments.noise)
    if min(to_sampler, to_learner) > most:
        return variant
    setup = Setup(spec, variant.setup.processing)
    if to_learner <= to_sampler:
        return Variant(setup, tokens)
    swapped = replace(
        tokens,
        sampler_N=variant.tokens.learner_N,
        sampler_experts_NLK=variant.tokens.learner_experts_NLK,
    )
    return Variant(replace(setup, swapped=True), swapped)


def altering(experiments: Experiments, learner: EngineSpec) -> EngineSpec | None:
    """An engine in place of a learner that can compute differently; None if there is none."""
    return learner if learner.kind.can_alter else _reference(experiments)


def _reference(experiments: Experiments) -> EngineSpec | None:
    """Transformers with the learner's model; None if not needed or not possible."""
    learner = experiments.case.learner
    if learner.kind.can_alter:
        return None
    model = model_path(learner)
    if not tensor_names(model):
        return None
    dtype = experiments.dtypes[1]
    options = {"dtype": dtype if dtype in COARSE else "float32"}
    return EngineSpec.of("transformers", str(model), options)
