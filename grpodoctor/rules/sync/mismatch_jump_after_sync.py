"""SYN003."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.health.run_health import ENTROPY_METRICS, RECENT
from grpodoctor.rules.shared.mismatch_levels import HARMFUL, ORDINARY, logged_mismatch
from grpodoctor.rules.shared.shapes.spikes import Jump, latest_jump
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_FALLBACK = "experts/replay_fallback_rate"


class MismatchJumpAfterSync(Rule):
    """The mismatch between sampler and learner jumps within one step and stays high.

    What it sees:
        A mismatch that rises to a multiple of all recent readings from one reading to the next, and
        stays there:

        - four times, to a level that does harm: a probability difference of .02, a log-probability
          difference of .05, or a KL of .01 (critical)
        - four times and by twice the range of the ten readings before, to half of that level
          (warning)
        - ten times, to a level above that of ordinary engine pairs: .004, .01 or .005 (warning)

        A KL grows with the square of the gap, so its factors are 16 and 100 for a warning. A jump
        at a resume is reported by SYN004.

    Why it matters:
        Rounding and staleness change slowly. A jump means that a weight sync did not deliver the
        learner's weights: tensors are missing or misnamed, an adapter is merged twice, a cache was
        not cleared, or quantized weights were overwritten. From that step on the sampler produces
        gibberish, and the learner trains on it.

    Evidence it needs:
        `mismatch/prob_diff_mean`, `mismatch/logprob_diff_mean`, `mismatch/kl_k3` or `kl_k1`.

    Remedies:
        Stop, and compare a few weights of both engines at the step of the jump. Restart the engine
        from the latest checkpoint; if the jump comes back at the first sync, the sync is at fault.

    When it is wrong:
        A change of the sampling temperature, or of the prompts to a much longer or rarer kind,
        moves the mismatch at once. Unlikely tokens differ most, so a policy whose entropy explodes
        shows more mismatch without any fault of the engines; the rule compares the mismatch per nat
        of entropy where entropy is logged. Replayed routes that begin to be missing at the jump
        explain it, and MOE005 reports them.

    References:
        TRL issue 5312 (.015 to .201 at step 3); SkyRL issue 1680; NeMo RL issue 2631.
    """

    code: ClassVar[str] = "SYN003"
    name: ClassVar[str] = "mismatch-jump-after-sync"
    condition: ClassVar[Condition] = "stale-weights"
    summary: ClassVar[str] = "The sampler-learner mismatch jumps within one step and stays high."
    inputs: ClassVar[tuple[Need, ...]] = (tuple(HARMFUL),)
    remedies: ClassVar[tuple[str, ...]] = ("check-weight-sync", "stop-training")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/issues/5312",
        "github.com/NovaSky-AI/SkyRL/issues/1680",
        "github.com/NVIDIA-NeMo/RL/issues/2631",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 2 * RECENT

    large_factor: float = 10.0
    """Multiple that is a warning from the upper end of ordinary engine pairs on. A divergence grows
    with the square of the gap."""
    factor: float = 4.0
    """Multiple of the highest recent reading. Readings of one engine pair stay within a factor of
    two of each other; reported jumps are 5 to 25 times."""
    noise_ranges: float = 2.0
    """Rise to less than a harmful level, as a multiple of the range of the readings before: about
    six standard deviations above the highest of ten. It decides for k1, whose readings have both
    signs; a rise of other metrics by the factor exceeds it."""

    lost_routes: float = 0.01
    """Rise of the share of replayed routes that are missing; see MOE005."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for the latest jump that lasts and is not at a resume."""
        name = logged_mismatch(chart)
        series = chart.series(name)
        if series.last < ORDINARY[name]:
            return None
        severity: Severity = "critical"
        jump = latest_jump(series, self.factor, HARMFUL[name])
        if jump is None:
            severity = "warning"
            jump = self._milder_jump(series, name)
        if jump is None:
            return None
        if any(jump.previous_step < resume.step <= jump.step for resume in chart.resumes):
            return None
        if chart.knobs_changed_at == jump.step or self._follows_entropy(chart, jump):
            return None
        if self._follows_lost_routes(chart, jump):
            return None  # MOE005 reports the cause
        text = (
            f"The mismatch jumped from {jump.before:.2g} to {jump.after:.2g} at step {jump.step} "
            "and stayed there."
        )
        return Sighting(
            severity, text, (cite(chart, name, jump.before),), find_onset=lambda: jump.step
        )

    def _milder_jump(self, series: Series, name: str) -> Jump | None:
        """The latest jump to a level that does not yet do harm."""
        power = 2 if "kl_" in name else 1
        return latest_jump(
            series, self.factor**power, HARMFUL[name] / 2, self.noise_ranges
        ) or latest_jump(series, self.large_factor**power, ORDINARY[name])

    def _follows_lost_routes(self, chart: Chart, jump: Jump) -> bool:
        """Whether replayed routes began to be missing at the jump, so other experts cause it."""
        readings = dict(chart.series(_FALLBACK))
        before, after = readings.get(jump.previous_step), readings.get(jump.step)
        return before is not None and after is not None and after - before >= self.lost_routes

    def _follows_entropy(self, chart: Chart, jump: Jump) -> bool:
        """Whether entropy rose as well, by so much that the mismatch per nat did not jump."""
        for name in ENTROPY_METRICS:
            readings = dict(chart.series(name))
            before, after = readings.get(jump.previous_step), readings.get(jump.step)
            if before and after:
                return jump.after * before < self.factor * after * jump.before
        return False
