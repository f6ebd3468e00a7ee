"""REW021."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.reward_components import is_sum
from grpodoctor.rules.shared.outcome.flat_outcome import outcome_rose
from grpodoctor.rules.shared.reward_parts.pay_beyond_answers import (
    MIN_CORRELATION,
    MIN_FLAT,
    OTHER,
    SAME,
    beyond_answers,
    severity_beyond_answers,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Rate

_EQUAL, _OTHER = "groups/equal_text_variance", "groups/other_text_variance"
_CORRELATION = "reward/answer_correlation"
_DISAGREEMENT = "reward/answer_disagreement_rate"
_AGREED, _AGREED_WRONG = "groups/agreed_rate", "groups/agreed_incorrect_rate"
_ACCURACY, _REWARD = "accuracy/train", "reward/mean"
_BY_PLACE, _LENGTH_BY_PLACE = "groups/reward_by_place", "groups/length_by_place"


class RewardsIgnoreResponses(Rule):
    """Rewards do not follow what the responses say.

    What it sees:
        The responses of each batch, in one of six ways. Identical responses to one prompt whose
        rewards differ: by at least half as much variance as those of different responses, or, as a
        note, by a twentieth. Rewards that, within the groups, hardly correlate with whether the
        final answer is the reference answer, or correlate negatively. Rewards of two values that
        disagree with the reference answer in a tenth of the responses, as a note. Rewards
        that depend on the place of a response in its group, by a twentieth of the variance, while
        lengths do not. Groups that agree on one final answer with a digit, in a box or after `#`,
        which is scored as wrong in more than a quarter of them; not where the answers are one of
        five choices or fewer. Rewards that differ between responses which state the same answer of
        this kind: by a quarter of the variance between answers, beyond that of identical responses.
        It is a warning where accuracy or reward has not risen; for the same answers, only after
        sixty readings, and if the reward is a verdict of two values: a sum pays for other things on
        purpose, and may be flat for other reasons. It is also one where the success of responses
        differs as much between those with the same answer, from the start of the run to now.

    Why it matters:
        The reward does not judge the response: scores reach other rows, answers belong to other
        prompts, prompts lost a part, labels are inverted, a judge times out, one of several reward
        workers fails, or one response of a group is scored for all. The mean reward does not show
        it, since the policy learns what is rewarded, or nothing.

    Evidence it needs:
        Responses in the record or in a rollout dump. For the comparison with answers, also the
        reference answers: verl's `gts`; a column `answer`, `solution`, `ground_truth`, `reference`
        or `target` in TRL's completions; or the references of an attached run. For the comparison
        of places, a run of the bundled trainer or an attached one.

    Remedies:
        Score the same responses twice, and known answers once.

    When it is wrong:
        An environment with chance, or a judge that is sampled, scores identical texts differently
        by design; the summary states how much. Responses of a group that are sampled differently,
        such as with a hint, may earn differently at the same length. A reward for style need not
        follow the answer. The comparison reads the last box, the text after the last `#`, or the
        last number. Answers that may be equal in another notation, and responses with another
        number behind the reference, are left out. A right answer in a wrong format disagrees. A
        policy that is certain of wrong answers agrees on them, more so if there are few choices. A
        reward for style, brevity or steps differs between responses with one answer on purpose; so
        does a verdict on the way to an answer that the prompt states.

    References:
        Fisher 1925, Statistical Methods for Research Workers, chapter VII (intraclass correlation);
        Wang et al. 2023, Self-Consistency, arXiv 2203.11171 (agreement predicts correctness).
    """

    code: ClassVar[str] = "REW021"
    name: ClassVar[str] = "rewards-ignore-responses"
    condition: ClassVar[Condition] = "noisy-reward"
    explains: ClassVar[tuple[Condition, ...]] = ("undersized-updates",)
    summary: ClassVar[str] = "Rewards do not follow what the responses say."
    inputs: ClassVar[tuple[Need, ...]] = ((_EQUAL, _CORRELATION, _BY_PLACE, _AGREED_WRONG, SAME),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = (
        "Fisher 1925, Statistical Methods for Research Workers",
        "arXiv 2203.11171",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 5

    min_readings: int = 20
    """Batches with such responses; a verdict needs as many readings."""
    mostly_noise: float = 0.5
    """Part of the variance of a group that identical responses have: the reward then says as much
    about chance as about the response."""
    some_noise: float = 0.05
    """The same for a note. A reward that is a function of prompt and response has none."""
    least_correlation: float = 0.1
    """Correlation with the reference answer, two standard errors included, below which the answer
    explains one hundredth of the reward's variance."""
    by_place: float = 0.05
    """Share of the variance that the place explains, four standard errors less. Exchangeable
    responses have 0 on average."""
    place_errors: float = 4.0
    """Standard errors of that share, and of the share of the lengths."""
    agreed_wrong: float = 0.25
    """Share of the groups that agree, three standard errors less. In healthy runs of the built-in
    task, three in a hundred of these groups fail."""
    min_agreed: int = 40
    """Groups that agree."""
    beyond_answers: float = 0.25
    """Variance between responses with the same answer as a share of that between answers, three
    standard errors less. Healthy runs of the built-in task have at most .01 beyond that of
    identical responses, parts for format and length included."""
    blind: float = 0.5
    """The same where success itself does not follow the answer, so that its rise is no excuse."""
    blind_estimate: float = 0.75
    """The same without the standard errors. It is 1 if the answer says nothing. A format that the
    verdict depends on gives at most twice the share of right answers that lack it, and it is
    learned, so its share falls during the run."""
    min_blind: int = MIN_FLAT
    """Readings of such a success: formats are learned within some dozen steps."""
    disagreeing: float = 0.1
    """Share of responses for a note. A format that is not learned yet gives as much at first."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare identical responses, rewards and reference answers, and the places in a group."""
        if not any(map(chart.is_fresh, self.inputs[0])):
            return NOT_LOGGED
        ways = (
            self._by_answers, self._by_place, self._by_texts, self._by_agreement,
            self._beyond_answers,
        )  # fmt: skip
        sightings = [examine(chart) for examine in ways]
        found = [each for each in sightings if each]
        warned = [each for each in found if each.severity == "warning"]
        return next(iter(warned or found), None)

    def _severity(self, chart: Chart) -> Severity:
        return "info" if outcome_rose(chart) else "warning"

    def _by_texts(self, chart: Chart) -> Sighting | None:
        equal, other = chart.series(_EQUAL).tail(WINDOW), chart.series(_OTHER).tail(WINDOW)
        if min(len(equal), len(other)) < self.min_readings:
            return None
        among, between = _mean(equal), _mean(other)
        if not between > 0 or not among >= self.some_noise * between:
            return None  # the usual case
        share = among / between
        text = (
            f"Identical responses to a prompt differ in reward: {min(share, 9.99):.0%} of the "
            f"variance of different ones."
        )
        severity: Severity = "info" if share < self.mostly_noise else self._severity(chart)
        return Sighting(severity, text, cite_all(chart, _EQUAL, _OTHER))

    def _by_agreement(self, chart: Chart) -> Sighting | None:
        """Groups that agree on an answer which is scored as wrong."""
        if not chart.is_fresh(_AGREED_WRONG):
            return None
        wrong, agreed = dict(chart.series(_AGREED_WRONG)), list(chart.series(_AGREED))[-WINDOW:]
        reading = chart.reading(_AGREED)
        judged = reading.count if isinstance(reading, Rate) else 0
        weights = [(wrong[step], judged * rate) for step, rate in agreed if step in wrong]
        count = math.fsum(weight for _, weight in weights)
        if count < self.min_agreed:
            return None
        share = math.fsum(each * weight for each, weight in weights) / count
        if share - 3 * math.sqrt(share * (1 - share) / count) < self.agreed_wrong:
            return None
        text = f"{share:.0%} of the groups that agree on an answer are scored as wrong."
        return Sighting(self._severity(chart), text, cite_all(chart, _AGREED_WRONG, _AGREED))

    def _beyond_answers(self, chart: Chart) -> Sighting | None:
        """Rewards that differ between responses with the same answer, and not by chance."""
        found = beyond_answers(chart)
        if found is None or not found.share - found.noise >= self.beyond_answers:
            return None
        if abs(found.by_length) >= MIN_CORRELATION:
            return None  # REW013 reports a reward that follows the length
        text = (
            f"Responses with the same answer differ in reward: {min(found.share, 9.99):.0%} of the "
            "variance between answers."
        )
        # A reward of 0 or 1 that the answer does not explain rises without success. The parts of a
        # sum pay for other things on purpose.
        is_verdict = chart.is_fresh(_ACCURACY) and chart.is_fresh(_REWARD) and not is_sum(chart)
        is_lasting = found.lasts and chart.series(SAME).readings >= self.min_blind
        is_large = found.share - found.noise >= self.blind and found.estimate >= self.blind_estimate
        is_blind = is_verdict and is_lasting and is_large
        severity: Severity = "info" if is_sum(chart) else severity_beyond_answers(chart, found)
        if is_blind:
            severity = "warning"
        return Sighting(severity, text, cite_all(chart, SAME, OTHER, _EQUAL))

    def _by_place(self, chart: Chart) -> Sighting | None:
        """Rewards that depend on the place of a response in its group, at equal lengths."""
        if not chart.is_fresh(_BY_PLACE):
            return None
        values = _finite(chart.series(_BY_PLACE).tail(WINDOW))
        lengths = _finite(chart.series(_LENGTH_BY_PLACE).tail(WINDOW))
        if min(len(values), len(lengths)) < self.min_readings:
            return None
        share = statistics.fmean(values)
        if not share - self.place_errors * _error(values) >= self.by_place:
            return None
        if statistics.fmean(lengths) + self.place_errors * _error(lengths) > share:
            return None  # the responses themselves differ by their place
        text = (
            f"Rewards depend on the place in the group: it explains {share:.0%} of their variance."
        )
        return Sighting(self._severity(chart), text, cite_all(chart, _BY_PLACE, _LENGTH_BY_PLACE))

    def _by_answers(self, chart: Chart) -> Sighting | None:
        values = _finite(chart.series(_CORRELATION).tail(WINDOW))
        if len(values) < self.min_readings:
            return None
        mean = statistics.fmean(values)
        error = _error(values)
        evidence = cite_all(chart, _CORRELATION, _DISAGREEMENT)
        if mean + 2 * error < self.least_correlation:
            text = (
                f"Rewards do not follow the reference answers: their correlation is {mean:.2f} "
                f"over {len(values)} batches."
            )
            return Sighting(self._severity(chart), text, evidence)
        disagreement = chart.series(_DISAGREEMENT)
        if not chart.is_fresh(_DISAGREEMENT) or len(disagreement) < self.min_readings:
            return None
        share = _mean(disagreement.tail(self.min_readings))
        if not share >= self.disagreeing:
            return None
        text = f"{share:.0%} of the rewards disagree with the reference answer of the prompt."
        return Sighting("info", text, evidence)


def _finite(values: Sequence[float]) -> list[float]:
    return list(filter(math.isfinite, values))


def _mean(values: Sequence[float]) -> float:
    known = _finite(values)
    return statistics.fmean(known) if known else math.nan


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    return statistics.stdev(values) / math.sqrt(len(values))
