"""CFG006."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings

_RELATIVE = ("group", "centred", "leave_one_out", "gdpo", "gopo", "scalerl", "batch_std", "max_rl")
"""Advantages whose baseline is the mean of the group."""


class GroupOfOne(ConfigRule):
    """Each prompt has one response, but the baseline is the mean of a group.

    What it sees:
        A group size of 1 with an advantage that is relative to the group.

    Why it matters:
        The baseline of a response is the mean reward of its group. With one response, the centered
        reward is 0 and nothing is learned. verl uses the raw reward instead, which reinforces every
        response with a positive reward. verl's default for rollout.n is 1.

    Evidence it needs:
        Settings: `group_size`, `advantage`.

    Remedies:
        Sample 8 or more responses per prompt, or use a critic (`gae`) or a batch baseline.

    When it is wrong:
        Never with a group-relative advantage.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1.
    """

    code = "CFG006"
    name = "group-of-one"
    explains = ("equal-rewards", "zero-gradient")
    summary = "Groups have one response, so they give no baseline."
    condition = "wrong-advantages"
    needs = ("group_size", "advantage")
    remedies = ("larger-groups",)
    references = ("arXiv 2402.03300",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for groups of one response."""
        has_baseline = settings.is_one_of("advantage", *_RELATIVE)
        if settings.number("group_size") != 1 or not has_baseline:
            return None
        return ConfigFault("critical", "The group size is 1, so the group gives no baseline.")
