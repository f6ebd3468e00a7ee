"""SYN006."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.mismatch_levels import HARMFUL
from grpodoctor.rules.shared.weight_delivery import NOISE, fits_no_weights
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Max

_GAP, _PART = "delivery/gap", "delivery/missing_part"
_SINCE = {"change": "since the start", "update": "since the previous check"}
_LONGEST_NAMES = 50


class _Missing(NamedTuple):
    """A change that the sampler lacks."""

    name: str
    share: float
    low: float
    """Lower bound of the share."""
    nats: float


class UndeliveredWeights(Rule):
    """The sampler's log-probabilities fit earlier weights of the learner.

    What it sees:
        After a sync, the canary of a live hook scores a few responses with the learner's
        current weights, with those of the previous check and with those of the start. The sampler's
        own log-probabilities contain a share of the learner's change that is above 0 beyond doubt.
        If single modules or layers are missing, the finding names them. While what is missing is
        smaller than the noise of the engines, the finding is `info`.

    Why it matters:
        The sampler did not receive the weights, or only a part of them. The run learns off-policy
        from then on, and the reward of its samples hardly changes. Loss and gradient look normal.

    Evidence it needs:
        `delivery/change_missing_low`, which live hooks record if the sampler is a separate
        engine that reports log-probabilities.

    Remedies:
        Compare the names and norms of the tensors that the sync sends with those that the engine
        has. Adapters are often sent without being loaded, or under other names.

    When it is wrong:
        A sampler that is one sync behind by design lacks the latest update; `staleness` of the
        canary says so. Updates that are smaller than the sampler's precision do not arrive
        either, which is why the finding is `info` below the noise. A sampler that is wrong before
        the first update is not seen here but by MIS001.

    References:
        verl issue 7495 (adapter never sent for two months); ms-swift issue 9855; vLLM issue 34186
        (adapter under other names is ignored); TRL issue 5312.
    """

    code: ClassVar[str] = "SYN006"
    name: ClassVar[str] = "undelivered-weights"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "After a sync, the sampler still has earlier weights of the learner."
    inputs: ClassVar[tuple[Need, ...]] = ("delivery/change_missing_low",)
    remedies: ClassVar[tuple[str, ...]] = ("check-weight-sync", "stop-training")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/verl-project/verl/issues/7495",
        "github.com/modelscope/ms-swift/issues/9855",
        "github.com/vllm-project/vllm/issues/34186",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = RECENT

    whole: float = 0.5
    """Share from which earlier weights fit the sampler better than the current ones; its lower
    bound must reach it. An engine that flattens its distributions lacks a share of every change,
    so less is `info`. This share of the change since the start is critical."""
    least: float = 0.01
    """Smallest share to report. Rounding flattens an engine's distributions a little: in TRL, a
    vLLM that had received every weight lacked 0.2 % of each change."""
    updates: float = 1.5
    """Latest updates that the sampler lacks, from which the finding is critical: more than one, so
    it is not just one sync behind."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a missing change that exceeds the noise."""
        if fits_no_weights(chart):
            return None  # reported by SYN007; shares have no meaning then
        part = chart.reading(_PART)
        if isinstance(part, Max) and part.where:
            return self._of_part(chart, part.value, part.where)
        found = [each for name in _SINCE if (each := self._missing(chart, name)) is not None]
        if not found:
            return None
        older = [each for each in found if each.low >= self.whole]
        worst = max(older or found, key=lambda each: each.nats)
        is_whole = any(each.name == "change" or each.share >= self.updates for each in older)
        share, since = _percent(worst.share), _SINCE[worst.name]
        text = f"The sampler lacks {share} of the learner's change {since}."
        evidence = cite_all(chart, f"delivery/{worst.name}_missing", _GAP, NOISE)
        severity = _severity(chart, worst.nats, is_critical=is_whole)
        return Sighting(severity if older else "info", text, evidence)

    def _of_part(self, chart: Chart, share: float, names: str) -> Sighting:
        """A part of the model explains the gap, which may be a small share of the whole change."""
        gap = chart.value(_GAP) or 0.0
        is_harmful = gap >= HARMFUL["mismatch/logprob_diff_mean"]
        text = f"The sampler lacks {_percent(share)} of the updates of {_short(names)}."
        evidence = (cite(chart, _PART), *cite_all(chart, _GAP, NOISE))
        return Sighting(_severity(chart, gap, is_critical=is_harmful), text, evidence)

    def _missing(self, chart: Chart, name: str) -> _Missing | None:
        low = chart.value(f"delivery/{name}_missing_low")
        share = chart.value(f"delivery/{name}_missing")
        size = chart.value(f"delivery/{name}")
        if low is None or share is None or size is None or not low > 0 or share < self.least:
            return None
        return _Missing(name, share, low, min(share, 1.0) * size)


def _severity(chart: Chart, nats: float, *, is_critical: bool) -> Severity:
    """Below the noise of the engines, what is missing does no harm yet."""
    if nats <= (chart.value(NOISE) or 0.0):
        return "info"
    return "critical" if is_critical else "warning"


def _percent(share: float) -> str:
    """The estimate may exceed 1 by its error."""
    return f"{min(share, 1.0):.0%}"


def _short(names: str) -> str:
    """The first of many names."""
    if len(names) <= _LONGEST_NAMES:
        return names
    return f"{names[:_LONGEST_NAMES].rpartition(',')[0]} and others"
