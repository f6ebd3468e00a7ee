"""DAT120."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.errors import ModelError
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_MAX_ROWS = 500
_SHOWN = 4


class TokensOutsideVocabulary(Check):
    """Prompts contain tokens for which the model has no embedding.

    What it sees:
        Token ids of rendered prompts that are not below vocab_size of config.json. Also notes that
        the tokenizer knows such tokens, if no prompt contains one.

    Why it matters:
        A lookup outside the embedding matrix ends the run with an index error or a CUDA assert,
        perhaps hours after the start, or reads other memory.

    What to do:
        Use the model's own tokenizer, or resize the embeddings after tokens were added.

    When it is wrong:
        A config may state another size than the weights have. Then correct the config.

    References:
        None.
    """

    code: ClassVar[str] = "DAT120"
    name: ClassVar[str] = "tokens-outside-vocabulary"
    summary: ClassVar[str] = "Prompts contain tokens for which the model has no embedding."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare token ids with the size of the vocabulary."""
        size = context.config_count("vocab_size")
        if size is None:
            return SkippedCheck("config.json states no vocab_size")
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        outside = [(row, token) for row in rows if (token := _largest(context, row)) >= size]
        if outside:
            summary = (
                f"{part_of(len(outside), len(rows), 'prompts', 'contain')} "
                "tokens outside the model's "
                f"vocabulary of {size:,} tokens."
            )
            details = tuple(
                f"{row.location}: {context.describe_token(token)}"
                for row, token in outside[:_SHOWN]
            )
            advice = "Use the model's own tokenizer, or resize the embeddings."
            share = len(outside) / len(rows)
            return (CheckFinding("critical", summary, (advice,), details, {"share": share}),)
        extra = len(context.tokenizer) - size
        if extra > 0:
            summary = f"The tokenizer has {extra:,} tokens for which the model has no embedding."
            return (CheckFinding("info", summary, ("Keep them out of prompts and templates.",)),)
        return ()


def _largest(context: PreflightContext, row: PromptRow) -> int:
    """The largest token id of a prompt; -1 if the template refuses it, which DAT105 reports."""
    try:
        return max(context.render(row), default=-1)
    except ModelError:
        return -1
