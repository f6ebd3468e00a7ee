"""CFG015."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class NoAdvantageBaseline(ConfigRule):
    """The advantage is the reward itself, without a baseline.

    What it sees:
        An advantage of `none`. Group means, batch means (REINFORCE++), leave-one-out means (RLOO)
        and a critic are baselines.

    Why it matters:
        A baseline does not change the expected gradient, but its variance. Without one, rewards of
        0 and 1 reinforce every correct response equally on easy and hard prompts, and no wrong
        response is discouraged. Rewards that are all positive raise every sampled response.

    Evidence it needs:
        Settings: `advantage`.

    Remedies:
        Subtract the mean reward of the group.

    When it is wrong:
        Rewards that are centered in the reward function already. The estimate is unbiased, so the
        finding is a note.

    References:
        Back to Basics (RLOO), arXiv 2402.14740 (REINFORCE, and the baseline that it lacks).
    """

    code = "CFG015"
    name = "no-advantage-baseline"
    explains = ("entropy-loss",)
    summary = "The advantage is the reward itself, without a baseline."
    condition = "wrong-advantages"
    needs = ("advantage",)
    remedies = ()
    references = ("arXiv 2402.14740",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for raw rewards as advantages."""
        if settings.get("advantage") != "none":
            return None
        return ConfigFault("info", "The advantage is the raw reward (none), without a baseline.")
