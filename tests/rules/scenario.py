"""Runs to try the rules on: curves with seeded noise, recorded as real steps.

A curve is a number, a list of numbers (held at its end), or a function of the step that returns a
number, a reading, or None for "not recorded at this step".
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from grpodoctor.rules.base import Finding, Rule
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.diagnosis import Change
from grpodoctor.rules.engine import Engine
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Quantiles, Rate, Reading

Point = float | int | Reading | None
Curve = float | int | NotApplicable | Sequence[float] | Callable[[int], Point]

RESPONSES = 128
"""16 prompts with 8 responses each, as in the reference runs."""

TOKENS = 12 * RESPONSES


def ramp(first: float, last: float, steps: int, *, begin: int = 0) -> Callable[[int], float]:
    """From `first` to `last` in a straight line over `steps` steps from `begin` on."""
    return lambda step: first + (last - first) * min(max((step - begin) / steps, 0.0), 1.0)


def noisy(curve: Curve, scale: float, seed: int, *, low: float = 0.0) -> Callable[[int], Point]:
    """A curve with normal noise, the same for the same seed and step, not below `low`."""

    def at(step: int) -> Point:
        point = point_of(curve, step)
        if not isinstance(point, float | int):
            return point
        return max(low, point + _normal(seed, step) * scale)

    return at


_generator = random.Random()


@functools.lru_cache(maxsize=1 << 18)
def _normal(seed: int, step: int) -> float:
    """A standard normal number that depends on the seed and the step alone."""
    _generator.seed(f"{seed}/{step}")  # faster than a new generator, with the same numbers
    return _generator.gauss(0.0, 1.0)


def every(period: int, curve: Curve) -> Callable[[int], Point]:
    """A curve that is recorded at every `period`-th step only."""
    return lambda step: point_of(curve, step) if step % period == 0 else None


def point_of(curve: Curve, step: int) -> Point:
    """A curve at a step."""
    if isinstance(curve, Sequence):
        return curve[min(step, len(curve) - 1)]
    return curve(step) if callable(curve) else curve


def reading(name: str, point: float | int | Reading) -> Reading:
    """A number as the kind of value that the metric has."""
    if not isinstance(point, float | int):
        return point
    metric = metric_of(name)
    assert metric is not None, name
    if metric.kind == "rate":
        count = TOKENS if "token" in metric.over else RESPONSES
        return Rate(round(point * count), count)
    if metric.kind == "max" or name.endswith("/worst_sequence"):
        return Max(float(point), "step-000007/prompt-3/2")
    if metric.kind == "quantiles":
        return Quantiles.of([point])
    count = TOKENS if "token" in metric.over else RESPONSES
    return Mean(Fraction(point) * count, count)


def steps(
    count: int,
    curves: Mapping[str, Curve],
    *,
    first: int = 0,
    knobs: Mapping[int, Mapping[str, Setting]] | None = None,
) -> list[StepRecord]:
    """Record `count` steps of the curves, and the changes of knobs by their step."""
    records = []
    for step in range(first, first + count):
        points = {name: point_of(curve, step) for name, curve in curves.items()}
        values = {name: reading(name, p) for name, p in points.items() if p is not None}
        records.append(StepRecord(step, values, (knobs or {}).get(step, {})))
    return records


_ACCURACY = ramp(0.47, 0.71, 70)
_Noisy = Callable[..., Callable[[int], Point]]
"""A level, its scatter, the number of its noise, and a bound below."""


def healthy(seed: int) -> dict[str, Curve]:
    """A run that goes well: entropy falls while accuracy rises, and groups thin out with success.

    Levels and scatter are those of the reference run without any fault: four updates on each batch,
    sampled by the learner itself in another precision.
    """

    def curve(base: Curve, scale: float, number: int, low: float = 0.0) -> Callable[[int], Point]:
        return noisy(base, scale, 1000 * seed + number, low=low)

    return {**_of_responses(curve), **_of_policies(curve)}


def _of_responses(curve: _Noisy) -> dict[str, Curve]:
    def easy(step: int) -> float:
        return 0.08 + 0.29 * (_ACCURACY(step) - 0.47) / 0.24

    def hard(step: int) -> float:
        return 0.053 * (0.71 - _ACCURACY(step)) / 0.24

    right = curve(easy, 0.05, 1)
    wrong = curve(hard, 0.02, 2)
    return {
        "reward/mean": curve(_ACCURACY, 0.065, 3),
        "reward/std": curve(0.46, 0.02, 4),
        "accuracy/train": curve(_ACCURACY, 0.065, 3),
        "accuracy/heldout": every(10, curve(ramp(0.5, 0.74, 70), 0.03, 5)),
        "reward/component/task/mean": curve(_ACCURACY, 0.065, 3),
        "reward/component/task/std": curve(0.46, 0.02, 4),
        "length/mean": curve(12.3, 0.6, 6),
        "length/correct": curve(12.0, 0.6, 7),
        "length/incorrect": curve(12.9, 0.8, 8),
        "length/group_gap": curve(1.0, 0.8, 9, -10.0),
        "length/truncated_rate": curve(0.005, 0.01, 10),
        "length/terminated_mean": curve(12.3, 0.6, 6),
        "entropy/mean": curve(ramp(0.5, 0.19, 80), 0.023, 11),
        "entropy/correct": curve(ramp(0.45, 0.17, 80), 0.023, 12),
        "entropy/incorrect": curve(ramp(0.55, 0.25, 80), 0.03, 13),
        "groups/size": 8,
        "groups/all_correct_rate": right,
        "groups/all_incorrect_rate": wrong,
        "groups/zero_variance_rate": lambda step: float(right(step)) + float(wrong(step)),
        "groups/effective_rate": lambda step: 1 - float(right(step)) - float(wrong(step)),
        "groups/cancelled_rate": 0,
        "groups/duplicate_rate": curve(ramp(0.15, 0.48, 80), 0.04, 14),
        "groups/reward_std": curve(0.33, 0.03, 15),
    }


def _of_policies(curve: _Noisy) -> dict[str, Curve]:
    return {
        "clip/low_rate": curve(0.003, 0.001, 16),
        "clip/high_rate": curve(0.001, 0.0005, 17),
        "clip/dual_rate": 0,
        "ratio/mean": curve(1.0, 0.002, 18),
        "ratio/max": curve(1.45, 0.1, 19),
        "ratio/sequence_max": curve(1.05, 0.02, 20),
        "mismatch/first_ratio_off": 0,
        "updates_per_batch": 4,
        "kl/reference/k3": curve(ramp(0.001, 0.08, 80), 0.005, 21),
        "kl/old_policy/k1": curve(0.001, 0.0003, 22, -1.0),
        "kl/old_policy/k3": curve(0.001, 0.0003, 22),
        "mismatch/nll_gap": curve(0.0, 0.016, 23, -1.0),
        "mismatch/prob_diff_mean": curve(0.0008, 0.0001, 24),
        "mismatch/prob_diff_max": curve(0.022, 0.002, 25),
        "mismatch/prob_diff_mean/worst_sequence": curve(0.004, 0.001, 26),
        "mismatch/prob_diff_max/worst_sequence": curve(0.15, 0.04, 27),
        "mismatch/logprob_diff_mean": curve(0.002, 0.0003, 28),
        "mismatch/logprob_diff_max": curve(0.06, 0.01, 29),
        "mismatch/bias": curve(0.0, 0.0005, 30, -1.0),
        "mismatch/kl_k1": curve(0.0, 0.0005, 31, -1.0),
        "mismatch/kl_k3": curve(0.0003, 0.0001, 32),
        "mismatch/pearson": 0.9999,
        "mismatch/nonfinite": 0,
        "advantage/abs_max": curve(2.4, 0.05, 33),
        "advantage/positive_rate": curve(0.4, 0.05, 34),
        "advantage/zero_rate": curve(0.2, 0.05, 35),
        "optimizer/loss": curve(0.0, 0.02, 36, -1.0),
        "optimizer/loss_tokens": curve(TOKENS, 60, 37),
        "optimizer/grad_norm": curve(2.4, 0.4, 38, 0.5),
        "optimizer/learning_rate": 1e-4,
        "optimizer/nonfinite": 0,
        "text/unique_ngram_rate": curve(0.93, 0.01, 39),
        "text/repetition_rate": curve(0.01, 0.005, 40),
        "staleness/mean": 0,
        "time/step": curve(0.1, 0.01, 41),
        "time/rollout": curve(0.05, 0.005, 42),
        "time/learn": curve(0.05, 0.005, 43),
    }


BANNED = (
    "as far as",
    "at hand",
    "beside",
    "borne",
    "carry no signal",
    "for want of",
    "lest",
    "no longer for it",
    "noisier or older",
    "of which",
    "said by",
    "stands",
    "strangers",
    "there is nothing",
    "throughout",
    "told",
)
"""Phrases that STYLE.md bans from texts that a user reads."""

_OWN_CODES = {rule.code for rule in all_rules()}
MOST_WORDS = 20


def check_summary(finding: Finding) -> None:
    """Check that a finding's summary is one short sentence with the decisive number."""
    summary = finding.summary
    if finding.code not in _OWN_CODES:
        return
    assert len(summary.split()) <= MOST_WORDS, summary
    assert summary[0].isupper() or summary[0].isdigit() or "/" in summary.split()[0], summary
    assert summary.endswith("."), summary
    assert ". " not in summary, summary
    assert not finding.evidence or any(map(str.isdigit, summary)), summary
    assert not any(phrase in summary.lower() for phrase in BANNED), summary


