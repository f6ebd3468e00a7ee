"""CFG025."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class LengthBudget(ConfigRule):
    """The sampler's context is shorter than the longest response, or than prompt plus response.

    What it sees:
        A context length below the maximum response length, or, as a note, below the sum of the
        maximum prompt length and the maximum response length.

    Why it matters:
        Responses to long prompts are cut before their limit, or the engine refuses the request.
        Truncation then depends on the length of the prompt, which the reward does not consider.

    Evidence it needs:
        Settings: `max_length`, `context_length`; better: `max_prompt_length`. Without it, only
        the response is compared.

    Remedies:
        Raise the sampler's context, or lower one of the two limits.

    When it is wrong:
        Prompts that never reach their limit leave enough room, so the sum of both limits is a note.

    References:
        vLLM, max_model_len.
    """

    code = "CFG025"
    name = "length-budget"
    explains = ("truncation",)
    summary = "Prompt and response do not fit into the sampler's context."
    condition = "truncation"
    needs = ("max_length", "context_length")
    remedies = ()
    references = ("docs.vllm.ai/en/latest/configuration/engine_args.html",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the sum of the limits with the context."""
        prompt = settings.amount("max_prompt_length")
        response = settings.amount("max_length")
        context = settings.amount("context_length")
        if prompt + response <= context:
            return None
        if response > context:
            text = (
                f"A response may have {response:.0f} tokens; the context has {context:.0f}: raise "
                "it, or lower the limit."
            )
            return ConfigFault("warning", text)
        text = (
            f"The context of {context:.0f} tokens cuts responses of {response:.0f} if the prompt "
            f"has more than {context - response:.0f}."
        )
        return ConfigFault("info", text)
