"""SYN007."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.weight_delivery import FACTOR, LEFT, NOISE, fits_no_weights
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition


class CorruptedWeights(Rule):
    """After a sync, the sampler has neither the learner's current weights nor earlier ones.

    What it sees:
        After a sync, the canary of a live hook scores a few responses with the learner's
        current and earlier weights. The sampler's log-probabilities differ from all of them, and
        from any mixture, by a multiple of the noise that a correct sync left.

    Why it matters:
        Old weights cannot cause this. Tensors arrived in the wrong place, an adapter was merged
        twice, quantized weights were overwritten, or a sleeping engine lost its weights. The
        sampler produces text of another model, and the learner trains on it.

    Evidence it needs:
        `delivery/unexplained`, which live hooks record if the sampler is a separate engine that
        reports log-probabilities.

    Remedies:
        Stop, and compare a few weights of both engines. Restart the engine from the latest
        checkpoint; if the gap comes back at the next sync, the sync is at fault.

    When it is wrong:
        A change of the temperature or the precision of the engine in the middle of a run; the rule
        is silent at a step at which a setting changed.

    References:
        TRL issue 5312 (weights of a sleeping engine, from the second sync on); SkyRL issue 1680.
    """

    code: ClassVar[str] = "SYN007"
    name: ClassVar[str] = "corrupted-weights"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "After a sync, the sampler has weights that the learner never had."
    inputs: ClassVar[tuple[Need, ...]] = (LEFT,)
    remedies: ClassVar[tuple[str, ...]] = ("check-weight-sync", "stop-training")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/issues/5312",
        "github.com/NovaSky-AI/SkyRL/issues/1680",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = RECENT

    factor: float = FACTOR
    """Multiple of the noise."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare what no weights explain with the noise and with the level that does harm."""
        if chart.knobs_changed_at == chart.step or not fits_no_weights(chart, self.factor):
            return None
        left, noise = chart.value(LEFT), chart.value(NOISE)
        text = (
            f"The sampler's log-probabilities fit no weights of the learner: {left:.2g} nats off, "
            f"{noise:.2g} before."
        )
        return Sighting("critical", text, (cite(chart, LEFT, noise),))
