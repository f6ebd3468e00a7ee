"""CFG026."""

from __future__ import annotations

from math import inf

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class OverlongBuffer(ConfigRule):
    """The overlong punishment covers every response, or ends at the wrong length.

    What it sees:
        A buffer as long as the limit, or a punishment that reaches its maximum at another length
        than the limit.

    Why it matters:
        The punishment grows over the buffer before the limit. A buffer as long as the limit
        punishes every token of every response, so the policy learns to answer nothing. If the
        punishment's limit is above the generation limit, the full punishment is never reached; if
        it is below, responses are punished by more than 1.

    Evidence it needs:
        Settings: `overlong_buffer`, `max_length`. Optional: `punishment_limit` and `overlong`.

    Remedies:
        Set the buffer to a fifth of the limit, and the punishment's limit to the generation limit
        (`soft-overlong`).

    When it is wrong:
        A short buffer near a long limit is a choice. A limit that counts the prompt leaves less
        for the response, so a punishment of up to 2 is only a note.

    References:
        DAPO, arXiv 2503.14476, Eq. 13.
    """

    code = "CFG026"
    name = "overlong-buffer"
    summary = "The overlong punishment covers every response, or ends at the wrong length."
    needs = ("overlong_buffer", "max_length")
    remedies = ("soft-overlong",)
    references = ("arXiv 2503.14476",)

    harmful_punishment: float = 2.0
    """The range of rewards from -1 to 1: a larger punishment ranks a right answer below a wrong
    one."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare buffer, generation limit and punishment limit."""
        if "punishment" not in str(settings.get("overlong") or "punishment"):
            return None
        buffer, limit = (
            settings.amount("overlong_buffer"),
            settings.amount("max_length"),
        )
        complete = settings.number("punishment_limit")
        if buffer >= limit:
            text = (
                f"The overlong buffer of {buffer:.0f} tokens covers the whole limit of {limit:.0f}."
            )
            return ConfigFault("warning", text)
        if complete is None or complete == limit:
            return None
        text = f"The overlong punishment ends at {complete:.0f} tokens, the limit is {limit:.0f}."
        largest = (limit - (complete - buffer)) / buffer if buffer else inf
        is_harmful = not 1 <= largest <= self.harmful_punishment
        return ConfigFault("warning" if is_harmful else "info", text)
