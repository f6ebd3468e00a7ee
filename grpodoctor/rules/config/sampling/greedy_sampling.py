"""CFG022."""

from __future__ import annotations

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class GreedySampling(ConfigRule):
    """Sampling is greedy, so the responses of a group are identical.

    What it sees:
        A temperature of 0 or below 0.3, or sampling switched off.

    Why it matters:
        Greedy decoding gives every response of a group the same text and the same reward, so no
        group has variance and nothing is learned. Nearly greedy sampling gives almost the same.

    Evidence it needs:
        Settings: `group_size`. One of `greedy_sampling` and `temperature`.

    Remedies:
        Sample at a temperature of 1; keep greedy decoding for evaluation.

    When it is wrong:
        In a config that does not separate training from evaluation, the setting may belong to
        evaluation.

    References:
        DeepSeek-R1, arXiv 2501.12948 (sampling at 0.6 and above).
    """

    code = "CFG022"
    name = "greedy-sampling"
    explains = ("equal-rewards", "diversity-loss")
    summary = "Training responses are sampled greedily or almost greedily."
    condition = "equal-rewards"
    needs = ("group_size",)
    remedies = ("raise-temperature",)
    references = ("arXiv 2501.12948",)

    lowest: float = 0.3
    """Half the lowest temperature in common recipes, 0.6."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a temperature at which responses hardly differ."""
        if settings.get("greedy_sampling") is True:
            return ConfigFault(
                "critical", "Training responses are sampled greedily, at temperature 0."
            )
        temperature = settings.number("temperature")
        if temperature is None or temperature >= self.lowest:
            return None
        text = f"A sampling temperature of {temperature:g} gives a group almost equal responses."
        return ConfigFault("warning", text)
