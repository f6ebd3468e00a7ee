"""GRP001."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import UNDECIDED, Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.groups.zero_variance import zero_variance_cause
from grpodoctor.rules.shared.health.heldout import HELD_OUT_LOSS, low_heldout_accuracy
from grpodoctor.rules.shared.health.run_health import (
    CRITIC_IS_BASELINE,
    RECENT,
    current_metric,
    first_step_where,
    has_critic,
    typical_share,
)
from grpodoctor.rules.shared.shapes.windows import in_typical_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.inferred_groups import INFERRED_ALL_CORRECT
from grpodoctor.vocabulary.conditions import Condition

_ALL_CORRECT = "groups/all_correct_rate"
_ZERO_VARIANCE = "groups/zero_variance_rate"
_HELDOUT = "accuracy/heldout"


class AllCorrectGroups(Rule):
    """Most groups are all-correct, so they contribute no gradient.

    What it sees:
        A large share of groups in which every response is correct. The finding is `info`, since the
        run succeeds and merely wastes compute. It is a warning if held-out accuracy is below .8 and
        more than .1 below that of the training: the training prompts are then too easy for the
        evaluation or, if it never rose, memorized, or the reward pays for something else.

    Why it matters:
        A group whose rewards are all equal has advantages of zero. Its tokens cost compute and
        contribute nothing, and the effective batch is smaller than it looks.

    Evidence it needs:
        `groups/all_correct_rate`; or `groups/zero_variance_rate` with `accuracy/train` or a reward
        in [0, 1]; or `accuracy/train` and the group size, which imply a lower bound of the share.

    Remedies:
        Replace such groups by new ones (dynamic sampling), train on harder prompts, or stop because
        the task is solved. If the held-out accuracy is low and never rose, check the reward first.

    When it is wrong:
        The share grows with accuracy in every healthy run (from .08 at an accuracy of .55 to .37
        above .8 in small ones), so it is never a failure by itself. If the log does not split
        groups by correctness, the rule infers the split from accuracy, and reports nothing if the
        two are inconsistent. With a critic as the baseline, such groups do contribute gradient, and
        the rule does not apply.

    References:
        DAPO, arXiv 2503.14476, section 3.2.
    """

    code: ClassVar[str] = "GRP001"
    name: ClassVar[str] = "all-correct-groups"
    condition: ClassVar[Condition] = "solved"
    explains: ClassVar[tuple[Condition, ...]] = (
        "equal-rewards",
        "constant-reward",
        "zero-gradient",
        "entropy-loss",
        "diversity-loss",
        "plateau",
    )
    former_names: ClassVar[tuple[str, ...]] = ("zero-variance-groups-too-easy",)
    summary: ClassVar[str] = "Most groups are all-correct, so they contribute no gradient."
    inputs: ClassVar[tuple[Need, ...]] = ((_ALL_CORRECT, _ZERO_VARIANCE, INFERRED_ALL_CORRECT),)
    remedies: ClassVar[tuple[str, ...]] = (
        "dynamic-sampling",
        "harder-prompts",
        "keep-checkpoint",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)

    clearance: ClassVar[int] = 20
    judges_levels: ClassVar[bool] = True

    min_share: float = 0.6
    """Share of groups. Healthy runs reach up to .37 (small) and .6 (late, accuracy .82)."""
    min_readings: int = 5
    """Minimum readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of all-correct groups."""
        if has_critic(chart):
            return CRITIC_IS_BASELINE
        name = current_metric(chart, (_ALL_CORRECT, _ZERO_VARIANCE, INFERRED_ALL_CORRECT))
        quiet = UNDECIDED if name == INFERRED_ALL_CORRECT else None
        series = chart.series(name)
        if series.last < self.min_share / 2 or len(series) < self.min_readings:
            return quiet
        share = typical_share(series, 2 * RECENT)
        if not share >= self.min_share:
            return quiet
        if name == _ZERO_VARIANCE and zero_variance_cause(chart) != "all-correct":
            return None
        evidence = cite_all(chart, name, "accuracy/train", _HELDOUT)
        onset = partial(first_step_where, series, lambda value: value >= self.min_share)
        steps = in_typical_steps(series, 2 * RECENT)
        shown = f"{share:.0%} of groups are all-correct {steps}"
        if name == _ZERO_VARIANCE:  # some of them may be all-incorrect
            shown = f"{share:.0%} of groups have equal rewards {steps}, most of them all-correct"
        if (low := low_heldout_accuracy(chart)) is not None:
            text = f"{shown}, but {low.noun} is only {low.level:.0%}."
            remedies: tuple[str, ...] = ("harder-prompts", "dynamic-sampling")
            remedies = remedies if low.has_risen else ("recheck-reward", *remedies)
            return Sighting(
                "warning", text, evidence, remedies, find_onset=onset, condition=HELD_OUT_LOSS
            )
        text = f"{shown}, so they contribute no gradient."
        return Sighting("info", text, evidence, find_onset=onset)
