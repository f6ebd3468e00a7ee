"""SYN004."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.mismatch_levels import HARMFUL, ORDINARY
from grpodoctor.rules.shared.shapes.spikes import Jump, jump_at, latest_jump
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_KL: Mapping[str, float] = {
    "kl/reference/k1": 0.1,
    "kl/reference/k2": 0.1,
    "kl/reference/k3": 0.1,
}
"""Divergence to the reference that matters after a resume: more than ordinary runs reach in all."""
_WARNING: Mapping[str, float] = {**{name: ORDINARY[name] for name in HARMFUL}, **_KL}
"""Level of a warning."""
_LEVELS: Mapping[str, float] = {
    name: level if name in _KL else level / 10 for name, level in _WARNING.items()
}
"""Level at which a jump counts: for a mismatch, about that of two engines in float32."""


class MismatchAfterResume(Rule):
    """The mismatch or the reference KL is higher after a resume than before it.

    What it sees:
        A mismatch between sampler and learner, or a divergence to the reference, that jumps at the
        step at which the run was resumed, and stays high: 2.5 times the highest of the readings
        before, and by more than twice their range. With ten readings before, their own noise
        decides: 1.5 times the highest is enough, if it is as far beyond their range. It is a
        warning if the mismatch is now above
        that of ordinary engine pairs (a probability difference of .004, a log-probability
        difference of .01, a KL of .005), and `info` from a tenth of that on. A divergence to the
        reference counts from .1 on.

    Why it matters:
        Training continues from other weights than it stopped with. Known causes are an adapter that
        is counted twice, a sampler that keeps its first weights because the sync is skipped on
        resume, a reference that is loaded from the new checkpoint, and optimizer state that is
        missing.

    Evidence it needs:
        A log that contains the resume, and `mismatch/prob_diff_mean`,
        `mismatch/logprob_diff_mean`, `mismatch/kl_k3` or `kl/reference/k3`.

    Remedies:
        Score the same ten responses with the checkpoint and with the resumed learner and sampler
        before the first update; all three must agree.

    When it is wrong:
        A resume with other settings (temperature, engine, data) changes the mismatch as well.

    References:
        ms-swift issue 8233 (adapter counted twice); open-instruct pull request 1627 (sync skipped
        when resuming).
    """

    code: ClassVar[str] = "SYN004"
    name: ClassVar[str] = "mismatch-after-resume"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "The mismatch or the reference KL is higher after a resume."
    inputs: ClassVar[tuple[Need, ...]] = (tuple(_LEVELS),)
    remedies: ClassVar[tuple[str, ...]] = ("check-resume", "check-weight-sync")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/modelscope/ms-swift/issues/8233",
        "github.com/allenai/open-instruct/pull/1627",
    )
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 2 * RECENT

    factor: float = 2.5
    """Multiple of the highest reading before. The step is known, so the jump may be smaller than
    one at an unknown step; see SYN003."""

    least_factor: float = 1.5
    """The same where ten readings before show the noise. Of 9,600 simulated resumes without a jump,
    with a noise of 3 to 25 %, drifts, outliers and autocorrelation up to .95, none rose by this
    factor and by `noise_ranges`. A jump by two is seen in all at a noise of 3 %, in 84 % at one of
    10 %, and in 31 % at 25 % (tests/benchmarks/bench_chance.py)."""

    noise_ranges: float = 2.0
    """Rise as a multiple of the range of the readings before: about six standard deviations above
    the highest of ten."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a jump at a resume."""
        if not chart.resumes:
            return None
        for name in _LEVELS:
            if not chart.is_fresh(name):
                continue
            series = chart.series(name)
            if series.last < _LEVELS[name]:
                continue  # the usual case
            jump = latest_jump(series, self.factor, _LEVELS[name], self.noise_ranges)
            if jump is None or not self._is_at_resume(chart, jump):
                jump = self._beyond_noise(chart, name)
            if jump is not None:
                return self._sighting(chart, name, jump)
        return None

    def _beyond_noise(self, chart: Chart, name: str) -> Jump | None:
        """A smaller jump at the latest resume, beyond the noise of the readings before."""
        step = max(resume.step for resume in chart.resumes)
        limits = (self.least_factor, _LEVELS[name], self.noise_ranges)
        return jump_at(chart.series(name), step, *limits)

    def _is_at_resume(self, chart: Chart, jump: Jump) -> bool:
        return any(jump.previous_step < resume.step <= jump.step for resume in chart.resumes)

    def _sighting(self, chart: Chart, name: str, jump: Jump) -> Sighting:
        text = (
            f"{name} rose from {jump.before:.2g} to {jump.after:.2g} "
            f"when the run was resumed at step {jump.step}."
        )
        severity: Severity = "warning" if jump.after >= _WARNING[name] else "info"
        return Sighting(
            severity, text, (cite(chart, name, jump.before),), find_onset=lambda: jump.step
        )
