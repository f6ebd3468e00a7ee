"""DAT105."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.patient import Patient


class DoubledBegin(Check):
    """A prompt that is rendered and then tokenised begins with two tokens of beginning.

    What it sees:
        The chat template writes the token that begins a sequence, and the tokenizer adds one more
        to any text it is given.

    Why it matters:
        Whoever renders to text and tokenises that text (many engines' text interfaces do) gets one
        token more than whoever renders to ids. The two sides then score after different prompts.

    What to do:
        Tokenise rendered text with `add_special_tokens=False`, or pass ids.

    When it is wrong:
        It is harmless where all sides do the same.

    References:
        transformers' documentation of chat templates, section on special tokens.
    """

    code: ClassVar[str] = "DAT105"
    name: ClassVar[str] = "doubled-begin-token"
    summary: ClassVar[str] = "A rendered prompt that is tokenised as text begins twice."

    def examine(self, patient: Patient) -> Outcome:
        """Render the first prompt to ids and to text, and tokenise the text."""
        begin = patient.tokenizer.bos_token_id
        if not patient.tokenizer.chat_template or not patient.rows:
            return Skipped("the tokenizer has no chat template")
        if begin is None:
            return ()
        rendered = patient.render(patient.rows[0])
        text = patient.tokenizer.decode(rendered)
        again = list(patient.tokenizer(text)["input_ids"])
        if rendered[:1] != [begin] or again[:2] != [begin, begin]:
            return ()
        return (
            Remark(
                "warning",
                f"the template writes {patient.shown(begin)} and the tokenizer adds another: who "
                "tokenises the rendered text sees other prompts than who renders to ids",
                ("tokenise rendered text with add_special_tokens=False, or pass ids",),
            ),
        )
