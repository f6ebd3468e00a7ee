"""DAT106."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.data.missing_media import has_medium, reads_media
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_SHOWN = 5
_PICTURE_TOKENS = ("image_seq_length", "mm_tokens_per_image")
"""Keys of config.json with the number of tokens of a picture."""
_WORDS = re.compile(
    r"\b(?:at least|more than|no (?:fewer|less) than|not (?:fewer|less) than|minimum of|exactly|"
    r"about|around|approximately|roughly) (\d{1,3},\d{3}|\d{2,5})[ -]words?\b|"
    r"\b(?:an?|one) (\d{1,3},\d{3}|\d{2,5})[ -]words? (?:\w+ )?(?:essay|text|story|article|report|"
    r"letter|summary|answer|response)\b",
    re.IGNORECASE,
)
"""The length that a prompt asks for."""


def asked_words(text: str) -> int:
    """Words that a prompt asks for; 0 if it does not say."""
    counts = (next(filter(None, match.groups())) for match in _WORDS.finditer(text))
    return max((int(count.replace(",", "")) for count in counts), default=0)


class PromptLengths(Check):
    """Prompts leave no room for responses.

    What it sees:
        Prompts whose tokens, together with a response of maximum length, exceed the model's context
        length, or the engine's (max_model_len) if that is smaller. Also prompts beyond the longest
        one that the run's config allows (--run-config), which trainers cut or drop. Also prompts
        that ask for more words ("at least 400 words") than the config's limit of a response allows,
        and prompts with a picture whose tokens the config's longest prompt does not hold.

    Why it matters:
        Engines refuse such prompts. Trainers truncate them from the left or drop them silently: the
        question is gone and the reward is noise.

    What to do:
        Filter them, or allow fewer tokens per response.

    When it is wrong:
        Engine settings may extend the context beyond the length in config.json. Small pictures
        may have fewer tokens than is assumed.

    References:
        None.
    """

    code: ClassVar[str] = "DAT106"
    name: ClassVar[str] = "prompts-too-long"
    summary: ClassVar[str] = "Prompts leave no room for responses."
    tokens_per_word: ClassVar[float] = 1.2
    """Tokens of an English word, at least; other languages need more."""
    tokens_of_picture: ClassVar[int] = 256
    """Tokens of a picture of 448 x 448 pixels with patches of 28 x 28, unless config.json says how
    many there are."""
    min_share: ClassVar[float] = 0.05
    """Share of the prompts that must ask for so many words."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count the tokens of every prompt."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        asked = tuple(self._asked_lengths(context))
        if asked and context.files is None:
            return asked
        if context.context_length is None and context.max_prompt_length is None:
            return asked or SkippedCheck("config.json does not give the maximum sequence length")
        lengths = np.array([len(context.render(row)) for row in context.rows])
        return (
            *asked,
            *self._beyond_limit(context, lengths),
            *self._pictures(context, lengths),
            *self._without_room(context, lengths),
        )

    def _asked_lengths(self, context: PreflightContext) -> Iterator[CheckFinding]:
        """Prompts that ask for more words than the config's limit of a response has tokens."""
        limit = context.max_length
        if limit is None:
            return
        asked = [asked_words("\n".join(row.texts())) for row in context.rows]
        beyond = [at for at, words in enumerate(asked) if words * self.tokens_per_word > limit]
        if len(beyond) > self.min_share * len(asked):
            most = max(asked)
            yield CheckFinding(
                "warning",
                f"{part_of(len(beyond), len(asked), 'prompts', 'ask')} "
                f"for up to {most} words; responses end "
                f"at {limit} tokens.",
                (
                    f"Allow at least {round(2 * most, -2)} tokens per response, or ask for fewer "
                    "words.",
                ),
                tuple(f"{context.rows[at].location}: {asked[at]} words" for at in beyond[:_SHOWN]),
                {"words": float(most), "limit": float(limit)},
            )

    def _beyond_limit(
        self, context: PreflightContext, lengths: NDArray[np.int_]
    ) -> Iterator[CheckFinding]:
        """Prompts that the trainer cuts or drops."""
        limit = context.max_prompt_length
        too_long = np.flatnonzero(lengths > limit) if limit is not None else np.array([], int)
        if too_long.size:
            share = too_long.size / lengths.size
            yield CheckFinding(
                "critical" if share > 0.5 else "warning",
                f"{part_of(too_long.size, lengths.size, 'prompts', 'exceed')} "
                "the config's longest prompt of "
                f"{limit} tokens.",
                (f"Allow prompts of {lengths.max()} tokens, or leave these out.",),
                _shown(context, lengths, too_long),
                {"share": share, "longest": float(lengths.max())},
            )

    def _pictures(
        self, context: PreflightContext, lengths: NDArray[np.int_]
    ) -> Iterator[CheckFinding]:
        """Pictures, of which a rendered prompt contains only the places, and their tokens."""
        limit = context.max_prompt_length
        if limit is None or context.files is None or not reads_media(context):
            return
        pictures = np.array([has_medium(row) for row in context.rows])
        each = next(
            filter(None, map(context.config_count, _PICTURE_TOKENS)), self.tokens_of_picture
        )
        needed = int(np.median(lengths[pictures])) + each if pictures.any() else 0
        if pictures.mean() > self.min_share and needed > limit:
            yield CheckFinding(
                "warning",
                f"A prompt with a picture needs about {needed} tokens; the config's longest prompt "
                f"has {limit}.",
                (
                    f"Allow prompts of {2 * needed} tokens, or no limit: a trainer that cuts the "
                    "prompt removes tokens of the picture.",
                ),
                (f"tokens of a picture: {each}", f"median text: {needed - each} tokens"),
                {"needed": float(needed), "limit": float(limit)},
            )

    def _without_room(
        self, context: PreflightContext, lengths: NDArray[np.int_]
    ) -> Iterator[CheckFinding]:
        """Prompts after which the context has no room for a whole response."""
        if context.context_length is None:
            return
        room = context.context_length - context.settings.max_tokens
        too_long = np.flatnonzero(lengths > room)
        if too_long.size:
            share = too_long.size / lengths.size
            yield CheckFinding(
                "critical" if share > 0.5 or room <= 0 else "warning",
                f"{part_of(too_long.size, lengths.size, 'prompts', 'exceed')} "
                f"the {max(room, 0)} tokens left "
                f"by responses of {context.settings.max_tokens}.",
                ("Leave them out, or allow fewer tokens per response.",),
                (
                    *_shown(context, lengths, too_long),
                    f"context length: {context.context_length} tokens",
                ),
                {
                    "share": share,
                    "longest": float(lengths.max()),
                    "median": float(np.median(lengths)),
                },
            )


def _shown(
    context: PreflightContext, lengths: NDArray[np.int_], indices: NDArray[np.intp]
) -> tuple[str, ...]:
    """The places and lengths of some prompts."""
    return tuple(
        f"{context.rows[index].location}: {lengths[index]} tokens" for index in indices[:_SHOWN]
    )
