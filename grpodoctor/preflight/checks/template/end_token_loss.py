"""DAT104."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.support.numbers import part_of

_ORDINARY = re.compile(r"\s*(?:[^\W_]+|[.,;:!?'\"()+*/=$%&#@-]+)\s*|\s+")
"""Words, numbers, signs and white space. Real padding tokens have brackets around them."""


class EndTokenLoss(Check):
    """The EOS token may be missing from the loss.

    What it sees:
        The padding token equals the token that ends an answer: the one that the chat template
        writes, or without a template the tokenizer's EOS token, or the last token of sampled
        responses. Or finished responses come from the engine without their end token.

    Why it matters:
        A trainer that masks the loss by the padding id masks the end of every response too. Nothing
        then teaches the model when to stop: lengths grow or stay at the limit, whatever the reward.
        An engine that drops the end token has the same effect.

    What to do:
        Give padding its own token, or use a trainer that builds its mask from lengths. Have the
        engine return the stop token; vLLM does, unless a stop string ended the response.

    When it is wrong:
        Most current trainers mask by lengths, and a shared token is then harmless. The finding is
        therefore a warning, not critical. Padding that equals another end token, with which answers
        do not end, is not reported (Qwen's chat models).

    References:
        MemGen issue 33: padding that equals the end token removed every token from the loss.
    """

    code: ClassVar[str] = "DAT104"
    name: ClassVar[str] = "eos-masked-from-loss"
    former_names: ClassVar[tuple[str, ...]] = ("end-token-without-loss",)
    summary: ClassVar[str] = "The EOS token may be missing from the loss."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare padding with the end tokens, and check how sampled responses end."""
        return (*_padding_is_end_token(context), *_dropped_end_tokens(context))


def _padding_is_end_token(context: PreflightContext) -> Iterator[CheckFinding]:
    pad = context.tokenizer.pad_token_id
    if pad is None:
        yield CheckFinding(
            "info",
            "The tokenizer has no padding token; trainers then pad with the EOS token.",
            ("Set pad_token to a token that responses do not contain.",),
        )
        return
    text = context.decoded(pad)
    if text and _ORDINARY.fullmatch(text):
        yield CheckFinding(
            "warning",
            f"The padding token {context.describe_token(pad)} is ordinary text: masks by padding "
            "id drop it wherever it occurs.",
            ("Set pad_token to a special token that responses do not contain.",),
        )
        return
    share = _share_ending_with(context, pad)
    if share or pad == context.rendered_end_token:
        affected = "every response" if share is None else f"{share:.0%} of sampled responses"
        yield CheckFinding(
            "warning",
            f"The padding token is the EOS token {context.describe_token(pad)}: masks by padding "
            f"id drop the end of {affected}.",
            (
                "Set pad_token to a token that responses do not contain.",
                "Or check that your trainer builds its mask from lengths.",
            ),
        )


def _share_ending_with(context: PreflightContext, token: int) -> float | None:
    """Share of finished responses that end with a token; None without responses."""
    responses = context.sampler.responses() if context.sampler else []
    finished = [response for response in responses if response.ended and response.ids]
    if not finished:
        return None
    return sum(response.ids[-1] == token for response in finished) / len(finished)


def _dropped_end_tokens(context: PreflightContext) -> Iterator[CheckFinding]:
    if context.sampler is None:
        return
    finished = [response for response in context.sampler.responses() if response.ended]
    dropped = [
        response
        for response in finished
        if not response.ids or response.ids[-1] not in context.end_tokens
    ]
    if finished and dropped:
        yield CheckFinding(
            "critical",
            f"{part_of(len(dropped), len(finished), 'finished responses', 'have')} "
            "no end token, so it gets "
            "no loss.",
            ("Have the engine return the token at which it stopped.",),
            figures={"share": len(dropped) / len(finished)},
        )
