"""DAT105."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient, Row, text_of

_MOST_ROWS = 2000
_SHOWN = 5


class DoubledBegin(Check):
    """Prompts begin twice, or are rendered twice.

    What it sees:
        Prompts whose ids begin with two tokens of beginning; prompts in which tokens of the
        template's stand already, so that it is written around a prompt that was rendered before.
        And, as a note, that the template writes the token of beginning while the tokenizer adds one
        to any text: whoever tokenises rendered text gets two.

    Why it matters:
        A model has never seen two beginnings, or a conversation within a question. Whoever renders
        to text and tokenises that text (many engines' text interfaces do) gets one token more than
        whoever renders to ids, and the two sides score after different prompts.

    What to do:
        Keep prompts as they are before the template; tokenise rendered text with
        `add_special_tokens=False`, or pass ids.

    When it is wrong:
        Prompts that speak of such tokens on purpose. The note is harmless where all sides do the
        same, as with most models of the Llama and Gemma families.

    References:
        transformers' documentation of chat templates, section on special tokens.
    """

    code: ClassVar[str] = "DAT105"
    name: ClassVar[str] = "doubled-begin-token"
    summary: ClassVar[str] = "Prompts begin twice, or are rendered twice."

    def examine(self, patient: Patient) -> Outcome:
        """Look at the beginning of each prompt, and for marks of the template within it."""
        rows = patient.rows[:_MOST_ROWS]
        if not rows:
            return Skipped("no prompts were given", "give --prompts")
        return (*self._begun(patient, rows), *self._rendered(patient, rows), *_hazard(patient))

    def _begun(self, patient: Patient, rows: Sequence[Row]) -> Iterator[Remark]:
        begin = patient.tokenizer.bos_token_id
        twice = [row for row in rows if patient.render(row)[:2] == [begin, begin]]
        if begin is not None and twice:
            yield Remark(
                "critical",
                f"{len(twice)} of {len(rows)} prompts begin with {patient.shown(begin)} twice",
                ("take it out of the prompts, or out of the template",),
                tuple(row.place for row in twice[:_SHOWN]),
            )

    def _rendered(self, patient: Patient, rows: Sequence[Row]) -> Iterator[Remark]:
        """Prompts that hold what the template writes at the beginning of a turn."""
        if not patient.tokenizer.chat_template:
            return
        frame = text_of(patient.tokenizer, [{"role": "user", "content": ""}])
        ids = patient.tokenizer(frame, add_special_tokens=False)["input_ids"]
        marks = {patient.token_text(each) for each in ids if each in patient.specials} - {None}
        found = [
            row.place
            for row in rows
            if any(
                str(mark) in str(each["content"]) for each in row.conversation() for mark in marks
            )
        ]
        if found:
            yield Remark(
                "warning",
                f"{len(found)} of {len(rows)} prompts hold tokens of the chat template: they are "
                "rendered already, and will be once more",
                ("give prompts without the template, as text or messages",),
                tuple(found[:_SHOWN]),
                {"share": len(found) / len(rows)},
            )


def _hazard(patient: Patient) -> Iterator[Remark]:
    """Who tokenises rendered text sees two beginnings."""
    begin = patient.tokenizer.bos_token_id
    if begin is None or not patient.tokenizer.chat_template:
        return
    text = text_of(patient.tokenizer, patient.rows[0].conversation(), generation=True)
    if list(patient.tokenizer(text)["input_ids"])[:2] == [begin, begin]:
        yield Remark(
            "info",
            f"the template writes {patient.shown(begin)} and the tokenizer adds another to any "
            "text: who tokenises rendered prompts sees others than who renders to ids",
            ("tokenise rendered text with add_special_tokens=False, or pass ids",),
        )
