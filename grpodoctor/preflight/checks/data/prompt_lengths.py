"""DAT106."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_SHOWN = 5


class PromptLengths(Check):
    """Prompts leave no room for responses.

    What it sees:
        Prompts whose tokens, together with a response of maximum length, exceed the model's context
        length, or the engine's (max_model_len) if that is smaller. Also prompts beyond the longest
        one that the run's config allows (--run-config), which trainers cut or drop.

    Why it matters:
        Engines refuse such prompts. Trainers truncate them from the left or drop them silently: the
        question is gone and the reward is noise.

    What to do:
        Filter them, or allow fewer tokens per response.

    When it is wrong:
        Engine settings may extend the context beyond the length in config.json.

    References:
        None.
    """

    code: ClassVar[str] = "DAT106"
    name: ClassVar[str] = "prompts-too-long"
    summary: ClassVar[str] = "Prompts leave no room for responses."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count the tokens of every prompt."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        if context.context_length is None and context.max_prompt_length is None:
            return SkippedCheck("config.json does not give the maximum sequence length")
        lengths = np.array([len(context.render(row)) for row in context.rows])
        return (*self._beyond_limit(context, lengths), *self._without_room(context, lengths))

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
                f"{too_long.size} of {lengths.size} prompts exceed the config's longest prompt of "
                f"{limit} tokens.",
                (f"Allow prompts of {lengths.max()} tokens, or leave these out.",),
                _shown(context, lengths, too_long),
                {"share": share, "longest": float(lengths.max())},
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
                f"{too_long.size} of {lengths.size} prompts exceed the {max(room, 0)} tokens left "
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
