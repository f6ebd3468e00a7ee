"""CFG028."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class LearnerLength(ConfigRule):
    """The learner takes shorter sequences than the sampler makes.

    What it sees:
        A limit of the learner's sequences below the longest prompt plus response, or below the
        sampler's context.

    Why it matters:
        Long responses are cut before the loss, without the part that decided the reward, or the
        trainer stops with an error. Both happen only when responses have become long enough.

    Evidence it needs:
        Settings: `learner_length`, and `max_length` with `max_prompt_length`, or
        `context_length`.

    Remedies:
        Raise the learner's limit to the longest prompt plus response, or lower the others.

    When it is wrong:
        Responses that never reach their limit fit anyway.

    References:
        verl, ppo_max_token_len_per_gpu; prime-rl, trainer.model.seq_len.
    """

    code = "CFG028"
    name = "learner-length"
    explains = ("truncation",)
    summary = "The learner takes shorter sequences than the sampler makes."
    condition = "truncation"
    needs = ("learner_length",)
    remedies = ()
    references = ("verl.readthedocs.io/en/latest/examples/config.html",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the learner's limit with the longest sequence that is known."""
        learner = settings.amount("learner_length")
        response, context = settings.amount("max_length"), settings.amount("context_length")
        limits = response + settings.amount("max_prompt_length") if response else 0.0
        longest = min(limits, context) if limits and context else limits or context
        if longest <= learner:
            return None
        text = (
            f"The learner takes sequences of {learner:.0f} tokens; the sampler makes up to "
            f"{longest:.0f}: raise its limit."
        )
        return ConfigFault("warning", text, values={"longest": longest})
