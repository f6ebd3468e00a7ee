"""LEN101."""

from __future__ import annotations

import re
import sys
from typing import ClassVar

import numpy as np

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import are_programs, format_answer
from grpodoctor.preflight.answers.stated_answers import marked_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import part_of

_SOLUTION_COLUMNS = ("solution", "generation", "reasoning", "response", "completion", "cot")
_REASONING = re.compile(
    r"</?(?:think|thinking|reasoning)>|\bstep[ -]by[ -]step\b|"
    r"\bshow (?:all |your |the )?(?:work|steps)\b|"
    r"\b(?:reason|think|work it out)\b[^.\n]{0,40}\b(?:first|before|then|carefully)\b",
    re.IGNORECASE,
)
"""Prompts that ask for reasoning before the answer."""
_MIN_WORDS = 20
"""Words of a worked solution."""
_MAX_SOLUTIONS = 1000


class ResponseLengths(Check):
    """Many responses are truncated at the token limit.

    What it sees:
        The lengths of sampled responses and --max-tokens: the share that does not end with an EOS
        token. Without an engine, the lengths of the solutions in the data, or of its answers in the
        format that the reward function pays. Also a limit of at most 100 tokens for prompts that
        ask for reasoning.

    Why it matters:
        A truncated response has no answer and is rewarded as wrong, so the policy first learns to
        be brief. The learner's cost grows with the longest response.

    What to do:
        Raise the limit until 95% of the responses fit, or mask the loss of truncated ones.

    When it is wrong:
        During training on mathematics responses get longer, so a limit that suffices now may become
        too small. The details contain the 95th percentile for this reason.

    References:
        DAPO, arXiv 2503.14476, section 3.4.
    """

    code: ClassVar[str] = "LEN101"
    name: ClassVar[str] = "max-tokens-too-small"
    former_names: ClassVar[tuple[str, ...]] = ("length-budget",)
    summary: ClassVar[str] = "Many responses are truncated at the token limit."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    warning_share: ClassVar[float] = 0.05
    """Share of truncated responses from which the finding is a warning."""
    shortest_reasoning: ClassVar[int] = 100
    """Tokens of a worked solution of GSM8K, whose problems need a few steps of arithmetic."""
    critical_share: ClassVar[float] = 0.5
    """Share of truncated responses from which the finding is critical."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Measure sampled responses."""
        if context.sampler is None:
            return self._of_solutions(context) or SkippedCheck(
                "no engine was given", "add --sampler ENGINE:MODEL"
            )
        responses = context.sampler.responses()
        if not responses:
            return SkippedCheck("the engine returned no responses")
        lengths = np.array([len(response.ids) for response in responses])
        truncated = float(np.mean([not response.ended for response in responses]))
        limit = context.settings.max_tokens
        mean, p95 = float(lengths.mean()), float(np.percentile(lengths, 95))
        figures = {"cut": truncated, "mean": mean, "p95": p95}
        summary = f"{truncated:.1%} of {len(responses)} responses are truncated at {limit} tokens."
        details = (f"length: mean {mean:.0f}, 95th percentile {p95:.0f} tokens",)
        if truncated < self.warning_share:
            hint = f"{limit} tokens are more than four times the 95th percentile."
            advice: tuple[str, ...] = (hint,) if p95 < limit / 4 else ()
            return (CheckFinding("info", summary, advice, details, figures),)
        severity: Severity = "critical" if truncated >= self.critical_share else "warning"
        advice = (
            "Raise --max-tokens and run the check again.",
            "Check that the EOS token is declared (DAT103).",
        )
        return (CheckFinding(severity, summary, advice, details, figures),)

    def _of_solutions(self, context: PreflightContext) -> tuple[CheckFinding, ...]:
        """The worked solutions of the data that are longer than the limit."""
        texts = [max(solutions, key=len) for row in context.rows if (solutions := _solutions(row))]
        what = "solutions in the data" if texts else "rewarded answers"
        texts = texts or _rewarded(context)
        texts = texts[:: max(len(texts) // _MAX_SOLUTIONS, 1)]
        lengths = [
            len(context.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts
        ]
        limit = min(context.settings.max_tokens, context.max_length or sys.maxsize)
        longer = sum(length > limit for length in lengths)
        if not lengths or longer < max(self.warning_share * len(lengths), 1):
            return self._thoughts(context, limit)
        p95 = float(np.percentile(lengths, 95))
        return (
            CheckFinding(
                "warning",
                f"{part_of(longer, len(lengths), what, 'are')} longer than {limit} tokens.",
                ("Raise --max-tokens, or filter these rows.",),
                (f"length: 95th percentile {p95:.0f} tokens",),
                {"longer": longer / len(lengths), "p95": p95},
            ),
        )

    def _thoughts(self, context: PreflightContext, limit: int) -> tuple[CheckFinding, ...]:
        """Prompts that ask for reasoning, with a limit in which no reasoning fits."""
        is_known = context.max_length is not None or "max_tokens" in context.settings.given
        asking = [row for row in context.rows if any(map(_REASONING.search, row.texts()))]
        if not is_known or limit > self.shortest_reasoning or len(asking) < len(context.rows) / 2:
            return ()
        return (
            CheckFinding(
                "warning",
                f"{part_of(len(asking), len(context.rows), 'prompts', 'ask')} "
                "for reasoning; responses end at "
                f"{limit} tokens.",
                ("Allow at least 512 tokens per response, or ask for the answer only.",),
                (f"{asking[0].location}: {asking[0].prompt[-80:]!r}",),
                {"limit": float(limit)},
            ),
        )


def _rewarded(context: PreflightContext) -> list[str]:
    """The data's own answers in the format that earns a reward: responses need their length."""
    try:
        answers = context.reference_answers
    except DataError:  # REW103 reports it
        return []
    is_made = answers is not None and (
        answers.format_name == "code" or are_programs(answers.answers)
    )
    if answers is None or answers.threshold is None or is_made:  # made from tests: longer
        return []
    return [
        format_answer(answers.answer_format, answer)
        for answer, missed in zip(answers.answers, answers.missed, strict=True)
        if not missed
    ]


def _solutions(row: PromptRow) -> list[str]:
    """The texts of a row that are worked solutions: long, and with a marked final answer."""
    texts = [row.answer or "", *(str(row.columns.get(name) or "") for name in _SOLUTION_COLUMNS)]
    return [text for text in texts if len(text.split()) >= _MIN_WORDS and marked_answer(text) != ""]
