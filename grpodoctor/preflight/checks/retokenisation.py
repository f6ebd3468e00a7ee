"""DAT102."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient

_SHOWN = 3
_MOST_ROWS = 512


class Retokenisation(Check):
    """Text that is turned into tokens again becomes other tokens.

    What it sees:
        Responses that were sampled from the engine are decoded and encoded again; the share whose
        ids are others then. Without an engine, the answers and prompts of the data are encoded,
        decoded and encoded.

    Why it matters:
        A trainer that gets text from its engine, or that renders a conversation anew for the next
        turn, computes its gradients on tokens that nobody sampled. Their log-probabilities are far
        off, and only for a few sequences, so that a batch's mean does not show it.

    What to do:
        Pass token ids from the engine to the learner, and keep them through all turns.

    When it is wrong:
        It does not know whether your trainer passes ids. If it does, this is harmless.

    References:
        vLLM's and verl's discussions of token-in, token-out rollouts.
    """

    code: ClassVar[str] = "DAT102"
    name: ClassVar[str] = "retokenisation-differs"
    summary: ClassVar[str] = "Text that is turned into tokens again becomes other tokens."
    many: ClassVar[float] = 0.01
    """Share of responses from which on it is a warning: of 64 x 8 responses five are then wrong in
    every batch."""

    def examine(self, patient: Patient) -> Outcome:
        """Decode and encode again."""
        tokenizer = patient.tokenizer
        kind = "sampled responses" if patient.bench else "prompts and answers"
        total, others = 0, []
        for ids in self._sequences(patient):
            again = tokenizer(tokenizer.decode(ids), add_special_tokens=False)["input_ids"]
            total += 1
            if list(again) != ids:
                others.append(ids)
        if not total:
            return Skipped("there is no text to tokenise", "give --prompts, better --sampler too")
        if not others:
            return ()
        share = len(others) / total
        shown = tuple(repr(tokenizer.decode(ids))[:200] for ids in others[:_SHOWN])
        return (
            Remark(
                "warning" if share >= self.many else "info",
                f"{share:.1%} of {total} {kind} become other tokens when their text is encoded",
                ("pass token ids, not text, from the engine to the learner",),
                shown,
                {"share": share},
            ),
        )

    def _sequences(self, patient: Patient) -> Iterator[list[int]]:
        if patient.bench:
            for response in patient.bench.responses():
                ids = [token for token in response.ids if token not in patient.ends]
                if ids:
                    yield ids
            return
        for row in patient.rows[:_MOST_ROWS]:
            for text in (row.prompt, row.answer):
                if text:
                    yield list(patient.tokenizer(text, add_special_tokens=False)["input_ids"])
