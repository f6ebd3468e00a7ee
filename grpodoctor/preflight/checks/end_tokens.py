"""DAT103."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.context import Patient


class EndTokens(Check):
    """The end tokens that the model's files declare do not fit each other.

    What it sees:
        Tokenizer, config.json and generation_config.json each may declare end tokens. None does; or
        one is beyond the vocabulary, or no token of the tokenizer's; or the token with which the
        chat template ends an answer is not among them; or it writes none; or the files disagree.

    Why it matters:
        An engine stops at the tokens that it knows of. If the one that the model writes at the end
        of its turn is not among them, every response runs to the limit and is cut, its reward is
        that of a cut response, and lengths tell nothing. A trainer that knows only one of several
        end tokens counts finished responses as truncated. A model that was trained on what the
        template renders never learns an end that the template does not write.

    What to do:
        Declare all of them in `eos_token_id` of generation_config.json, the template's among them.

    When it is wrong:
        A base model has a template that it was never trained on; there the missing token does not
        stop anything, but it is not written either.

    References:
        TRL pull request 7039: several end tokens, and a truncated share of .97 that was not true.
    """

    code: ClassVar[str] = "DAT103"
    name: ClassVar[str] = "end-tokens"
    summary: ClassVar[str] = "The end tokens that the model's files declare do not fit each other."

    def examine(self, patient: Patient) -> Outcome:
        """Compare what each file declares with what the template writes."""
        if not patient.ends:
            return (
                Remark(
                    "critical",
                    "no end token is declared anywhere: every response will run to the limit",
                    ("set eos_token_id in generation_config.json",),
                ),
            )
        return tuple(self._remarks(patient))

    def _remarks(self, patient: Patient) -> Iterator[Remark]:
        size = patient.count("vocab_size")
        beyond = [each for each in patient.ends if each < 0 or (size and each >= size)]
        if beyond:
            yield Remark(
                "critical",
                f"the end token {beyond[0]} is none of the model's {size or 0} tokens",
                ("use the tokenizer that the model was trained with",),
            )
            return
        strange = sorted(each for each in patient.ends if patient.token_text(each) is None)
        if strange:
            yield Remark(
                "warning",
                f"the declared end token {strange[0]} is no token of the tokenizer's: nothing that "
                "it encodes ends with it",
                ("use the tokenizer that the model was trained with, or mend eos_token_id",),
                _told(patient),
            )
        yield from _closing(patient)
        declared = [set(ids) for ids in patient.declared_ends.values() if ids]
        if any(ids != declared[0] for ids in declared):
            own = patient.tokenizer.eos_token_id
            other = patient.written_end not in (None, own)
            yield Remark(
                "info",
                "the files declare different end tokens; a trainer that reads only "
                + ("the tokenizer's" if other else "one of them")
                + " takes finished responses for truncated ones",
                ("give the same list everywhere, or check which one your trainer reads",),
                _told(patient),
            )


def _told(patient: Patient) -> tuple[str, ...]:
    return tuple(
        f"{file}: {', '.join(patient.shown(each) for each in ids) or 'none'}"
        for file, ids in patient.declared_ends.items()
    )


def _closing(patient: Patient) -> Iterator[Remark]:
    """What is wrong with the way in which the template ends an answer."""
    if patient.closing is None:
        return
    text, ids = patient.closing
    marks = [each for each in ids if each in patient.specials]
    if (marks and marks[0] in patient.ends) or (not marks and patient.ends.intersection(ids)):
        return
    if marks:
        yield Remark(
            "critical",
            f"the chat template ends an answer with {patient.shown(marks[0])}, which no file "
            "declares as an end token: engines will not stop there",
            (f"add {marks[0]} to eos_token_id in generation_config.json",),
            _told(patient),
        )
        return
    written = f"the text {text.strip()!r}" if text.strip() else "nothing"
    yield Remark(
        "warning",
        f"the chat template ends an answer with {written} and never writes a declared end token: "
        "who is trained on what it renders does not learn to stop",
        ("have the template write the end token after an answer",),
        _told(patient),
    )
