"""CFG014."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class OnePromptPerBatch(ConfigRule):
    """Each batch has one prompt, so an update follows that prompt alone.

    What it sees:
        One prompt per rollout batch.

    Why it matters:
        The gradient is an estimate over prompts. With one prompt nothing averages the differences
        between prompts, and more responses to it do not reduce them. If all its responses have the
        same reward, the whole batch has no policy gradient.

    Evidence it needs:
        Settings: `prompts_per_batch`.

    Remedies:
        Use more prompts per batch, if necessary with fewer responses each.

    When it is wrong:
        A data set of one prompt, as in one-shot experiments. A small learning rate averages over
        batches instead, so the finding is a note.

    References:
        An Empirical Model of Large-Batch Training, arXiv 1812.06162, section 2.2 (gradient noise
        falls with the batch size).
    """

    code = "CFG014"
    name = "one-prompt-per-batch"
    explains = ("equal-rewards",)
    summary = "Each batch has one prompt, so an update follows that prompt alone."
    needs = ("prompts_per_batch",)
    remedies = ("larger-batch",)
    references = ("arXiv 1812.06162",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for batches of one prompt."""
        if settings.number("prompts_per_batch") != 1:
            return None
        return ConfigFault("info", "Each batch has 1 prompt, so an update follows it alone.")
