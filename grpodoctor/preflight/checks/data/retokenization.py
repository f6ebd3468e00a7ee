"""DAT102."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_SHOWN = 3
_MAX_ROWS = 512


class Retokenization(Check):
    """Decoding tokens and tokenizing the text again gives different tokens.

    What it sees:
        Decodes and encodes sampled responses, and reports the share whose token ids change. Without
        an engine, it encodes, decodes and encodes the prompts and answers of the data.

    Why it matters:
        A trainer that gets text from its engine, or renders a conversation again for the next turn,
        computes gradients on tokens that were never sampled. Their log-probabilities are far off,
        but only in a few sequences, so that the mean of a batch does not show it.

    What to do:
        Pass token ids from the engine to the learner, and keep them through all turns.

    When it is wrong:
        The check does not know whether your trainer passes token ids. If it does, the finding is
        harmless.

    References:
        vLLM's and verl's discussions of token-in, token-out rollouts.
    """

    code: ClassVar[str] = "DAT102"
    name: ClassVar[str] = "retokenization-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("retokenisation-differs",)
    summary: ClassVar[str] = "Decoding tokens and tokenizing the text again gives different tokens."
    warning_share: ClassVar[float] = 0.01
    """Share of responses from which the finding is a warning: five wrong responses in a batch of 64
    x 8."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Decode and encode again."""
        tokenizer = context.tokenizer
        kind = "sampled responses" if context.sampler else "prompts and answers"
        total, changed = 0, []
        for ids in self._sequences(context):
            encoded = tokenizer(tokenizer.decode(ids), add_special_tokens=False)["input_ids"]
            total += 1
            if list(encoded) != ids:
                changed.append(ids)
        if not total:
            return SkippedCheck(
                "there is no text to tokenize", "add --prompts, or better also --sampler"
            )
        if not changed:
            return ()
        share = len(changed) / total
        return (
            CheckFinding(
                "warning" if share >= self.warning_share else "info",
                f"{share:.1%} of {total} {kind} change when decoded and tokenized again.",
                ("Pass token ids, not text, from the engine to the learner.",),
                tuple(repr(tokenizer.decode(ids))[:200] for ids in changed[:_SHOWN]),
                {"share": share},
            ),
        )

    def _sequences(self, context: PreflightContext) -> Iterator[list[int]]:
        if context.sampler:
            for response in context.sampler.responses():
                ids = [token for token in response.ids if token not in context.end_tokens]
                if ids:
                    yield ids
            return
        for row in context.rows[:_MAX_ROWS]:
            for text in (row.prompt, row.answer):
                if text:
                    yield list(context.tokenizer(text, add_special_tokens=False)["input_ids"])
