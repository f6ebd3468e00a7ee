"""GRP101."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.sampling.pass_rate_stats import (
    fit_beta,
    outside_rate,
    pass_at_k,
    rate_error,
)
from grpodoctor.rules.base import Severity


def requires_rewarded_responses(context: PreflightContext) -> SkippedCheck:
    """Why no response has a reward, naming only what is missing."""
    missing = {"engine": context.sampler is None, "reward function": context.reward is None}
    names = [name for name, is_missing in missing.items() if is_missing]
    options = {
        "engine": "--sampler ENGINE:MODEL",
        "reward function": "--reward FILE.py:function",
    }
    if not names:
        return SkippedCheck("no response has a reward, see the checks of the reward")
    words = " and ".join(options[name] for name in names)
    return SkippedCheck(f"no {' and no '.join(names)} was given", f"add {words}")


class PassRates(Check):
    """Most prompts are almost never or almost always solved.

    What it sees:
        Several responses per prompt at each --temperature: the pass rate with its standard error
        over prompts, pass@k, and the share of prompts with a pass rate below 20% or above 80%. With
        few responses per prompt, a rate can be outside these bounds by chance, so the details also
        give the share under a beta distribution fitted to the counts.

    Why it matters:
        A group of only right or only wrong responses has advantages of zero. If half of the prompts
        are like that, half of the compute is lost; if the model never earns a reward, it learns
        nothing.

    What to do:
        Leave such prompts out (--write-filtered writes the remaining ones), warm-start the model,
        or use dynamic sampling. A temperature with a higher pass@k gives groups more variance.

    When it is wrong:
        With few responses per prompt, a rate of 20% can look like 0%: of eight responses to such a
        prompt, none is correct in 17% of the cases. Raise --samples before filtering. A graded
        reward is split into correct and incorrect at a threshold, which the details give.

    References:
        DAPO, arXiv 2503.14476, section 3.2; Polaris and others filter prompts by pass rate first.
    """

    code: ClassVar[str] = "GRP101"
    name: ClassVar[str] = "pass-rates-out-of-range"
    summary: ClassVar[str] = "Most prompts are almost never or almost always solved."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    min_pass_rate: ClassVar[float] = 0.2
    """Pass rate from which a prompt is useful: a group of 8 then has variance with a probability
    above 83%."""
    max_pass_rate: ClassVar[float] = 0.8
    """Pass rate up to which a prompt is useful, for the same reason."""
    warning_share: ClassVar[float] = 0.5
    """Fitted share of prompts outside this range, from which the finding is a warning."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Sample, score and count."""
        sampler = context.sampler
        if sampler is None or context.reward is None:
            return requires_rewarded_responses(context)
        by_temperature: dict[float, NDArray[np.bool_]] = {}
        for temperature in context.settings.temperatures:
            solved = sampler.solved(temperature)
            if solved is not None:
                by_temperature[temperature] = solved
        if not by_temperature:
            return requires_rewarded_responses(context)
        table = [self._line(*entry) for entry in by_temperature.items()]
        solved = next(iter(by_temperature.values()))
        return (self._finding(solved, (*table, sampler.criterion), context.filtered),)

    def _finding(
        self, solved: NDArray[np.bool_], table: tuple[str, ...], filtered: Path | None
    ) -> CheckFinding:
        rates = solved.mean(axis=1)
        hard, easy = (
            float((rates < self.min_pass_rate).mean()),
            float((rates > self.max_pass_rate).mean()),
        )
        outside = outside_rate(*fit_beta(solved), self.min_pass_rate, self.max_pass_rate)
        figures = {
            "pass_rate": float(rates.mean()),
            "pass_at_k": pass_at_k(solved, solved.shape[1]),
            "below": hard,
            "above": easy,
            "outside_by_fit": outside,
            "never": float((rates == 0).mean()),
        }
        advice = _advice(hard, easy, filtered)
        if rates.max() == 0:
            summary = f"None of {solved.size} responses is correct, so there is nothing to learn."
            advice = ("Check the reward with a response that you know is correct.", *advice)
            return CheckFinding("critical", summary, advice, table, figures)
        severity: Severity = "warning" if outside >= self.warning_share else "info"
        summary = (
            f"The pass rate is {rates.mean():.0%}; {hard:.0%} of prompts are below "
            f"{self.min_pass_rate:.0%} and {easy:.0%} above {self.max_pass_rate:.0%}."
        )
        return CheckFinding(severity, summary, advice, table, figures)

    def _line(self, temperature: float, solved: NDArray[np.bool_]) -> str:
        samples = solved.shape[1]
        ks = sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k < samples} | {samples})
        pass_at = ", ".join(f"pass@{k} {pass_at_k(solved, k):.1%}" for k in ks)
        rates = solved.mean(axis=1)
        below, above = (rates < self.min_pass_rate).mean(), (rates > self.max_pass_rate).mean()
        error = rate_error(solved)
        interval = f" (pass@1 ± {error:.1%})" if np.isfinite(error) else ""
        outside = outside_rate(*fit_beta(solved), self.min_pass_rate, self.max_pass_rate)
        return (
            f"temperature {temperature:g}: {pass_at}{interval}; prompts below "
            f"{self.min_pass_rate:.0%}: {below:.0%}, above {self.max_pass_rate:.0%}: {above:.0%}, "
            f"outside by the fit: {outside:.0%}"
        )


def _advice(hard: float, easy: float, filtered: Path | None) -> tuple[str, ...]:
    advice = [
        "Leave out prompts that are never or always solved: --write-filtered FILE."
        if filtered is None
        else f"Train on {filtered}, without the prompts that are never or always solved."
    ]
    if hard > easy:
        advice.append("Start with easier prompts, or warm-start the model on solutions.")
    elif easy > 0.5:
        advice.append("Use harder prompts.")
    return tuple(advice)
