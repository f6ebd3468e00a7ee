"""CFG012."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class CriticWithGroupFilter(ConfigRule):
    """Groups without variance are replaced, although the baseline is a critic.

    What it sees:
        A critic (gae) together with dynamic sampling.

    Why it matters:
        With a critic, a group with equal rewards contributes gradient like any other. Replacing it
        wastes samples and biases the batch toward prompts that are solved half of the time.

    Evidence it needs:
        Settings: `advantage`, `dynamic_sampling`.

    Remedies:
        Switch dynamic sampling off.

    When it is wrong:
        A critic that predicts the reward of such prompts exactly leaves no gradient either.

    References:
        VAPO, arXiv 2504.05118; DAPO, arXiv 2503.14476, section 3.2.
    """

    code = "CFG012"
    name = "critic-with-group-filter"
    summary = "Groups are filtered, although the baseline is a critic."
    needs = ("advantage", "dynamic_sampling")
    remedies = ("warm-up-critic",)
    references = ("arXiv 2504.05118", "arXiv 2503.14476")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for both."""
        is_filtered = settings.get("dynamic_sampling") is True
        if not is_filtered or not settings.is_one_of("advantage", "gae"):
            return None
        return ConfigFault(
            "info", "Dynamic sampling drops groups from which the critic (gae) learns."
        )