class Patient:
    """An engine that has seen some steps, and what it said while it saw them."""

    def __init__(
        self,
        records: Iterable[StepRecord],
        *,
        rules: Sequence[Rule] | None = None,
        knobs: Mapping[str, Setting] | None = None,
        framework: str = "grpodoctor",
        config: Mapping[str, Setting] | None = None,
    ) -> None:
        manifest = Manifest(knobs=dict(knobs or {}), framework=framework, config=dict(config or {}))
        self.engine = Engine(all_rules() if rules is None else rules, manifest)
        self.changes: list[tuple[int, Change]] = []
        for record in records:
            self.observe(record)

    def observe(self, record: StepRecord) -> list[Change]:
        changes = self.engine.observe(record)
        self.changes.extend((record.step, change) for change in changes)
        for change in changes:
            check_summary(change.finding)
        return changes

    def findings(self, code: str) -> list[Finding]:
        """All findings of a rule, active and resolved, by onset."""
        found = [each for each in self.engine.diagnosis().findings if each.code == code]
        return sorted(found, key=lambda each: each.onset_step)

    def finding(self, code: str) -> Finding:
        """The only finding of a rule."""
        (found,) = self.findings(code)
        return found

    def alarms(self) -> list[Finding]:
        """Findings that cost or kill."""
        return [each for each in self.engine.diagnosis().findings if each.severity != "info"]

    def why_not(self, code: str) -> str | None:
        """Why a rule does not apply; None if it does."""
        reasons = {each.code: each.why for each in self.engine.diagnosis().not_applicable}
        return reasons.get(code)

    def raised(self, code: str) -> int:
        """How often a rule's finding was raised."""
        return sum(c.kind == "raised" and c.finding.code == code for _, c in self.changes)


def altered(
    curves: Mapping[str, Curve],
    *,
    count: int = 60,
    without: Collection[str] = (),
    knobs: Mapping[str, Setting] | None = None,
    framework: str = "grpodoctor",
) -> Patient:
    """A run that goes well, except for some curves, and without those that are not logged."""
    every = {name: c for name, c in {**healthy(1), **curves}.items() if name not in without}
    return Patient(steps(count, every), knobs=knobs, framework=framework)


def successful(curve: Curve) -> dict[str, Curve]:
    """A reward of 1 for each correct response and 0 for others, so that it equals the accuracy."""
    return {"accuracy/train": curve, "reward/mean": curve}


def reward_only(reward: Curve, *, count: int = 80) -> Patient:
    """A log that contains nothing but the reward."""
    return Patient(steps(count, {"reward/mean": reward}))
