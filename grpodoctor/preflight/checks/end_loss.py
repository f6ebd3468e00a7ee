"""DAT104."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.patient import Patient


class EndTokenWithoutLoss(Check):
    """The token that ends a response may bear no loss.

    What it sees:
        The padding token is an end token; or the responses that the engine ended by itself come
        without the token that ended them.

    Why it matters:
        A trainer that masks by the padding's id masks the end of every response as well. Nothing
        then teaches the model when to stop: lengths grow or stay at the limit, however the reward
        is shaped. An engine that withholds the end token has the same effect.

    What to do:
        Give padding a token of its own, or a trainer that builds its mask from lengths; have the
        engine return the stop token (vLLM does, unless it was stopped by a text).

    When it is wrong:
        Most trainers of today mask by lengths, and then a shared token is harmless: that is why it
        is a warning and not critical.

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
        elif pad in patient.ends:
            yield Remark(
                "warning",
                f"padding is the end token {patient.shown(pad)}: a mask made from the padding's id "
                "takes the end of every response out of the loss",
                (
                    "set pad_token to a token that responses do not contain",
                    "or make sure that your trainer's mask is made from lengths",
                ),
            )

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
