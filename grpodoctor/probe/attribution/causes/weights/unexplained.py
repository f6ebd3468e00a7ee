"""No experiment explains the gap: what is known, and the next experiment."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant

_SHOWN = 12
_NEXT = (
    "Give the sampler's checkpoint with --stale DIR, or compare checksums of the tensors that the "
    "sampler holds with the learner's.",
    "Run the sampler's model directory in transformers as sampler: if that pair agrees, the "
    "sampling engine computes differently; if not, the files differ.",
)


class Unexplained(Cause):
    """Reported instead of a guess."""

    id = "unknown"
    title = "The cause is unknown"
    remedies = _NEXT
    peels = False

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is nothing to test."""
        return None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """There is nothing to test."""
        return None

    def remainder(self, experiments: Experiments, variant: Variant) -> ExperimentResult | None:
        """What was excluded, for a gap above rounding."""
        if not experiments.exceeds_rounding(variant) or experiments.case.differing:
            return None
        excluded = sorted(experiments.excluded.items(), key=lambda pair: pair[1])
        tried = f"; {len(excluded)} what-if edits were tried" if excluded else ""
        details = tuple(
            f"{name.replace('_', ' ')}: leaves {min(left, 1.0):.0%} of the gap"
            for name, left in excluded[:_SHOWN]
        )
        same = experiments.case.differing == ()
        what = "the tensors of both sides are equal by checksum" if same else _NO_CHECKSUMS
        return ExperimentResult(
            summary=(
                f"k3 is {variant.gap:.2g} nats per token, which exceeds rounding, and {what}{tried}"
            ),
            confidence="possible",
            details=details,
            identity=_SAME_FILES if same else None,
        )


_NO_CHECKSUMS = "no checksums or tensors of the sampler are known"
_SAME_FILES = Identity(
    "computed-differently",
    "Same files, computed differently",
    (
        "The weights are equal, so a sync does not help. Compare the engines' settings with the "
        "excluded ones in the list, beginning with those that leave the least of the gap.",
    ),
)
