"""Tokens that the policy did not write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class MaskEnvironmentTokens(Remedy):
    """Leave tokens of tools and environments out of the loss.

    What it does:
        Tool results and user turns inside a response were not sampled from the policy. With them in
        the loss, the policy learns to write them, ratios are far from 1, and entropy and KL
        describe text that it never produced.

    When it applies:
        Multi-turn or tool runs whose mismatch or loss is large from the first step, or whose loss
        has more tokens than were generated.

    What it costs:
        Nothing, except for the mask itself, which must follow every edit of the conversation.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: the loss contains exactly the generated tokens, and the ratio before the first
        update is 1.

    References:
        Search-R1, arXiv 2503.09516 (masking retrieved tokens).
    """

    id = "mask-environment-tokens"
    title = "Mask tool and environment tokens"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("mismatch/first_ratio_off", "down")
    more_targets = (Criterion("optimizer/loss_tokens", "down"),)
    paper = "Search-R1, arXiv 2503.09516"
    how = (
        "Print one multi-turn response with its loss mask. Only tokens that the sampler generated"
        " may be 1. Build the mask from token ids, not by tokenizing the text again."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"mask_tool_tokens": True}
