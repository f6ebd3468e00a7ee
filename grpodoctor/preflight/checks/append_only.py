"""DAT101."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from grpodoctor.errors import ModelError
from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient, ids_of, text_of

_TURNS: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "<think>\nTwo and three.\n</think>\n\nIt is 5."},
    {"role": "user", "content": "And 4 + 4?"},
)
_BEGINNINGS = ("<think>", "Two and three", "It is 5")
"""With which the rendered answer may begin: some templates write thoughts in their own way."""
_OPENED = re.compile(r"\s*<\|?think\w*\|?>\s*")
_SHOWN = 12


class AppendOnlyTemplate(Check):
    """The chat template writes earlier turns anew when a later one comes.

    What it sees:
        A conversation of two questions is rendered turn by turn. The ids of the shorter one are not
        the beginning of the ids of the longer one; or what the model is asked to go on from is not
        the beginning of what a finished answer is rendered as; or nothing asks it to answer: the
        template has no generation prompt, and answers have a head.

    Why it matters:
        The engine samples after one sequence of tokens and the learner computes gradients on
        another. In training over several turns every turn but the last is then off-policy, and log
        probabilities of the two sides differ for a reason that no precision explains. Templates
        that drop the thoughts of earlier turns do it on purpose, for inference. Without a
        generation prompt the model goes on with the question, or has to write the head itself.

    What to do:
        Train on token ids as they were sampled and never render a conversation again; or use a
        template that only appends. A run of single turns is not concerned by what happens to
        earlier turns: there it is a note. Mend a template without a generation prompt.

    When it is wrong:
        Some templates refuse conversations of this shape. What is not rendered is not judged.

    References:
        TRL's documentation of chat templates for training calls such a template prefix-preserving.
    """

    code: ClassVar[str] = "DAT101"
    name: ClassVar[str] = "template-not-append-only"
    summary: ClassVar[str] = "The chat template writes earlier turns anew when a later one comes."

    def examine(self, patient: Patient) -> Outcome:
        """Render a conversation turn by turn."""
        if not patient.tokenizer.chat_template:
            return Skipped("the tokenizer has no chat template")
        several = any(
            message.get("role") == "assistant" for row in patient.rows for message in row.messages
        )
        remarks = [*_unasked(patient), *_answers(patient, several=several)]
        try:
            remarks += _second_turn(patient, several=several)
        except ModelError as error:
            return remarks or Skipped(f"only one question could be rendered: {error.what}")
        return remarks


def _unasked(patient: Patient) -> Iterator[Remark]:
    """Whether the template asks the model to answer."""
    bare, asked = (text_of(patient.tokenizer, _TURNS[:1], generation=on) for on in (False, True))
    after = text_of(patient.tokenizer, _TURNS[:2])[len(bare) :]
    places = [after.find(each) for each in _BEGINNINGS if each in after]
    head = after[: min(places)].strip() if places else ""
    if bare == asked and head:
        yield Remark(
            "critical",
            f"the template has no generation prompt: nothing tells the model that {head!r} comes "
            "next",
            ("write it at the end of chat_template, if add_generation_prompt",),
        )


def _answers(patient: Patient, *, several: bool) -> Iterator[Remark]:
    """Whether a finished answer begins as the model was asked to."""
    if told := _differs(patient, _TURNS[:1], _TURNS[:2], generation=True):
        asked = text_of(patient.tokenizer, _TURNS[:1], generation=True)
        bare = text_of(patient.tokenizer, _TURNS[:1])
        opened = asked.startswith(bare) and _OPENED.search(asked[len(bare) :])
        harmless = bool(opened) and not several
        yield Remark(
            "info" if harmless else "warning",
            "what the model is asked to go on from is not how a finished answer begins"
            + ("; the sampled ids of single turns do not suffer from it" if harmless else ""),
            ("train on the sampled token ids, and do not render the answer again",),
            told,
        )


def _second_turn(patient: Patient, *, several: bool) -> Iterator[Remark]:
    """Whether a second question leaves the first answer as it was."""
    if told := _differs(patient, _TURNS[:2], _TURNS, generation=False):
        yield Remark(
            "warning" if several else "info",
            "a second question changes how the first answer is rendered"
            + ("" if several else "; your prompts are single turns, so it does no harm"),
            ("train on the sampled token ids, or use a template that only appends",),
            told,
        )


def _differs(
    patient: Patient,
    shorter: tuple[dict[str, Any], ...],
    longer: tuple[dict[str, Any], ...],
    *,
    generation: bool,
) -> tuple[str, ...]:
    """What stands on the two sides where they part; empty if the longer one only appends."""
    short = ids_of(patient.tokenizer, shorter, generation=generation)
    long = ids_of(patient.tokenizer, longer)
    if long[: len(short)] == short:
        return ()
    at = next(
        (
            place
            for place, (one, other) in enumerate(zip(short, long, strict=False))
            if one != other
        ),
        min(len(short), len(long)),
    )
    decode = patient.tokenizer.decode
    return (
        f"they part at token {at}",
        f"before: {decode(short[at : at + _SHOWN])!r}",
        f"after: {decode(long[at : at + _SHOWN])!r}",
    )
