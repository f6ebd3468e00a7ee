"""How often chance alone passes four tests, and how often they see what they are for.

Jumps of a mismatch at a resume (SYN004), held-out outcomes that rise a little or not at all beside
the training reward (REW008), falls within one reading of a level that stays (REW002's note), and
falls of the reward and of a token's advantage at one step of a healthy training (REW013).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator

import numpy as np
from bench_trend import noise

from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.engine import Engine
from grpodoctor.rules.shared.reward_parts.pay_by_length import BEFORE as BEFORE_FALL
from grpodoctor.rules.shared.reward_parts.pay_by_length import NEARBY, falls_at
from grpodoctor.rules.shared.shapes.level_jumps import level_jump
from grpodoctor.rules.shared.shapes.spikes import BEFORE, LASTING, jump_at
from grpodoctor.rules.sync.mismatch_after_resume import MismatchAfterResume
from grpodoctor.runs.series import Series
from tests.benchmarks.planted_mechanisms.examination import trained
from tests.benchmarks.planted_mechanisms.plants import HEALTHY
from tests.rules.scenario import steps

REPEATS, RESUME, LENGTH = 200, 31, 60
FLOOR, LEVEL = 0.0004, 0.006
"""A mean absolute difference of log-probabilities below which jumps do not matter, and a usual
one."""
SPREADS = (0.03, 0.1, 0.25)
FALLS, FALL_LENGTH, FALL_NOISES = 2_000, 40, (4.0, 5.0)
TRAININGS, JOINT_ERRORS = 8, (3.0, 4.0, 5.0)
"""Trainings of each healthy kind, and standard errors by which two levels fall at one step."""
PAID_BY_LENGTH = {
    "reward/mean": "reward",
    "advantage/mean": "mean_advantage",
    "length/mean": "length",
    "length/truncated_rate": "truncated",
}
"""What REW013 reads, and its names in a training."""


def mismatch(draw: np.random.Generator, kind: tuple[float, float, float, bool]) -> np.ndarray:
    """A logged mismatch: autocorrelated noise, perhaps with a drift and outliers."""
    autocorrelation, spread, drift, has_outliers = kind
    error = spread * noise(draw, LENGTH, autocorrelation)
    if has_outliers:
        error *= np.where(draw.random(LENGTH) < 0.1, 3.0, 1.0)
    return LEVEL * np.exp(error + drift * np.arange(LENGTH) / LENGTH)


def has_jump(values: np.ndarray) -> bool:
    """Whether SYN004's test for known noise passes at any time after the resume."""
    rule, series = MismatchAfterResume(), Series()
    for step, value in enumerate(values, 1):
        series.append(step, float(value))
        if step < max(RESUME, BEFORE) + LASTING - 1:
            continue
        if jump_at(series, RESUME, rule.least_factor, FLOOR, rule.noise_ranges):
            return True
    return False


def resumes() -> Iterator[str]:
    """Alarms without a jump, and the share of jumps by two that are seen."""
    draw = np.random.default_rng(1)
    kinds = list(itertools.product((0.0, 0.5, 0.8, 0.95), SPREADS, (0.0, 1.0), (False, True)))
    chance = sum(has_jump(mismatch(draw, kind)) for kind in kinds for _ in range(REPEATS))
    yield f"SYN004: {chance} of {len(kinds) * REPEATS:,} resumes without a jump"
    for spread in SPREADS:
        of_spread = [kind for kind in kinds if kind[1] == spread]
        seen = []
        for number in range(REPEATS):
            values = mismatch(draw, of_spread[number % len(of_spread)])
            values[RESUME - 1 :] *= 2
            seen.append(has_jump(values))
        yield f"  jumps by two at a noise of {spread:.0%}: {statistics.fmean(seen):.0%} seen"


