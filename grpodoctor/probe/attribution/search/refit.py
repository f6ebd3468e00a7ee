"""Fitting a temperature again, once later causes no longer distort it."""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_search import refined_numbers
from grpodoctor.probe.attribution.variant import Variant

_AROUND = (0.97, 0.985, 1.015, 1.03)
"""First factors of the temperature; a fit under another fault is rarely further away."""
_ROUNDS = 3


def refitted(experiments: Experiments, variant: Variant) -> Variant:
    """The variant with the temperature that leaves the smallest gap.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    processing = variant.setup.processing
    fitted = {processing.temperature: variant}
    values = [factor * processing.temperature for factor in _AROUND]
    for _ in range(_ROUNDS):
        wanted = [replace(processing, temperature=value) for value in values]
        experiments.score_all(variant.setup.learner, wanted, variant.setup)
        for each in wanted:
            fitted[each.temperature] = experiments.vary(variant, processing=each)
        values = refined_numbers({value: each.gap for value, each in fitted.items()})
    return min(fitted.values(), key=lambda each: each.gap)
