"""KLD005."""

from __future__ import annotations

import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.distillation import REFERENCE_IS_TEACHER, has_teacher
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ESTIMATORS = ("k3", "k2", "k1")


class MovingReference(Rule):
    """The KL to the reference equals the KL to the old policy, so the reference moves along.

    What it sees:
        The same estimate of both divergences agrees in reading after reading, long after the start.
        The reference then is the policy at the beginning of each batch.

    Why it matters:
        The penalty limits each batch alone and nothing holds the policy near its starting point.
        The KL curve stays flat and small, which looks like a policy that does not drift.

    Evidence it needs:
        `kl/reference/k3` and `kl/old_policy/k3`, or both as `k2` or as `k1`.

    Remedies:
        Load the reference once, as a copy: a reference that shares the policy's tensors, or that a
        callback updates at every step, is no reference.

    When it is wrong:
        A reference that is meant to follow the policy at every step.

    References:
        DeepSeekMath, arXiv 2402.03300, Eq. 3: the reference is fixed during an iteration.
    """

    code: ClassVar[str] = "KLD005"
    name: ClassVar[str] = "moving-reference"
    condition: ClassVar[Condition] = "wrong-reference"
    summary: ClassVar[str] = "The KL to the reference equals the KL to the old policy."
    inputs: ClassVar[tuple[Need, ...]] = (
        tuple(f"kl/reference/{estimator}" for estimator in _ESTIMATORS),
        tuple(f"kl/old_policy/{estimator}" for estimator in _ESTIMATORS),
    )
    remedies: ClassVar[tuple[str, ...]] = ("check-reference",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2402.03300",)
    clearance: ClassVar[int] = 10
    cadence: ClassVar[int] = 5

    readings: int = 20
    """Latest readings that are compared, after as many others: at the start the old policy is the
    reference, and both divergences are the same in every run."""
    max_difference: float = 0.02
    """Median difference as a share of the KL to the old policy. The two are the same number up to
    rounding if the models are the same; a fixed reference is many updates away by then."""
    min_kl: float = 1e-7
    """Nats per token below which rounding decides."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the two divergences at the latest steps that have both."""
        if has_teacher(chart):
            return REFERENCE_IS_TEACHER
        for estimator in _ESTIMATORS:
            reference, old = f"kl/reference/{estimator}", f"kl/old_policy/{estimator}"
            pairs = self._pairs(chart, reference, old)
            if pairs is not None:
                break
        else:
            return None
        moved = statistics.median([abs(by_update) for _, by_update in pairs])
        if moved < self.min_kl:
            return None
        difference = statistics.median(abs(far - by_update) for far, by_update in pairs)
        if difference > self.max_difference * moved:
            return None
        text = (
            f"The reference moves with the policy: both KL divergences are {moved:.2g} nats "
            f"in {len(pairs)} readings."
        )
        first = chart.series(reference).first_step
        evidence = cite_all(chart, reference, old)
        return Sighting("warning", text, evidence, find_onset=lambda: first)

    def _pairs(self, chart: Chart, reference: str, old: str) -> list[tuple[float, float]] | None:
        """The latest readings of both; None if there are too few."""
        far, by_update = chart.series(reference), chart.series(old)
        if min(len(far), len(by_update)) < 2 * self.readings:
            return None
        latest = self.readings
        if far.steps(latest) == by_update.steps(latest):  # the usual case
            return list(zip(far.tail(latest), by_update.tail(latest), strict=True))
        updates = dict(by_update)
        pairs = [(value, updates[step]) for step, value in far if step in updates]
        return pairs[-latest:] if len(pairs) >= latest else None
