"""REW109."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_MAX_ROWS = 32
_SHOWN = 3
_LOST = 0.1
"""Part of the reward that counts as lost."""


class DecodedResponses(Check):
    """Right responses lose their reward when the tokenizer encodes and decodes them.

    What it sees:
        Rewarded responses, encoded and decoded as trainers and engines do, without special tokens.
        Reports if they lose reward by it.

    Why it matters:
        The reward function sees decoded responses. Tags that are special tokens are left out of
        them (`skip_special_tokens`), and characters that the tokenizer changes are other ones: the
        model can write the right answer, and earns nothing.

    What to do:
        Add tags as ordinary tokens (`special=False`), or decode with `skip_special_tokens=False`.
        Use the model's own tokenizer.

    When it is wrong:
        The trainer keeps special tokens in the text that it scores.

    References:
        vLLM, SamplingParams.skip_special_tokens (true by default).
    """

    code: ClassVar[str] = "REW109"
    name: ClassVar[str] = "reward-lost-by-decoding"
    summary: ClassVar[str] = "Right responses lose their reward by the tokenizer."
    min_share: ClassVar[float] = 0.05
    """Share of right responses that lose reward, from which the check reports."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Encode and decode rewarded responses, and score them again."""
        usable = context.rewarded_answers()
        if isinstance(usable, SkippedCheck):
            return usable
        reward, answers = usable
        chosen = [at for at, missed in enumerate(answers.missed) if not missed][:_MAX_ROWS]
        whole = [format_answer(answers.answer_format, answers.answers[at]) for at in chosen]
        decoded = [_decoded(context, text) for text in whole]
        changed = [
            place for place, text in enumerate(decoded) if text.strip() != whole[place].strip()
        ]
        if not changed:
            return ()
        rows = [chosen[place] for place in changed]
        try:
            rewards = reward(
                [answers.rows[at] for at in rows], [decoded[place] for place in changed]
            ).total
        except DataError:  # REW103 reports it
            return ()
        parts = answers.lost_parts(rows, rewards)
        lost = sum(part > _LOST for part in parts)
        if lost < self.min_share * len(chosen):
            return ()
        return (
            CheckFinding(
                "critical",
                f"{part_of(lost, len(chosen), 'right responses', 'lose')} "
                "the reward when the tokenizer "
                "encodes and decodes them without special tokens.",
                ("Add the tags as ordinary tokens, or decode with skip_special_tokens=False.",),
                tuple(
                    f"{whole[place][:100]!r} becomes {decoded[place][:100]!r}"
                    for place in changed[:_SHOWN]
                ),
                {"share": lost / len(chosen)},
            ),
        )


def _decoded(context: PreflightContext, text: str) -> str:
    ids = context.tokenizer(text, add_special_tokens=False)["input_ids"]
    return str(context.tokenizer.decode(ids, skip_special_tokens=True))
