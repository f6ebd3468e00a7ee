"""CFG055."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
class UntrainedCritic(ConfigRule):
    """The policy moves before the critic has learnt anything.

    What it sees:
        A critic (gae) without pretraining steps.

    Why it matters:
        A new value head predicts noise, so the first advantages are noise. On long responses the
        policy can lose its ability to reason before the critic is of use.

    Evidence it needs:
        Settings: `advantage`, `critic_pretraining`, `max_length`.

    Remedies:
        Pretrain the critic for 50 steps (`warm-up-critic`).

    When it is wrong:
        A critic that starts from a reward model or from an earlier run.

    References:
        VAPO, arXiv 2504.05118; VC-PPO, arXiv 2503.01491.
    """

    code: ClassVar[str] = "CFG055"
    name: ClassVar[str] = "untrained-critic"
    explains: ClassVar[tuple[Condition, ...]] = ("useless-critic",)
    summary: ClassVar[str] = "The policy follows an untrained critic from the first step."
    condition: ClassVar[Condition] = "useless-critic"
    needs: ClassVar[tuple[str, ...]] = ("advantage", "critic_pretraining", "max_length")
    remedies: ClassVar[tuple[str, ...]] = ("warm-up-critic",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2504.05118", "arXiv 2503.01491")

    long: int = 1000
    """Responses for which the papers saw the loss; short ones train the critic within a few
    steps."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for pretraining."""
        steps = settings.number("critic_pretraining") or 0.0
        is_short = (settings.number("max_length") or 0.0) < self.long
        if not settings.is_one_of("advantage", "gae") or steps > 0 or is_short:
            return None
        return ConfigFault(
            "info", "The critic (gae) has 0 steps of pretraining before the policy moves."
        )
