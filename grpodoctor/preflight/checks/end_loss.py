"""DAT104."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.context import Patient


class EndTokenWithoutLoss(Check):
    """The token that ends a response may bear no loss.

    What it sees:
        The padding token is the one with which an answer ends: the chat template's, or without a
        template the tokenizer's, or the last of sampled responses. Or the responses that the engine
        ended by itself come without the token that ended them.

    Why it matters:
        A trainer that masks by the padding's id masks the end of every response as well. Nothing
        then teaches the model when to stop: lengths grow or stay at the limit, however the reward
        is shaped. An engine that withholds the end token has the same effect.

    What to do:
        Give padding a token of its own, or a trainer that builds its mask from lengths; have the
        engine return the stop token (vLLM does, unless it was stopped by a text).

    When it is wrong:
        Most trainers of today mask by lengths, and then a shared token is harmless: that is why it
        is a warning and not critical. Padding that is another of several end tokens, which answers
        do not end with, is not told (Qwen's chat models).

    References:
        MemGen issue 33: padding that equals the end token removed every token from the loss.
    """

    code: ClassVar[str] = "DAT104"
    name: ClassVar[str] = "end-token-without-loss"
    summary: ClassVar[str] = "The token that ends a response may bear no loss."

    def examine(self, patient: Patient) -> Outcome:
        """Compare padding with the ends, and look at how sampled responses end."""
        return (*self._padding(patient), *self._withheld(patient))

    def _padding(self, patient: Patient) -> Iterator[Remark]:
        pad = patient.tokenizer.pad_token_id
        if pad is None:
            yield Remark(
                "info",
                "the tokenizer has no padding token; trainers then take the end token for it",
                ("set pad_token to a token that responses do not contain",),
            )
            return
        share = self._ending_with(patient, pad)
        if share or pad == patient.written_end:
            which = "every response" if share is None else f"{share:.0%} of the sampled responses"
            yield Remark(
                "warning",
                f"padding is the end token {patient.shown(pad)}: a mask made from the padding's id "
                f"takes the end of {which} out of the loss",
                (
                    "set pad_token to a token that responses do not contain",
                    "or make sure that your trainer's mask is made from lengths",
                ),
            )

    def _ending_with(self, patient: Patient, token: int) -> float | None:
        """Share of finished responses with this last token; None without any."""
        drawn = patient.bench.responses() if patient.bench else []
        ended = [response for response in drawn if response.ended and response.ids]
        return sum(each.ids[-1] == token for each in ended) / len(ended) if ended else None

    def _withheld(self, patient: Patient) -> Iterator[Remark]:
        if patient.bench is None:
            return
        ended = [response for response in patient.bench.responses() if response.ended]
        without = [each for each in ended if not each.ids or each.ids[-1] not in patient.ends]
        if ended and without:
            yield Remark(
                "critical",
                f"{len(without)} of {len(ended)} responses that ended by themselves come without "
                "an end token: it will bear no loss",
                ("have the engine return the token that it stopped at",),
                figures={"share": len(without) / len(ended)},
            )
