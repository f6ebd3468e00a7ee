"""CFG025."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.conditions import Condition


@dataclass(frozen=True)
class LengthBudget(ConfigRule):
    """The sampler's context is shorter than the longest prompt plus response.

    What it sees:
        A context length below the maximum prompt length plus the maximum response length.

    Why it matters:
        Responses to long prompts are cut before their limit, or the engine refuses the request.
        Truncation then depends on the prompt, which the reward cannot know.

    Evidence it needs:
        Settings: `max_length`, `max_prompt_length`, `context_length`.

    Remedies:
        Raise the sampler's context, or lower one of the two limits.

    When it is wrong:
        Prompts that never reach their limit leave enough room.

    References:
        vLLM, max_model_len.
    """

    code: ClassVar[str] = "CFG025"
    name: ClassVar[str] = "length-budget"
    explains: ClassVar[tuple[Condition, ...]] = ("truncation",)
    summary: ClassVar[str] = "Prompt and response do not fit into the sampler's context."
    condition: ClassVar[Condition] = "truncation"
    needs: ClassVar[tuple[str, ...]] = ("max_length", "max_prompt_length", "context_length")
    remedies: ClassVar[tuple[str, ...]] = ("longer-limit",)
    references: ClassVar[tuple[str, ...]] = (
        "docs.vllm.ai/en/latest/configuration/engine_args.html",
    )

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the sum of the limits with the context."""
        prompt = settings.number("max_prompt_length") or 0.0
        response = settings.number("max_length") or 0.0
        context = settings.number("context_length") or 0.0
        if prompt + response <= context:
            return None
        needed = prompt + response
        text = f"Prompt and response need {needed:.0f} tokens; the context has {context:.0f}."
        return ConfigFault("warning", text)
