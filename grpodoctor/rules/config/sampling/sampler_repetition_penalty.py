"""CFG023."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class SamplerRepetitionPenalty(ConfigRule):
    """The sampler penalizes repeated tokens, but the learner does not.

    What it sees:
        A repetition penalty other than 1 in the sampling of training responses, or n-grams that the
        sampler never repeats.

    Why it matters:
        The penalty changes the sampled distribution at every repeated token. The learner's
        probabilities do not include it, so ratios at common words are wrong from the first step on.
        The samples hide the repetition, so the policy is never taught to avoid it. If n-grams are
        blocked, responses that have to repeat a part of themselves are never sampled.

    Evidence it needs:
        Settings: `repetition_penalty`. Optional: `blocked_ngrams`, `no_repeat_ngram_size` in TRL's
        `generation_kwargs`.

    Remedies:
        Set it to 1, and penalize repetition in the reward (`repetition-penalty`).

    When it is wrong:
        Only if the learner applies the same penalty.

    References:
        CTRL, arXiv 1909.05858, section 4.1 (definition of the penalty).
    """

    code = "CFG023"
    name = "sampler-repetition-penalty"
    explains = ("engine-mismatch", "off-policy")
    summary = "The sampler applies a repetition penalty that the loss does not."
    condition = "off-policy"
    needs = ("repetition_penalty",)
    remedies = ("repetition-penalty", "whole-distribution")
    references = ("arXiv 1909.05858",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a penalty and for blocked n-grams."""
        if blocked := settings.amount("blocked_ngrams"):
            text = f"The sampler never repeats {blocked:g}-grams, which the learner's policy may."
            return ConfigFault("warning", text, values={"blocked_ngrams": blocked})
        penalty = settings.number("repetition_penalty")
        if penalty in (None, 0, 1):
            return None
        text = (
            f"The sampler's repetition penalty of {penalty:g} is not part of the learner's policy."
        )
        return ConfigFault("warning", text)
