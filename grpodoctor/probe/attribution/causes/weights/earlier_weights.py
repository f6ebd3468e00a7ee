"""The sampler has the learner's weights of some updates ago, and no checkpoint was given."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.weights.stale_weights import StaleWeights
from grpodoctor.probe.attribution.edits import UPDATE_EDITS
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.found_weights import is_optimizer, weights_in_words
from grpodoctor.probe.attribution.search.selection import CLOSED, NEARLY_WHOLE, WHOLE
from grpodoctor.probe.attribution.search.weight_line import LineFit, fitted_line
from grpodoctor.probe.attribution.tokens import significant
from grpodoctor.probe.attribution.variant import Variant

_ONE = 0.05
"""Deviation from 1 of a multiple that stands for the earlier weights themselves."""
_MOST_BEYOND = 3.0
"""Largest multiple of the difference to a checkpoint: the sampler may be older than it."""


class EarlierWeights(Cause):
    """Proven by undoing the last update in the learner, if nothing is fitted.

    A multiple of the update, or a place between two checkpoints, is fitted. It imitates the older
    weights, so the cause is *likely* then.
    """

    id = "earlier-weights"
    title = "The sampler has the learner's weights of some updates ago"
    remedies = (
        "Sync the weights once and probe again: the gap must disappear. Then sync before every "
        "rollout, and wait until the engine has loaded the weights.",
        "Check what is sent: the weights after optimizer.step(), not before it. If rollouts are "
        "asynchronous by design, limit their age and correct with importance sampling against the "
        "sampler's log-probabilities.",
    )
    is_surrogate = True
    uses_other_files = True
    least = 0.3
    """Also of what no temperature explains. In 294 comparisons with other faults, of 21 kinds in 7
    families, the largest share was .16; see docs/attribution-results.md."""

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The run left a checkpoint or its optimizer's state next to the learner."""
        setup = variant.setup
        used = any(name in UPDATE_EDITS for name, _ in setup.edits)
        takes = setup.learner.kind.can_alter and not setup.own_prompts and not setup.replay
        if used or not takes or not experiments.found.neighbors.all:
            return None
        return Hypothesis(0.58)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Move the learner's weights back towards each of the earlier ones."""
        fits = _fits(experiments, variant)
        best = min(fits, key=lambda fit: fit.after.gap, default=None)
        if best is None or not _is_age(variant, best, self.least):
            return None
        return _result(experiments, variant, best)


def _fits(experiments: Experiments, variant: Variant) -> list[LineFit]:
    """The fits to the weights that have something in common with the gap."""
    found, fits = experiments.found, []
    for path in found.neighbors.all:
        try:
            fit = fitted_line(experiments, variant, path)
        except EngineError as error:
            found.notes[f"{path.name} next to the learner was not used: {error.what}"] = None
            continue
        found.notes[f"compared with {weights_in_words(path)}, found next to the learner"] = None
        if fit is None:
            continue
        found.related.add(path)
        found.lines[path] = fit.after.gap if fit.multiple > 0 else variant.gap
        if _is_scaled(variant, fit):
            found.scaled.add(path)
        fits.append(fit)
        if fit.after.gap <= (1 - NEARLY_WHOLE) * variant.gap:
            break
    return fits


def _is_scaled(variant: Variant, fit: LineFit) -> bool:
    """Whether the weights are exactly on the line to a checkpoint, but neither of its ends."""
    is_exact = fit.after.gap <= CLOSED * variant.gap
    return not is_optimizer(fit.path) and is_exact and abs(fit.multiple - 1) > _ONE


def _is_age(variant: Variant, fit: LineFit, least: float) -> bool:
    """Whether a fit has the sign and size of older weights, and is no chance or temperature."""
    share = 1 - fit.after.gap / variant.gap
    if not fit.multiple > 0 or (not is_optimizer(fit.path) and fit.multiple > _MOST_BEYOND):
        return False
    if _is_scaled(variant, fit):
        return False  # see WeightUpdate
    is_shown = share >= WHOLE or significant(variant.tokens, fit.after.tokens)
    return share >= least and fit.beyond_temperature >= least and is_shown


def _result(experiments: Experiments, variant: Variant, fit: LineFit) -> ExperimentResult:
    """The cause by the place of the weights that fit best."""
    left, is_one = fit.after.gap, abs(fit.multiple - 1) <= _ONE
    closed = left <= CLOSED * variant.gap or not experiments.is_loud(left)
    is_proof = is_one and closed and left <= (1 - WHOLE) * variant.gap
    name, identity = fit.path.name, None
    if is_optimizer(fit.path):
        moved = f"without {'' if is_one else f'{fit.multiple:.3g} times '}its last update ({name})"
        identity = _ONE_UPDATE if is_one and closed else None
    elif is_one:
        moved, identity = f"with the weights of {name}, found next to it", _AT_CHECKPOINT
    else:
        moved = f"moved by {fit.multiple:.0%} of the way back to {name}, found next to it"
    falls = f"k3 falls from {variant.gap:.2g} to {left:.2g} nats per token"
    return ExperimentResult(
        summary=f"with the learner {moved}, {falls}",
        after=fit.after,
        confidence="proven" if is_proof else "likely",
        details=() if is_optimizer(fit.path) else (name,),
        figures={"multiple": fit.multiple},
        identity=identity,
    )


_ONE_UPDATE = Identity(
    EarlierWeights.id,
    "The sampler's weights lack the learner's last update",
    EarlierWeights.remedies,
)
_AT_CHECKPOINT = Identity(StaleWeights.id, StaleWeights.title, StaleWeights.remedies)
