"""CFG033."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition

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


@dataclass(frozen=True)
class StaleSamplesUncorrected(ConfigRule):
    """Samples may be several steps old without a correction.

    What it sees:
        A limit on staleness above 4 steps without an engine correction and without a loss made for
        it.

    Why it matters:
        A sample that is k steps old comes from another policy. Recomputed old log-probabilities
        hide this: the ratio starts at 1 although the sample is off-policy. A correction by learner
        / sampler shows and bounds it.

    Evidence it needs:
        Settings: `staleness_limit`, `correction`, `loss`.

    Remedies:
        Lower the limit (`limit-staleness`), or switch a correction on (`tis`).

    When it is wrong:
        The limit is a maximum; actual ages may stay far below it.

    References:
        AReaL, arXiv 2505.24298 (quality falls beyond 4 to 8 steps without the decoupled loss).
    """

    code: ClassVar[str] = "CFG033"
    name: ClassVar[str] = "stale-samples-uncorrected"
    explains: ClassVar[tuple[Condition, ...]] = ("off-policy",)
    summary: ClassVar[str] = "Samples may be many steps old, and nothing corrects for it."
    condition: ClassVar[Condition] = "off-policy"
    needs: ClassVar[tuple[str, ...]] = ("staleness_limit", "correction", "loss")
    remedies: ClassVar[tuple[str, ...]] = ("limit-staleness", "tis")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.24298",)

    tolerated: float = 4.0
    """Steps at which AReaL's runs lose nothing."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the limit with what an uncorrected loss tolerates."""
        limit = settings.number("staleness_limit") or 0.0
        is_tolerant = settings.is_one_of("loss", *_TOLERANT)
        if limit <= self.tolerated or is_tolerant or not settings.is_one_of("correction", "none"):
            return None
        text = f"Samples may be {limit:g} steps old, and correction=none ignores it."
        return ConfigFault("warning", text)
