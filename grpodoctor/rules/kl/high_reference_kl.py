"""KLD002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import RECENT, fresh_of, has_improved, outcome_of
from grpodoctor.runs.chart import Chart

_KLS = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")


@dataclass(frozen=True)
class HighReferenceKl(Rule):
    """The policy has moved far away from the reference that it is compared with.

    What it sees:
        The divergence from the reference at a nat per token and more, and several times what it was
        at the start of the run. A note where the outcome rose, which may have been the price; a
        warning where it did not.

    Why it matters:
        A nat per token is another text altogether. What the reference could do beside the task is
        no longer guarded by anything, and where the reward did not rise for it, the policy has only
        wandered. A penalty that is meant to prevent it is too weak for the learning rate.

    Evidence it needs:
        `kl/reference/k3`, `kl/reference/k1` or `kl/reference/k2`.

    Remedies:
        A larger penalty, a lower learning rate; or no penalty and no reference at all, if nothing
        of it is to be kept.

    When it is wrong:
        The estimates have heavy tails: a few tokens can carry them, so a median of steps is taken.
        Long chains of thought that are learnt from a base model do move far, and well. A reference
        that is not the policy's own start is far away from the first step on; only what was added
        since counts.

    References:
        Gao et al. 2022, arXiv 2210.10760; Schulman, Approximating KL Divergence, 2020.
    """

    code: ClassVar[str] = "KLD002"
    name: ClassVar[str] = "high-reference-kl"
    former_names: ClassVar[tuple[str, ...]] = ("far-from-reference",)
    summary: ClassVar[str] = "The policy has moved far away from its reference."
    inputs: ClassVar[tuple[Need, ...]] = (_KLS,)
    remedies: ClassVar[tuple[str, ...]] = ("kl-penalty", "lower-learning-rate")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2210.10760",
        "Schulman, Approximating KL Divergence, 2020",
    )
    clearance: ClassVar[int] = 2 * RECENT

    far: float = 1.0
    """Nats per token. Runs of strangers that went well ended at .02 to .15; one whose penalty was
    ten times weaker than that of its successors came to 2.8 for a reward of .69 in place of .77."""
    grown: float = 5.0
    """Times the start, so that a reference which was never the policy's own is no finding."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with a nat, and with the start."""
        name = fresh_of(chart, _KLS)
        series = chart.series(name)
        if series.baseline is None or series.last < self.far / 2:
            return None
        level = series.level(RECENT)
        if not level >= self.far or not level >= self.grown * series.baseline.level:
            return None
        text = f"the policy is {level:.2g} nats per token away from its reference"
        evidence = cite_all(chart, name, outcome_of(chart))
        if has_improved(chart) is False:
            return Sighting("warning", f"{text}, and the outcome has not risen for it", evidence)
        return Sighting("info", text, evidence)
