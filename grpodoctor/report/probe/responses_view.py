"""The responses on which two engines differ most, token by token."""

from __future__ import annotations

import math

from grpodoctor.probe.results.results import WorstResponse
from grpodoctor.report.probe.phrases import format_small
from grpodoctor.report.view import Response, Token
from grpodoctor.support.safe_text import plain

_MAX_TOKENS = 400
"""Tokens shown of a response, around the worst one."""
_MAX_TOKEN_LETTERS = 80
_MAX_PROMPT_LETTERS = 600
_VISIBLE_GAP = 0.01
"""Smaller gaps would be marked too faintly to see."""
_FULL_HEAT = 0.05
"""Smallest maximum of a response at which a token is marked in full color."""
_WORST_HEAT = 0.2
"""The worst token is marked at least this strongly."""


def response(worst: WorstResponse) -> Response:
    """One response with its worst token marked."""
    first = max(0, worst.at - _MAX_TOKENS // 2)
    last = min(len(worst.ids), first + _MAX_TOKENS)
    texts = worst.token_texts or tuple(f"{token} " for token in worst.ids)
    return Response(
        title=f"prompt {worst.prompt}, sample {worst.sample}",
        facts=(
            f"largest |Δp| {format_small(worst.prob_diff_max)} at token {worst.at} "
            f"({_logprobs(worst, worst.at)}), mean |Δlogp| {format_small(worst.logprob_diff_mean)}"
        ),
        prompt=plain(worst.prompt_text, limit=_MAX_PROMPT_LETTERS, lines=True),
        tokens=tuple(_token(worst, texts[place], place) for place in range(first, last)),
        cut_before=first > 0,
        cut_after=last < len(worst.ids),
    )


def _logprobs(worst: WorstResponse, place: int) -> str:
    sampler, learner = worst.sampler_logprobs[place], worst.learner_logprobs[place]
    return f"sampler {sampler:.3f}, learner {learner:.3f} nats"


def _token(worst: WorstResponse, text: str, place: int) -> Token:
    sampler, learner = worst.sampler_logprobs[place], worst.learner_logprobs[place]
    finite = math.isfinite(sampler) and math.isfinite(learner)
    gap = abs(math.exp(min(sampler, 0.0)) - math.exp(min(learner, 0.0))) if finite else 1.0
    is_worst = place == worst.at
    heat = 0.0
    if gap >= _VISIBLE_GAP or is_worst:
        share = min(1.0, gap / max(worst.prob_diff_max, _FULL_HEAT))
        heat = max(share, _WORST_HEAT * is_worst)
    return Token(
        plain(text, limit=_MAX_TOKEN_LETTERS, lines=True),
        heat=heat,
        title=_logprobs(worst, place),
        worst=is_worst,
    )
