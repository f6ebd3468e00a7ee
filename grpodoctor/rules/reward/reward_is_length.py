"""REW013."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.reward_components import component_means, component_name
from grpodoctor.rules.shared.health.run_health import COLLAPSE_LOSS, RECENT, share_lost
from grpodoctor.rules.shared.reward_parts.pay_beyond_answers import (
    BY_LENGTH,
    MIN_CORRELATION,
    OTHER,
    SAME,
    beyond_answers,
    severity_beyond_answers,
)
from grpodoctor.rules.shared.reward_parts.pay_by_length import longer_earn_less
from grpodoctor.rules.shared.shapes.step_changes import may_follow, step_changes
from grpodoctor.rules.shared.shapes.trend import start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition

_REWARD = "reward/mean"
_LENGTH = "length/mean"
_TRUNCATED = "length/truncated_rate"
_TURNS = "environment/turns_mean"


class RewardIsLength(Rule):
    """The reward follows the length of the responses, from one step to the next.

    What it sees:
        The changes of the mean reward and of the mean length from step to step, over the latest
        readings. Their correlation is near 1 or -1, and the length has changed. Where a response is
        a single turn, .9 is enough for a reward that rises with longer responses: in proportion to
        the length, or to its logarithm. If that holds for one component of the reward and not for
        the sum, the finding is `info`, or a warning if another component has lost a third of its
        best level.

        A step at which the reward fell and the mean advantage of a token as well, or minus the
        loss where that is an average over tokens, while responses were as long as before: since
        then longer responses earn less.

        Responses to one prompt that state the same answer, in a box or after `#`: their rewards
        differ by a quarter of the variance between answers or more, and by their length. It is
        `info` where accuracy or reward has risen, and below three quarters before sixty readings.

    Why it matters:
        The reward function pays for tokens, or for their absence, and for little else. The policy
        learns to write long or short responses; the reward rises as in any good run.

    Evidence it needs:
        `reward/mean` or `accuracy/train`, and `length/mean`. Optional:
        `reward/component/<name>/mean`, `length/truncated_rate`, `environment/turns_mean`,
        `advantage/mean`, `optimizer/loss`; responses in the record or in a rollout dump.

    Remedies:
        Check the reward function and the weight of its length term. Since a step: look for a
        timeout or a limit of the verifier that long responses exceed.

    When it is wrong:
        In a task whose answer is a length, the two move together as well; so they do in a game that
        pays for each turn that the policy survives, in a log without the number of turns. Truncated
        responses are long and earn nothing, so the rule ignores a negative correlation while
        responses are truncated. Prompts that became harder may make wrong responses longer; then
        the mean length grows at once, and the rule is quiet.

    References:
        Singhal et al. 2023, A Long Way to Go, arXiv 2310.03716.
    """

    code: ClassVar[str] = "REW013"
    name: ClassVar[str] = "reward-is-length"
    condition: ClassVar[Condition] = "wrong-reward"
    explains: ClassVar[tuple[Condition, ...]] = (
        "length-growth",
        "length-loss",
        "truncation",
        "repetition",
        "reward-loss",
    )
    summary: ClassVar[str] = "The reward follows the length of the responses."
    inputs: ClassVar[tuple[Need, ...]] = ((_REWARD, "accuracy/train"), _LENGTH)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2310.03716",)
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 10
    cadence: ClassVar[int] = 5

    readings: int = 30
    """Latest readings that are compared."""
    min_correlation: float = 0.99
    """Correlation of the changes: length then explains 98 % of their variance. In healthy agentic
    runs, where failed episodes are the long ones, it is up to -.98."""
    min_growth_correlation: float = 0.85
    """The same for a reward that rises with the length of single-turn responses: the length then
    explains seven tenths of its changes, whose rest is the noise of the correct answers. Public
    runs of such tasks show at most .31, since a batch of longer responses is hardly more correct;
    that is five standard errors less (Fisher's z)."""
    single_turn: float = 1.5
    """Mean turns up to which a response is a single turn."""
    min_truncated: float = 0.05
    """Share of truncated responses that explains why the reward falls with the length."""
    beyond_answers: float = 0.25
    """Reward variance between responses with one answer, as a share of that between answers; see
    REW021."""
    min_change: float = 1.25
    """Factor by which the length must have moved: a reward may follow a length that it does not
    drive."""

    def examine(self, chart: Chart) -> RuleResult:
        """Correlate the changes of the reward, then of its components, with those of the length."""
        ways = (
            self._judge_reward, self._since_a_step, self._judge_same_answers,
            self._judge_components,
        )  # fmt: skip
        found = [each for each in (judge(chart) for judge in ways) if each]
        warned = [each for each in found if each.severity == "warning"]
        return next(iter(warned or found), None)

    def _judge_same_answers(self, chart: Chart) -> Sighting | None:
        """Responses with one answer, which are right or wrong together, earn by their length."""
        found = beyond_answers(chart)
        if found is None or found.share < self.beyond_answers:
            return None
        if abs(found.by_length) < MIN_CORRELATION:
            return None
        text = (
            f"Of responses with the same answer, {'longer' if found.by_length > 0 else 'shorter'} "
            f"ones earn more: {min(found.share, 9.99):.0%} of the variance between answers."
        )
        severity = severity_beyond_answers(chart, found)
        evidence = cite_all(chart, SAME, OTHER, BY_LENGTH)
        first = chart.series(SAME).steps(WINDOW)[0]
        return Sighting(severity, text, evidence, find_onset=lambda: first)

    def _since_a_step(self, chart: Chart) -> Sighting | None:
        """Longer responses that earn less from some step on, at first with the same responses."""
        found = longer_earn_less(chart)
        if found is None:
            return None
        noun = "reward" if len(chart.series(_REWARD)) else "accuracy"
        text = (
            f"Since step {found.step} longer responses earn less: {noun} fell from "
            f"{found.before:.2g} to {found.after:.2g}, a token's advantage from "
            f"{found.advantage_before:.2g} to {found.advantage_after:.2g}."
        )
        metrics = (_REWARD, "accuracy/train", _LENGTH, "advantage/mean", "optimizer/loss")
        evidence, first = cite_all(chart, *metrics), found.step
        return Sighting("warning", text, evidence, find_onset=lambda: first)

    def _judge_components(self, chart: Chart) -> Sighting | None:
        components, onset = component_means(chart), partial(self._first_step, chart)
        for name in components:
            slope = self._pay_per_token(chart, name)
            if slope is None:
                continue
            text = f"Component {component_name(name)} pays {slope:.2g} per token of the mean length"
            lost = next((each for each in components if self._is_lost(chart, each)), None)
            if lost is None:
                evidence = cite_all(chart, name, _LENGTH)
                return Sighting("info", f"{text}.", evidence, find_onset=onset)
            before = chart.series(lost).highest
            fell = f"fell from {before.level:.3g} " if before else "fell "
            text = (
                f"{text}; {component_name(lost)} {fell}to {chart.series(lost).level(RECENT):.3g}."
            )
            evidence = cite_all(chart, name, _LENGTH, lost)
            began = before.step if before else self._first_step(chart)
            return Sighting("warning", text, evidence, find_onset=partial(int, began))
        return None

    def _first_step(self, chart: Chart) -> int:
        """The first of the readings that were compared: the relation holds over all of them."""
        return chart.series(_LENGTH).steps(self.readings)[0]

    def _pay_per_token(self, chart: Chart, name: str) -> float | None:
        """What a component pays per token, if it follows the length or its logarithm."""
        length, component = chart.series(_LENGTH), chart.series(name)
        if not may_follow(length, component, self.readings):
            return None  # the usual case, for both kinds of changes
        for relative in (False, True):
            found = step_changes(length, component, self.readings, relative=relative)
            if found is not None and abs(found.correlation) >= self.min_correlation:
                return found.slope / (length.level(RECENT) if relative else 1.0)
        return None

    def _is_lost(self, chart: Chart, name: str) -> bool:
        """Whether a component has lost a third of its best level."""
        return share_lost(chart.series(name)) >= COLLAPSE_LOSS

    def _judge_reward(self, chart: Chart) -> Sighting | None:
        length, start = chart.series(_LENGTH), start_level(chart.series(_LENGTH))
        if len(length) < self.readings or not start or start <= 0:
            return None
        level = length.level(self.readings // 3)
        if max(level, start) < self.min_change * min(level, start):
            return None
        found = self._correlation(chart)
        if found is None:
            return None
        text = (
            f"The reward follows the length (correlation {found:.2f}), "
            f"which went from {start:.3g} to {level:.3g} tokens."
        )
        evidence = cite_all(chart, _REWARD, _LENGTH)
        return Sighting("warning", text, evidence, find_onset=partial(self._first_step, chart))

    def _correlation(self, chart: Chart) -> float | None:
        """The correlation of reward and length; None if it is too weak."""
        length, reward = chart.series(_LENGTH), chart.series(_REWARD)
        if not may_follow(length, reward, self.readings):
            return None
        changes = step_changes(length, reward, self.readings)
        relative = step_changes(length, reward, self.readings, relative=True)
        found = [each.correlation for each in (changes, relative) if each is not None]
        if not found:
            return None
        strongest = max(found, key=abs)
        if strongest < 0:
            # A truncated response is the longest and earns nothing.
            truncated = chart.series(_TRUNCATED)
            is_cut = len(truncated) > 0 and truncated.level(self.readings) >= self.min_truncated
            return None if is_cut or strongest > -self.min_correlation else strongest
        turns = chart.series(_TURNS)
        is_single = not len(turns) or turns.level(self.readings) <= self.single_turn
        is_growth = is_single and length.level(self.readings // 3) > (start_level(length) or 0)
        least = self.min_growth_correlation if is_growth else self.min_correlation
        return strongest if strongest >= least else None
