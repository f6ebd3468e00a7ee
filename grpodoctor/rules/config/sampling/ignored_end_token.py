"""CFG024."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class IgnoredEndToken(ConfigRule):
    """The sampler continues after the end token.

    What it sees:
        ignore_eos in the sampling of training responses.

    Why it matters:
        The option exists for benchmarks. Every response reaches the limit, the text after the end
        token is trained on, and rewards judge text that no user would see.

    Evidence it needs:
        Settings: `ignores_end_token`.

    Remedies:
        Switch off ignore_eos (`check-end-token`).

    When it is wrong:
        A speed benchmark without training.

    References:
        vLLM and SGLang, sampling parameter ignore_eos.
    """

    code = "CFG024"
    name = "ignored-end-token"
    explains = ("no-end-token", "truncation")
    summary = "The sampler ignores the end token."
    condition = "no-end-token"
    needs = ("ignores_end_token",)
    remedies = ("check-end-token",)
    references = ("docs.vllm.ai/en/latest/api/vllm/sampling_params.html",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the option."""
        if settings.get("ignores_end_token") is not True:
            return None
        return ConfigFault("critical", "The sampler ignores the end token (ignore_eos=True).")
