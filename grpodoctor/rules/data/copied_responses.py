"""DAT006."""

from __future__ import annotations

import math
import statistics
from functools import partial
from itertools import takewhile
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.groups.whole_group_copies import (
    chance_of_whole_groups,
    copies_whole_groups,
)
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    zero_variance_metric,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Rate

_DUPLICATES, _EXPECTED = "groups/duplicate_rate", "groups/expected_duplicate_rate"
_RETURNED, _BY_CHANCE = "groups/returned_rate", "groups/returned_by_chance"
_HIGHEST, _LOWEST = "advantage/max", "advantage/min"
_GAP = "mismatch/nll_gap"
_EXACT = 1e-4
"""Difference of two logged advantages that are one number."""
_LARGEST_GROUP = 32
"""Responses of a group up to which the advantage of a half tells their number."""
_WHOLE = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""Settings that sample from the whole distribution."""
_OFF = (-1, None)
"""Other ways to switch them off."""


class CopiedResponses(Rule):
    """Responses of a group are identical far more often than independent sampling explains.

    What it sees:
        The share of responses that repeat an earlier one of their group, compared with the share
        that their own probabilities imply. A response of probability `q` is repeated by each
        further draw with probability `q`.

        If every group is one response, copied, and probabilities far from 1 do not explain it, a
        sampler that is sharper than the learner is no excuse: it samples greedily.

        Where no probabilities are known, entropy and length show the same: a policy of that entropy
        repeats itself in every group with a negligible chance only.

        Groups whose responses are exactly those that the same prompt had at an earlier step, in a
        tenth more of the repeated prompts than any policy that samples would give.

        Without these shares: advantages whose largest and lowest value is that of a group of four
        or more in which half of the responses succeed, in twenty batches in a row. Independent
        responses split into other parts as well; two responses in equal numbers of copies do not.

    Why it matters:
        Rows were copied: a collator or a gather hands out the same rows twice, requests share a
        seed, or a cache answers repeated prompts. A group of eight then has the information of
        four, or that of a policy of long ago. Copies also count twice in the mean of the group, so
        its advantages are wrong, and entropy and reward look normal.

    Evidence it needs:
        `groups/duplicate_rate` and `groups/expected_duplicate_rate`, which need the tokens and the
        log-probabilities of each response; or `groups/duplicate_rate` of a rollout dump with
        `entropy/mean`, `length/mean` and `length/max`. For earlier steps, a rollout dump in which
        prompts repeat. Otherwise `advantage/max` and `advantage/min`.

    Remedies:
        Give every request its own seed, and look for the place where rows are doubled.

    When it is wrong:
        Top-p, top-k or a lower temperature in the sampler make duplicates more likely than the
        log-probabilities tell. The rule does not look where such a setting is known, or where the
        samples are sharper than the learner (MIS003), unless all responses of each group are equal.
        A dump that has each row twice shows copies that were not trained on: where groups vary in
        the log, entropy alone is no proof.
        A replay buffer returns responses of earlier steps on purpose.

    References:
        Broder 1997, On the Resemblance and Containment of Documents.
    """

    code: ClassVar[str] = "DAT006"
    name: ClassVar[str] = "copied-responses"
    condition: ClassVar[Condition] = "copied-rollouts"
    explains: ClassVar[tuple[Condition, ...]] = (
        "solved",
        "held-out-loss",
        "off-policy",
        "zero-gradient",
    )
    summary: ClassVar[str] = "Responses of a group are copies of each other."
    inputs: ClassVar[tuple[Need, ...]] = ((_DUPLICATES, _RETURNED, _HIGHEST),)
    remedies: ClassVar[tuple[str, ...]] = ("check-copied-rows",)
    references: ClassVar[tuple[str, ...]] = (
        "Broder 1997, On the Resemblance and Containment of Documents",
    )
    clearance: ClassVar[int] = RECENT

    min_excess: float = 0.1
    """Share of duplicates above the expected one, in each of the latest batches. In 40 runs with
    batches of 64 or 128 responses, one batch reached .09, and the lowest of five in a row .02."""
    readings: int = 5
    """Number of latest batches; all of them must exceed the threshold."""
    min_standard_errors: float = 5.0
    """Standard errors of the mean excess of these batches, for batches of few responses. The error
    is that of a share of one half, the largest: in batches of 64 it is twice the measured one."""
    sharper: float = -0.03
    """Gap between -log p of the samples and the entropy, in nats, below which the sampler is
    sharper than the learner; MIS003 notes it from there on."""

    max_chance: float = 1e-3
    """Bound of the chance of copies in all groups, for the policy that makes them most likely. A
    policy whose entropy is spread over its tokens has a far smaller one."""

    least_equal: float = 0.9
    """Share of groups with equal rewards that the log has at least if all are copies. Where it is
    lower, the rows of the dump are doubled, or the judge is noisy (REW021)."""
    min_batches: int = 10
    """Batches with repeated prompts."""

    min_halves: int = 20
    """Batches in which all groups that differ are split in half. Four independent responses that
    differ are so with a chance of .43 at most, and all of twenty batches with 5e-8."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for responses of earlier steps, then for copies within groups."""
        return self._returned(chart) or self._within_groups(chart)

    def _returned(self, chart: Chart) -> Sighting | None:
        """Groups of an earlier step, beyond what any policy that samples would give."""
        if not chart.is_fresh(_RETURNED):
            return None
        shares, chances = (chart.series(name).tail(WINDOW) for name in (_RETURNED, _BY_CHANCE))
        if min(len(shares), len(chances)) < self.min_batches:
            return None
        share, chance = statistics.fmean(shares), statistics.fmean(chances)
        reading = chart.reading(_RETURNED)
        count = reading.count if isinstance(reading, Rate) else 1
        error = math.sqrt(0.25 / (len(shares) * max(1, count)))
        if not share - chance >= max(self.min_excess, self.min_standard_errors * error):
            return None
        text = (
            f"{share:.0%} of repeated prompts get the responses of an earlier step; "
            f"chance explains {chance:.0%}."
        )
        return Sighting("warning", text, (cite(chart, _RETURNED, chance), cite(chart, _BY_CHANCE)))

    def _within_groups(self, chart: Chart) -> RuleResult:
        """Compare the two shares of duplicates, batch by batch, or look for halves."""
        observed = chart.series(_DUPLICATES)
        if not len(observed):
            return self._halves(chart)
        if not chart.is_fresh(_EXPECTED):
            return self._greedy(chart) or NOT_LOGGED
        if not self._exceeds(observed.last, chart.value(_EXPECTED) or 0.0):
            return None  # the usual case
        settings = chart.config.settings(chart.knobs)
        if any(settings.get(name, whole) not in (whole, *_OFF) for name, whole in _WHOLE.items()):
            return NOT_LOGGED
        are_whole = copies_whole_groups(chart)
        is_sharper = chart.is_fresh(_GAP) and chart.series(_GAP).level(RECENT) < self.sharper
        if is_sharper and not are_whole:
            return None
        expected = dict(chart.series(_EXPECTED))
        rows = [(step, each, expected[step]) for step, each in observed if step in expected]
        latest = rows[-self.readings :]
        if len(latest) < self.readings:
            return None
        if not all(self._exceeds(share, chance) for _, share, chance in latest):
            return None
        _, share, chance = map(statistics.fmean, zip(*latest, strict=True))
        if not share - chance >= self._chance_excess(chart):
            return None
        text = f"{share:.0%} of responses repeat one of their group; chance explains {chance:.0%}."
        if are_whole:
            text = f"Each group is copies of one response; chance explains {chance:.0%} of them."
        remedies = ("one-temperature", "check-copied-rows") if is_sharper else None
        evidence = (cite(chart, _DUPLICATES, chance), cite(chart, _EXPECTED))
        return Sighting("warning", text, evidence, remedies, lambda: int(latest[0][0]))

    def _greedy(self, chart: Chart) -> Sighting | None:
        """Groups of copies that the entropy of the policy excludes."""
        if not chance_of_whole_groups(chart) <= self.max_chance:
            return None
        flat = zero_variance_metric(chart)
        if flat is not None and chart.series(flat).level(WINDOW) < self.least_equal:
            return None  # groups vary in the log, so the dump has its rows several times
        entropy = current_metric(chart, ENTROPY_METRICS)
        text = (
            "Each group is copies of one response, at an entropy of "
            f"{chart.series(entropy).level(RECENT):.2g} nats per token."
        )
        evidence = cite_all(chart, _DUPLICATES, entropy)
        first = chart.series(_DUPLICATES).steps(WINDOW)[0]
        remedies = ("one-temperature", "check-copied-rows")
        return Sighting("warning", text, evidence, remedies, lambda: first)

    def _halves(self, chart: Chart) -> RuleResult:
        """Batches whose groups all split in half, as the advantages of the halves show."""
        highest, lowest = chart.series(_HIGHEST), chart.series(_LOWEST)
        if not len(highest):
            return None  # only the responses of earlier steps are known
        size, value = chart.knobs.get("group_size"), highest.last
        if not any(abs(value - each) <= _EXACT for each in _advantages_of_halves(size)):
            return None  # the usual case
        lows = dict(lowest)
        rows = [(step, high, lows[step]) for step, high in highest if lows.get(step)]
        halves = list(takewhile(partial(_is_half, value), reversed(rows)))
        if len(halves) < self.min_halves:
            return None
        text = (
            f"Advantages are ±{value:.3g} in {len(halves)} batches: each group splits in half, as "
            "copies of two responses do."
        )
        evidence = (cite(chart, _HIGHEST), cite(chart, _LOWEST))
        return Sighting("warning", text, evidence, find_onset=lambda: int(halves[-1][0]))

    def _chance_excess(self, chart: Chart) -> float:
        """The mean excess that chance does not reach; infinite if the responses are not counted."""
        reading = chart.reading(_DUPLICATES)
        if not isinstance(reading, Rate) or not reading.count:
            return math.inf
        return self.min_standard_errors * math.sqrt(0.25 / (self.readings * reading.count))

    def _exceeds(self, share: float, chance: float) -> bool:
        return share - chance >= self.min_excess


def _is_half(value: float, row: tuple[int, float, float]) -> bool:
    """Whether the largest and the lowest advantage of a batch are a value and its negative."""
    _, high, low = row
    return max(abs(high - value), abs(low + value)) <= _EXACT


def _advantages_of_halves(size: object) -> list[float]:
    """The standardized advantage of each half of a group with two rewards, for possible sizes.

    The standard deviation is that of a sample: `n` responses in halves have sqrt((n - 1) / n). Two
    responses that differ are halves by themselves.
    """
    sizes = [size] if isinstance(size, int) else range(4, _LARGEST_GROUP + 1, 2)
    return [math.sqrt((each - 1) / each) for each in sizes if each >= 4 and each % 2 == 0]
