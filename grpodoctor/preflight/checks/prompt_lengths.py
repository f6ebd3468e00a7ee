"""DAT106."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient

_SHOWN = 5


class PromptLengths(Check):
    """Prompts leave no room for responses.

    What it sees:
        Prompts whose tokens, with the longest response, are more than the model's context, or than
        the sampler's (max_model_len) where that is less.

    Why it matters:
        Engines refuse them, trainers cut them from the left or drop them silently: the question is
        gone and the reward is noise.

    What to do:
        Filter them, or allow fewer tokens a response.

    When it is wrong:
        A context that was extended by settings which only the engine knows is not in config.json.

    References:
        None.
    """

    code: ClassVar[str] = "DAT106"
    name: ClassVar[str] = "prompts-too-long"
    summary: ClassVar[str] = "Prompts leave no room for responses."

    def examine(self, patient: Patient) -> Outcome:
        """Measure every prompt in tokens."""
        if not patient.rows:
            return Skipped("no prompts were given", "give --prompts")
        if patient.context is None:
            return Skipped("config.json does not say how long a sequence may be")
        lengths = np.array([len(patient.render(row)) for row in patient.rows])
        room = patient.context - patient.plan.max_tokens
        long = np.flatnonzero(lengths > room)
        if not long.size:
            return ()
        share = long.size / lengths.size
        return (
            Remark(
                "critical" if share > 0.5 or room <= 0 else "warning",
                f"{long.size} of {lengths.size} prompts are longer than the {max(room, 0)} tokens "
                f"that {patient.plan.max_tokens} tokens of response leave of {patient.context}",
                ("leave them out, or allow fewer tokens a response",),
                tuple(
                    f"{patient.rows[index].place}: {lengths[index]} tokens"
                    for index in long[:_SHOWN]
                ),
                {
                    "share": share,
                    "longest": float(lengths.max()),
                    "median": float(np.median(lengths)),
                },
            ),
        )
