"""GRP101."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient
from grpodoctor.preflight.pass_rate_stats import beta_of, outside_rate, pass_at_k, rate_error
from grpodoctor.rules.base import Severity

NEEDS_BENCH = Skipped(
    "no engine was given, or nothing to judge its responses by",
    "give --sampler ENGINE:MODEL and --reward FILE.py:function",
)


class PassRates(Check):
    """The model solves most prompts hardly ever, or nearly always.

    What it sees:
        Several responses a prompt at each --temperature: the pass rate with its standard error over
        prompts, pass@k, and the share of prompts that are solved in fewer than 20 % or more than
        80 % of the responses. Beside what was seen, the share that a beta distribution fitted to
        the counts has there: few responses scatter beyond the bounds by chance.

    Why it matters:
        A group in which all are right, or all wrong, has advantages of zero. Half of the compute of
        a run is lost where half of its prompts are like that, and nothing at all is learnt where
        the model never gets a reward.

    What to do:
        Leave such prompts out (--write-filtered writes those that are left), warm-start the model,
        or sample dynamically. A temperature with a higher pass@k gives groups more variance.

    When it is wrong:
        With few responses a prompt, a rate of a fifth may be seen as none: of eight responses to
        a prompt of rate .2 none is right in 17 % of the cases. Raise --samples for a filter. A
        reward without a clear right and wrong is cut in two, where the report says.

    References:
        DAPO, arXiv 2503.14476, section 3.2; Polaris and others filter prompts by pass rate first.
    """

    code: ClassVar[str] = "GRP101"
    name: ClassVar[str] = "pass-rates-out-of-range"
    summary: ClassVar[str] = "The model solves most prompts hardly ever, or nearly always."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    low: ClassVar[float] = 0.2
    high: ClassVar[float] = 0.8
    """Rates between which a prompt teaches most: with a group of 8, its chance of variance is above
    83 %."""
    most: ClassVar[float] = 0.5
    """Share of prompts out of this range, by the fit, from which on it is a warning."""

    def examine(self, patient: Patient) -> Outcome:
        """Sample, judge and count."""
        if patient.bench is None or patient.judge is None:
            return NEEDS_BENCH
        heats = patient.plan.temperatures
        solved = {heat: patient.bench.solved(heat) for heat in heats}
        known = {heat: each for heat, each in solved.items() if each is not None}
        if not known:
            return NEEDS_BENCH
        return tuple(self._remarks(known, heats[0], patient.bench.right))

    def _remarks(
        self, known: dict[float, NDArray[np.bool_]], own: float, right: str
    ) -> Iterator[Remark]:
        table = (*(self._line(heat, solved) for heat, solved in known.items()), right)
        solved = known.get(own, next(iter(known.values())))
        rates = solved.mean(axis=1)
        hard, easy = float((rates < self.low).mean()), float((rates > self.high).mean())
        outside = outside_rate(*beta_of(solved), self.low, self.high)
        figures = {
            "pass_rate": float(rates.mean()),
            "pass_at_k": pass_at_k(solved, solved.shape[1]),
            "below": hard,
            "above": easy,
            "outside_by_fit": outside,
            "never": float((rates == 0).mean()),
        }
        told = (
            f"pass rate {rates.mean():.0%}, pass@{solved.shape[1]} {figures['pass_at_k']:.0%}; "
            f"{hard:.0%} of the prompts are below {self.low:.0%} and {easy:.0%} above "
            f"{self.high:.0%}"
        )
        severity: Severity = "warning" if outside >= self.most else "info"
        advice = _advice(hard, easy)
        if rates.max() == 0:
            severity = "critical"
            told = f"none of {solved.size} responses is right: there is nothing to learn from"
            advice = ("check the reward with a response that you know is right", *advice)
        yield Remark(severity, told, advice, table, figures)

    def _line(self, heat: float, solved: NDArray[np.bool_]) -> str:
        samples = solved.shape[1]
        ks = sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k < samples} | {samples})
        chances = ", ".join(f"pass@{k} {pass_at_k(solved, k):.1%}" for k in ks)
        rates = solved.mean(axis=1)
        below, above = (rates < self.low).mean(), (rates > self.high).mean()
        error = rate_error(solved)
        known = f" (pass@1 ± {error:.1%})" if np.isfinite(error) else ""
        outside = outside_rate(*beta_of(solved), self.low, self.high)
        return (
            f"temperature {heat:g}: {chances}{known}; prompts below "
            f"{self.low:.0%}: {below:.0%}, above {self.high:.0%}: {above:.0%}, outside by the fit: "
            f"{outside:.0%}"
        )


def _advice(hard: float, easy: float) -> tuple[str, ...]:
    told = ["leave prompts out that are solved never or always: --write-filtered FILE"]
    if hard > easy:
        told.append("begin with easier prompts, or warm-start the model on solutions")
    elif easy > 0.5:
        told.append("take harder prompts")
    return tuple(told)
