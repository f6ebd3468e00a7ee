"""DAT109."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.checks.pass_rates import NEEDS_BENCH
from grpodoctor.preflight.constructed_answers import is_in_form
from grpodoctor.preflight.context import Patient
from grpodoctor.preflight.pass_rate_stats import rate_error
from grpodoctor.rules.base import Severity


class PromptTemplates(Check):
    """Another prompt template would do better from the start.

    What it sees:
        The prompts are asked in each candidate template and in the tokenizer's own; for each, the
        share of responses that end by themselves, the share with an answer, right or wrong, in the
        form that the reward pays for, and the pass rate.

    Why it matters:
        A template can be worth more than a hundred steps: base models solve twice as many problems
        in one as in another. A run that begins in the wrong one learns the form first, and its rise
        says nothing of what was learnt of the task.

    What to do:
        Train in the template with the highest pass rate, or say in a report which one was used.

    When it is wrong:
        Differences smaller than the interval that is told are chance.

    References:
        Dr. GRPO, arXiv 2503.20783, section 2.2: templates and what base models can do.
    """

    code: ClassVar[str] = "DAT109"
    name: ClassVar[str] = "prompt-templates"
    summary: ClassVar[str] = "Another prompt template would do better from the start."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783",)

    def examine(self, patient: Patient) -> Outcome:
        """Ask in every template."""
        if not patient.templates:
            return Skipped("no candidate templates were given", "give --template NAME=FILE")
        if patient.bench is None or patient.judge is None:
            return NEEDS_BENCH
        form = patient.gold.form if patient.gold else "{answer}"
        rates: dict[str, tuple[float, float]] = {}
        table = []
        for name, template in {"the tokenizer's own": "", **patient.templates}.items():
            solved = patient.bench.solved(template=template)
            if solved is None:
                return NEEDS_BENCH
            drawn = patient.bench.responses(template=template)
            mean, error = float(solved.mean()), rate_error(solved)
            if not np.isfinite(error):
                return Skipped("too few prompts to tell chance from a difference", "raise --limit")
            rates[name] = (mean, error)
            formed = np.mean([is_in_form(form, each.text) for each in drawn])
            ended = np.mean([each.ended for each in drawn])
            table.append(
                f"{name}: pass rate {mean:.1%} ± {1.96 * error:.1%}, answer in its form "
                f"{formed:.1%}, ended {ended:.1%}"
            )
        own, best = rates["the tokenizer's own"], max(rates, key=lambda name: rates[name][0])
        ahead = rates[best][0] - own[0]
        sure = ahead > 1.96 * np.hypot(rates[best][1], own[1])
        severity: Severity = "warning" if sure else "info"
        told = (
            f"{best!r} solves {rates[best][0]:.0%}, the tokenizer's own template {own[0]:.0%}"
            if sure
            else "no template is better than the tokenizer's own by more than chance"
        )
        advice = (f"train in {best!r}",) if sure else ()
        figures = {name: rate for name, (rate, _) in rates.items()}
        return (Remark(severity, told, advice, tuple(table), figures),)
