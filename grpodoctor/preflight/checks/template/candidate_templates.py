"""DAT109."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from grpodoctor.preflight.answers.constructed_answers import matches_format
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.responses.pass_rates import requires_rewarded_responses
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.sampling.pass_rate_stats import rate_error

_OWN = "the tokenizer's own"


class _Outcome(NamedTuple):
    rate: float
    error: float
    """Standard error of the rate."""
    line: str


class CandidateTemplates(Check):
    """Another prompt template has a higher pass rate.

    What it sees:
        Samples responses with each candidate template and with the tokenizer's own. Compares the
        share of responses that end with an EOS token, the share with an answer, right or wrong, in
        the rewarded format, and the pass rate.

    Why it matters:
        A template can be worth more than a hundred steps: base models solve twice as many problems
        with one as with another. A run that starts with the wrong one learns the format first, and
        the rise of its reward says nothing about the task.

    What to do:
        Train with the template that has the highest pass rate, and report which template you used.

    When it is wrong:
        Differences smaller than the printed interval are chance.

    References:
        Dr. GRPO, arXiv 2503.20783, section 2.2: templates and the ability of base models.
    """

    code: ClassVar[str] = "DAT109"
    name: ClassVar[str] = "better-prompt-template"
    former_names: ClassVar[tuple[str, ...]] = ("prompt-templates",)
    summary: ClassVar[str] = "Another prompt template has a higher pass rate."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783",)

    def examine(self, context: PreflightContext) -> CheckResult:
        """Sample in every template."""
        if not context.templates:
            return SkippedCheck("no candidate templates were given", "add --template NAME=FILE")
        outcomes: dict[str, _Outcome] = {}
        for name, template in {_OWN: "", **context.templates}.items():
            outcome = _try_template(context, name, template)
            if outcome is None:
                return requires_rewarded_responses(context)
            if not np.isfinite(outcome.error):
                return SkippedCheck(
                    "too few prompts to separate a difference from chance", "raise --limit"
                )
            outcomes[name] = outcome
        return (_compare(outcomes),)


def _try_template(context: PreflightContext, name: str, template: str) -> _Outcome | None:
    """The results in one template; None without an engine or rewards."""
    if context.sampler is None or context.reward is None:
        return None
    answers = context.reference_answers
    answer_format = answers.answer_format if answers else "{answer}"
    solved = context.sampler.solved(template=template)
    if solved is None:
        return None
    responses = context.sampler.responses(template=template)
    rate, error = float(solved.mean()), rate_error(solved)
    formatted = np.mean([matches_format(answer_format, response.text) for response in responses])
    ended = np.mean([response.ended for response in responses])
    line = (
        f"{name}: pass rate {rate:.1%} ± {1.96 * error:.1%}, answer in the rewarded format "
        f"{formatted:.1%}, ended {ended:.1%}"
    )
    return _Outcome(rate, error, line)


def _compare(outcomes: dict[str, _Outcome]) -> CheckFinding:
    table = tuple(outcome.line for outcome in outcomes.values())
    figures = {name: outcome.rate for name, outcome in outcomes.items()}
    best_name = max(outcomes, key=lambda name: outcomes[name].rate)
    own, best = outcomes[_OWN], outcomes[best_name]
    if best.rate - own.rate <= 1.96 * np.hypot(best.error, own.error):
        summary = "No template is better than the tokenizer's own by more than chance."
        return CheckFinding("info", summary, (), table, figures)
    summary = (
        f"{best_name!r} solves {best.rate:.0%}, and the tokenizer's own template {own.rate:.0%}."
    )
    return CheckFinding("warning", summary, (f"Train in {best_name!r}.",), table, figures)
