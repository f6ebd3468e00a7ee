"""CFG029."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class SamplerBatchTooSmall(ConfigRule):
    """One pass of the sampler holds fewer tokens than the longest sequence.

    What it sees:
        `max_num_batched_tokens` below the context length, or below the sum of the longest prompt
        and the longest response, while chunked prefill is off.

    Why it matters:
        vLLM computes a prompt in one pass unless it may split it. It refuses to start, or never
        schedules the prompts that do not fit, and the run hangs.

    Evidence it needs:
        Settings: `sampler_batch_tokens`, `chunked_prefill`; also `context_length`, or
        `max_prompt_length` and `max_length`.

    Remedies:
        Raise the sampler's tokens per pass, or switch chunked prefill on.

    When it is wrong:
        Engines that always split prompts ignore the switch.

    References:
        vLLM, SchedulerConfig: max_num_batched_tokens and enable_chunked_prefill.
    """

    code = "CFG029"
    name = "sampler-batch-too-small"
    summary = "One pass of the sampler holds fewer tokens than the longest sequence."
    needs = ("sampler_batch_tokens", "chunked_prefill")
    remedies = ()
    references = ("docs.vllm.ai/en/latest/configuration/engine_args.html",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the tokens of a pass with the longest sequence."""
        tokens = settings.amount("sampler_batch_tokens")
        prompt, response = settings.number("max_prompt_length"), settings.number("max_length")
        limits = 0.0 if prompt is None or response is None else prompt + response
        longest = settings.amount("context_length") or limits
        if settings.get("chunked_prefill") is not False or tokens >= longest:
            return None
        text = (
            f"max_num_batched_tokens is {tokens:.0f}; sequences have up to {longest:.0f} tokens, "
            "and chunked prefill is off."
        )
        return ConfigFault("critical", text)