def evaluated(
    draw: np.random.Generator, last: float, prompts: int, shape: int
) -> tuple[bool, bool]:
    """Whether REW008 is ever a warning while the reward rises from .3 to .7, and at the end.

    Held-out accuracy rises from .2 to `last`, with the noise of its number of prompts.
    """
    count, every = ((60, 5), (200, 10))[shape]
    times = np.arange(count) / (count - 1)
    course = (times, 1 - np.exp(-4 * times))[shape]
    rewards = 0.3 + 0.4 * course + draw.normal(0, 0.02, count)
    held = draw.binomial(prompts, 0.2 + (last - 0.2) * course) / prompts
    engine, ever = Engine([rule for rule in all_rules() if rule.code == "REW008"]), False
    curves: dict[str, Callable[[int], float | None]] = {
        "reward/mean": lambda step: float(rewards[step]),
        "accuracy/heldout": lambda step: float(held[step]) if step % every == every - 1 else None,
    }
    for record in steps(count, curves):
        for change in engine.observe(record):
            ever |= change.kind != "resolved" and change.finding.severity == "warning"
    active = [each for each in engine.diagnosis().findings if each.active]
    return ever, any(each.severity == "warning" for each in active)


def stalls() -> Iterator[str]:
    """Alarms for rises by a fifth and a quarter of the reward's, and the stalls that are seen."""
    draw = np.random.default_rng(2)
    for words, lasts, sizes in (
        ("rises of .08 and .1", (0.28, 0.3), (50, 200, 500)),
        ("stalls", (0.2,), (200, 500)),
    ):
        cases = list(itertools.product(lasts, sizes, (0, 1)))
        found = [evaluated(draw, *case) for case in cases for _ in range(REPEATS // 4)]
        ever, at_end = (statistics.fmean(column) for column in zip(*found, strict=True))
        alarms = f"{ever:.1%} of {len(found)} an alarm at any time, {at_end:.1%} at the end"
        yield f"REW008: {words}: {alarms}"


def falls() -> Iterator[str]:
    """Runs around one level in which some reading is a fall by so many noises."""
    for noises in FALL_NOISES:
        draw, count = np.random.default_rng(3), 0
        for _ in range(FALLS):
            values = [float(each) for each in 1 + 0.05 * draw.normal(size=FALL_LENGTH)]
            tried = (level_jump(values, at, noises) for at in range(20, FALL_LENGTH - 5))
            count += any(each is not None and each[1] < each[0] for each in tried)
        yield f"a fall by {noises:.0f} noises: {count} of {FALLS:,} runs of {FALL_LENGTH} readings"


def joint_falls() -> Iterator[str]:
    """Healthy trainings in which reward and a token's advantage fell at one step; REW013's alarms.

    The rule asks for more than the falls: the latest readings, the size, the length.
    """
    count, alarms, total = dict.fromkeys(JOINT_ERRORS, 0), 0, TRAININGS * len(HEALTHY)
    for seed, mechanism in itertools.product(range(1, TRAININGS + 1), HEALTHY.values()):
        _, rows = trained(mechanism, f"chance/{seed}/{mechanism.name}")
        curves = {name: [float(row[key]) for row in rows] for name, key in PAID_BY_LENGTH.items()}
        pair = curves["reward/mean"], curves["advantage/mean"]
        places = range(BEFORE_FALL, len(rows) - NEARBY + 1)
        for errors in JOINT_ERRORS:
            count[errors] += any(all(falls_at(each, at, errors) for each in pair) for at in places)
        engine = Engine([rule for rule in all_rules() if rule.code == "REW013"])
        changes = (change for step in steps(len(rows), curves) for change in engine.observe(step))
        alarms += any(change.finding.severity == "warning" for change in changes)
    shares = ", ".join(f"{found} (by {errors:.0f} errors)" for errors, found in count.items())
    yield f"REW013: of {total} healthy trainings, both fell in {shares}; {alarms} alarms"


def main() -> int:
    """Print the shares."""
    for line in itertools.chain(resumes(), stalls(), falls(), joint_falls()):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
