"""DAT103."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark
from grpodoctor.preflight.patient import Patient, ids_of

_MARK = "grpodoctor"


class EndTokens(Check):
    """The end tokens that the model's files declare do not fit each other.

    What it sees:
        Tokenizer, config.json and generation_config.json each may declare end tokens. None does; or
        one is beyond the vocabulary; or the token with which the chat template ends an answer is
        not among them; or the files disagree.

    Why it matters:
        An engine stops at the tokens that it knows of. If the one that the model writes at the end
        of its turn is not among them, every response runs to the limit and is cut, its reward is
        that of a cut response, and lengths tell nothing. A trainer that knows only one of several
        end tokens counts finished responses as truncated.

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
        size = patient.config.get("vocab_size")
        beyond = [each for each in patient.ends if isinstance(size, int) and each >= size]
        if beyond:
            yield Remark(
                "critical",
                f"the end token {beyond[0]} is beyond the model's {size} tokens",
                ("use the tokenizer that the model was trained with",),
            )
            return
        closing = _closing(patient)
        if closing and not patient.ends.intersection(closing):
            yield Remark(
                "critical",
                f"the chat template ends an answer with {patient.shown(closing[0])}, which no file "
                "declares as an end token: engines will not stop there",
                (f"add {closing[0]} to eos_token_id in generation_config.json",),
                _told(patient),
            )
        declared = [set(ids) for ids in patient.declared_ends.values() if ids]
        if any(ids != declared[0] for ids in declared):
            yield Remark(
                "info",
                "the files declare different end tokens; a trainer that reads only one of them "
                "takes finished responses for truncated ones",
                ("give the same list everywhere, or check which one your trainer reads",),
                _told(patient),
            )


def _told(patient: Patient) -> tuple[str, ...]:
    return tuple(
        f"{file}: {', '.join(patient.shown(each) for each in ids) or 'none'}"
        for file, ids in patient.declared_ends.items()
    )


def _closing(patient: Patient) -> list[int]:
    """The tokens that the template writes after an answer; empty without a template."""
    if not patient.tokenizer.chat_template:
        return []
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": _MARK}]
    text = str(patient.tokenizer.decode(ids_of(patient.tokenizer, turns)))
    _, found, after = text.rpartition(_MARK)
    if not found or not after.strip():
        return []
    return list(patient.tokenizer(after, add_special_tokens=False)["input_ids"])
