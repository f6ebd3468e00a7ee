"""CFG024."""

from __future__ import annotations

from grpodoctor.rules.base import RuleResult
from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import NotApplicable


class IgnoredEndToken(ConfigRule):
    """The sampler continues after the end token, or forbids it in the first tokens.

    What it sees:
        ignore_eos in the sampling of training responses, or a least length (min_tokens,
        min_new_tokens) of a quarter of the longest or more.

    Why it matters:
        The options exist for benchmarks. Every response reaches the limit or the least length, the
        text after the end token is trained on, and rewards judge text that no user would see. The
        loss does not know that the end token was forbidden.

    Evidence it needs:
        Settings: one of `ignores_end_token` and `least_length`. Optional: `max_length`.

    Remedies:
        Switch off ignore_eos or the least length (`check-end-token`).

    When it is wrong:
        A speed benchmark without training. A least length of a few tokens only forbids empty
        responses.

    References:
        vLLM and SGLang, sampling parameters ignore_eos and min_tokens.
    """

    code = "CFG024"
    name = "ignored-end-token"
    explains = ("no-end-token", "truncation")
    summary = "The sampler ignores the end token."
    condition = "no-end-token"
    needs = ()
    remedies = ("check-end-token",)
    references = ("docs.vllm.ai/en/latest/api/vllm/sampling_params.html",)

    long_share: float = 0.25
    """Share of the length limit from which a least length forbids answers that policies give."""

    def examine(self, chart: Chart) -> RuleResult:
        """Examine the configuration if it has one of the options."""
        known = chart.config.settings(chart.knobs).keys()
        if known & {"ignores_end_token", "least_length"}:
            return super().examine(chart)
        return NotApplicable("the config does not determine ignores_end_token")

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for the options."""
        if settings.get("ignores_end_token") is True:
            return ConfigFault("critical", "The sampler ignores the end token (ignore_eos=True).")
        least, limit = settings.number("least_length"), settings.number("max_length")
        if not least or not limit or least < self.long_share * limit:
            return None
        text = f"The sampler forbids the end token in the first {least:g} of {limit:g} tokens."
        return ConfigFault("warning", text)
