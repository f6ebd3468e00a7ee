"""CFG033."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings

_TOLERANT = (
    "cispo",
    "scalerl",
    "vespo",
    "minirl",
    "m2po",
    "ipo",
    "dppo_binary_tv",
    "dppo_binary_kl",
)
"""Losses that are used with old samples."""


class StaleSamplesUncorrected(ConfigRule):
    """Samples may be several steps old, and no correction is set.

    What it sees:
        A limit on staleness above 4 steps without an engine correction and without a loss made for
        stale samples.

    Why it matters:
        A sample that is k steps old comes from another policy. Recomputed old log-probabilities
        hide this: the ratio starts at 1 although the sample is off-policy. A correction by the
        ratio of learner to sampler shows the difference and bounds it.

    Evidence it needs:
        Settings: `staleness_limit`, `correction`, `loss`.

    Remedies:
        Lower the limit (`limit-staleness`), or switch a correction on (`tis`).

    When it is wrong:
        The limit is a maximum; actual ages may stay far below it.

    References:
        AReaL, arXiv 2505.24298 (the loss without a correction degrades from 4 steps on, the
        decoupled loss tolerates 8).
    """

    code = "CFG033"
    name = "stale-samples-uncorrected"
    explains = ("off-policy",)
    summary = "Samples may be many steps old, and no correction is set."
    condition = "off-policy"
    needs = ("staleness_limit", "correction", "loss")
    remedies = ("limit-staleness", "tis")
    references = ("arXiv 2505.24298",)

    tolerated: float = 4.0
    """Steps that SYN001 tolerates without a correction."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the limit with what an uncorrected loss tolerates."""
        limit = settings.amount("staleness_limit")
        is_tolerant = settings.is_one_of("loss", *_TOLERANT)
        if limit <= self.tolerated or is_tolerant or not settings.is_one_of("correction", "none"):
            return None
        text = f"Samples may be {limit:g} steps old, and no correction is set (correction=none)."
        return ConfigFault("warning", text)
