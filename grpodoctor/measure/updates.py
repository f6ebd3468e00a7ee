"""All readings of one optimiser step."""

from __future__ import annotations

from grpodoctor.measure.batch import UpdateBatch
from grpodoctor.vocabulary.values import Mean, Reading


def update_readings(update: UpdateBatch, *, on_policy: bool) -> dict[str, Reading]:
    """Every metric that one optimiser step gives, by canonical name.

    Args:
        update: what the step saw.
        on_policy: one update per batch, and the old log-probabilities are the learner's own: the
            ratio is 1 whatever happens, so that clipping has no meaning.
    """
    return {"optimiser/loss": Mean.of([update.loss])}
