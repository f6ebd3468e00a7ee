"""DAT103."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.config_columns import listed_settings
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.support.numbers import part_of

_MAX_ANSWERS = 500


class EndTokens(Check):
    """The EOS tokens in the model's files are missing, invalid or inconsistent.

    What it sees:
        Tokenizer, config.json and generation_config.json can each declare EOS tokens. The check
        reports if none does, if a declared token is outside the vocabulary, unknown to the
        tokenizer or ordinary text, if the token with which the chat template ends an answer is not
        declared, if this marker is no token but is split into pieces, if the template writes none,
        if the files disagree, if the run's config stops at ordinary text (stop_token_ids), or if
        the tokenizer appends an EOS token to every text.

    Why it matters:
        An engine stops only at declared tokens. If the token that the model writes at the end of
        its turn is not among them, every response runs to the limit, is truncated, and is rewarded
        as a truncated one. A trainer that knows only one of several end tokens counts finished
        responses as truncated. A model that is trained on rendered text never learns an end token
        that the template does not write.

    What to do:
        Declare all end tokens, including the template's, in `eos_token_id` of
        generation_config.json.

    When it is wrong:
        Some base models ship with a template on which they were never trained. There the undeclared
        token does no harm, because the model does not write it.

    References:
        TRL pull request 7039: several end tokens, and a false truncated share of 0.97.
    """

    code: ClassVar[str] = "DAT103"
    name: ClassVar[str] = "wrong-eos-tokens"
    former_names: ClassVar[tuple[str, ...]] = ("end-tokens",)
    summary: ClassVar[str] = "The declared EOS tokens are missing, invalid or inconsistent."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare what each file declares with what the template writes."""
        if not context.end_tokens:
            return (
                CheckFinding(
                    "critical",
                    "No EOS token is declared, so every response runs to the limit.",
                    ("Set eos_token_id in generation_config.json.",),
                ),
            )
        invalid = _outside_vocabulary(context)
        if invalid:
            return invalid
        return (
            *_ordinary_tokens(context),
            *_ordinary_stops(context),
            *_unknown_tokens(context),
            *_template_end(context),
            *_disagreement(context),
            *_appended_to_prompts(context),
        )


def _outside_vocabulary(context: PreflightContext) -> tuple[CheckFinding, ...]:
    size = context.config_count("vocab_size")
    invalid = [token for token in context.end_tokens if token < 0 or (size and token >= size)]
    if not invalid:
        return ()
    return (
        CheckFinding(
            "critical",
            f"The EOS token {invalid[0]} is outside the model's vocabulary of {size or 0} tokens.",
            ("Use the tokenizer with which the model was trained.",),
        ),
    )


def _is_ordinary(context: PreflightContext, token: int) -> bool:
    """Whether a token is a character or a word of ordinary text."""
    text = context.decoded(token)
    is_plain = token not in context.special_tokens and not _MARKER.search(text)
    return bool(text) and (is_plain or _ORDINARY.fullmatch(text) is not None)


def _ordinary_tokens(context: PreflightContext) -> Iterator[CheckFinding]:
    """Declared end tokens that are characters or words of ordinary text."""
    for token in sorted(context.end_tokens):
        if _is_ordinary(context, token):
            yield CheckFinding(
                "critical",
                f"The EOS token {context.describe_token(token)} is ordinary text, so responses end "
                "wherever it occurs.",
                (f"Remove {token} from eos_token_id; declare the model's own EOS token.",),
                (*_declarations(context), *_share_containing(context, token)),
            )


def _ordinary_stops(context: PreflightContext) -> Iterator[CheckFinding]:
    """Stop tokens of the run's config that are ordinary text."""
    for key, values in listed_settings(context.config_contents):
        tokens = [each for each in values if type(each) is int] if key in _STOP_KEYS else []
        for token in tokens:
            if _is_ordinary(context, token):
                yield CheckFinding(
                    "critical",
                    f"The config stops responses at token {context.describe_token(token)} ({key}), "
                    "which is ordinary text.",
                    (f"Remove {token} from {key}; use the ids of the model's own EOS tokens.",),
                    _share_containing(context, token),
                )


_STOP_KEYS = frozenset({"stop_token_ids", "eos_token_id", "eos_token_ids"})
_ORDINARY = re.compile(r"\s*(?:[^\W_]+|[.,;:!?'\"()+*/=$%&#@-])\s*")
"""A word, a number or a single sign. Real end tokens have brackets around them."""

