"""CFG055."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class UntrainedCritic(ConfigRule):
    """The policy is updated before the critic has learned anything.

    What it sees:
        A critic (gae) without pretraining steps.

    Why it matters:
        A new value head predicts noise, so the first advantages are noise. With long responses, the
        policy can lose its ability to reason before the critic is useful.

    Evidence it needs:
        Settings: `advantage`, `critic_pretraining`, `max_length`.

    Remedies:
        Pretrain the critic for 50 steps (`warm-up-critic`).

    When it is wrong:
        A critic that is initialized from a reward model or an earlier run.

    References:
        VAPO, arXiv 2504.05118; VC-PPO, arXiv 2503.01491.
    """

    code = "CFG055"
    name = "untrained-critic"
    explains = ("useless-critic",)
    summary = "The policy is updated with an untrained critic from the first step."
    condition = "useless-critic"
    needs = ("advantage", "critic_pretraining", "max_length")
    remedies = ("warm-up-critic",)
    references = ("arXiv 2504.05118", "arXiv 2503.01491")

    long: int = 1000
    """Responses for which the papers saw the loss; short ones train the critic within a few
    steps."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for pretraining."""
        steps = settings.amount("critic_pretraining")
        is_short = settings.amount("max_length") < self.long
        if not settings.is_one_of("advantage", "gae") or steps > 0 or is_short:
            return None
        return ConfigFault(
            "info", "The critic (gae) has 0 steps of pretraining before the policy moves."
        )
