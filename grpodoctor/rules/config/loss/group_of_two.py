"""CFG013."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class GroupOfTwo(ConfigRule):
    """Groups have two responses, so the normalized advantage ignores the size of the reward gap.

    What it sees:
        A group size of 2 with an advantage that is divided by the group's standard deviation.

    Why it matters:
        The standard deviation of two rewards is proportional to their gap. Their normalized
        advantages are plus and minus one constant, whether the gap is 1 or 0.001, so a reward with
        noise or a small length term weighs as much as a correct answer. Groups of two also have
        equal rewards most often: with a pass rate p, in 1 - 2p(1 - p) of the cases, at least half.

    Evidence it needs:
        Settings: `group_size`, `advantage`.

    Remedies:
        Sample 8 or more responses per prompt, or use an advantage without the division.

    When it is wrong:
        With rewards of 0 and 1 alone all gaps are equal, and groups of two with twice or more the
        prompts can learn as well. The finding is a note for that reason.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1; It Takes Two: Your GRPO Is Secretly DPO, arXiv
        2510.00977 (groups of two that work).
    """

    code = "CFG013"
    name = "group-of-two"
    explains = ("equal-rewards",)
    summary = "Groups have two responses, so normalized advantages ignore the reward gap."
    condition = "wrong-advantages"
    needs = ("group_size", "advantage")
    remedies = ("larger-groups",)
    references = ("arXiv 2402.03300", "arXiv 2510.00977")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for groups of two with division by the standard deviation."""
        if settings.number("group_size") != 2 or settings.get("advantage") != "group":
            return None
        text = "The group size is 2, so the normalized advantage is the same for every reward gap."
        return ConfigFault("info", text)