_MARKER = re.compile(
    r"[<\[\uff5c|].*[>\]\uff5c|]|^\W*(?:eos|eot|end)\W*$", re.IGNORECASE | re.DOTALL
)


def _share_containing(context: PreflightContext, token: int) -> tuple[str, ...]:
    """How many reference answers would end early."""
    answers = [row.answer for row in context.rows if row.answer][:_MAX_ANSWERS]
    ids = [context.tokenizer(text, add_special_tokens=False)["input_ids"] for text in answers]
    containing = sum(token in encoded for encoded in ids)
    return (
        (f"{part_of(containing, len(answers), 'reference answers', 'contain')} it",)
        if answers
        else ()
    )


def _unknown_tokens(context: PreflightContext) -> Iterator[CheckFinding]:
    unknown = sorted(token for token in context.end_tokens if context.token_text(token) is None)
    if unknown:
        yield CheckFinding(
            "warning",
            f"The declared EOS token {unknown[0]} does not exist in the tokenizer.",
            ("Use the tokenizer with which the model was trained, or correct eos_token_id.",),
            _declarations(context),
        )


def _template_end(context: PreflightContext) -> Iterator[CheckFinding]:
    """Whether the template ends an answer with a declared end token."""
    if context.turn_end is None:
        return
    text, ids = context.turn_end
    specials = [token for token in ids if token in context.special_tokens]
    declared = specials[:1] if specials else ids
    if context.end_tokens.intersection(declared):
        return
    if specials:
        yield CheckFinding(
            "critical",
            f"The chat template ends answers with {context.describe_token(specials[0])}, which is "
            "not declared as EOS.",
            (f"Add {specials[0]} to eos_token_id in generation_config.json.",),
            _declarations(context),
        )
        return
    marker = _SPLIT_MARKER.search(text)
    if marker:
        pieces = len(context.tokenizer(marker[0], add_special_tokens=False)["input_ids"])
        yield CheckFinding(
            "warning",
            f"The template's end marker {marker[0]!r} is not a token of this tokenizer: it is "
            f"split into {pieces} pieces.",
            ("Use the tokenizer that belongs to the template, or add the marker as EOS token.",),
            _declarations(context),
        )
        return
    written = f"the text {text.strip()!r}" if text.strip() else "nothing"
    yield CheckFinding(
        "warning",
        f"The chat template ends answers with {written} and never writes a declared EOS token.",
        ("Have the template write the EOS token after an answer.",),
        _declarations(context),
    )


_SPLIT_MARKER = re.compile(
    r"<[|\uff5c][^<>]{1,40}[|\uff5c]>|<(?:end|start)_of_\w+>|</s>|\[/?INST\]"
)
"""Text with which templates mark turns, and which a fitting tokenizer knows as one token."""


def _disagreement(context: PreflightContext) -> Iterator[CheckFinding]:
    declared = [set(ids) for ids in context.declared_end_tokens.values() if ids]
    if not any(ids != declared[0] for ids in declared):
        return
    tokenizer_end = context.tokenizer.eos_token_id
    wrong_in_tokenizer = context.rendered_end_token not in (None, tokenizer_end)
    source = "the tokenizer's" if wrong_in_tokenizer else "one of them"
    yield CheckFinding(
        "info",
        f"The files declare different EOS tokens; a trainer that reads only {source} miscounts "
        "truncation.",
        ("Declare the same list in every file, or check which file your trainer reads.",),
        _declarations(context),
    )


def _appended_to_prompts(context: PreflightContext) -> Iterator[CheckFinding]:
    """Whether the tokenizer itself writes an EOS token after every text."""
    last = list(context.tokenizer(_ANY_TEXT)["input_ids"])[-1:]
    if not last or last[0] not in context.end_tokens:
        return
    bare = [row for row in context.rows if not (context.tokenizer.chat_template and row.messages)]
    yield CheckFinding(
        "critical" if bare else "warning",
        f"The tokenizer appends the EOS token {context.describe_token(last[0])} to every text, so "
        "prompts end before the response.",
        ("Set add_eos_token=false in tokenizer_config.json, and correct the post-processor.",),
        (f"{part_of(len(bare), len(context.rows), 'prompts', 'are')} text",)
        if context.rows
        else (),
    )


_ANY_TEXT = "What is 2 + 3?"


def _declarations(context: PreflightContext) -> tuple[str, ...]:
    return tuple(
        f"{file}: {', '.join(context.describe_token(token) for token in ids) or 'none'}"
        for file, ids in context.declared_end_tokens.items()
    )
